//! The annotation `status`: what was done to a pod, for people and for the next admission.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::diagnostics::Code;
use super::plan::{DrainPlan, GracePeriod, SidecarMode};

/// The status of a pod that has a drainer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusAnnotation<'a> {
    version: &'a str,
    sidecar: SidecarMode,
    container: &'a str,
    grace: GracePeriod,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_hook: Option<ReplacedHook<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ReplacedHook<'a> {
    Whole(&'a RawValue),
    TooLong(&'static str),
}

/// In bytes. A pod's annotations may have 256 KiB in all, and nobody reads more of a hook.
const MAX_HOOK_LEN: usize = 4096;

/// The status of a pod that asked and was skipped.
#[derive(Serialize, Deserialize)]
struct SkippedStatus {
    skipped: String,
}

/// Writes the status of a pod that gets a drainer.
pub(super) fn encode_injected(plan: &DrainPlan) -> String {
    let status = StatusAnnotation {
        version: env!("CARGO_PKG_VERSION"),
        sidecar: plan.sidecar,
        container: &plan.envoy.name,
        grace: plan.grace,
        replaced_hook: plan
            .replaced_hook
            .as_deref()
            .map(|hook| match hook.get().len() {
                ..=MAX_HOOK_LEN => ReplacedHook::Whole(hook),
                _ => ReplacedHook::TooLong("too long to repeat"),
            }),
    };
    serde_json::to_string(&status).expect("strings, numbers and JSON always serialise")
}

/// Writes the status of a pod that is skipped.
pub(super) fn encode_skipped(code: Code) -> String {
    serde_json::to_string(&SkippedStatus {
        skipped: code.to_string(),
    })
    .expect("a string always serialises")
}

/// True unless the status is a skip's: that one is decided anew, since another webhook may have
/// brought the Envoy that was missing.
pub(super) fn records_injection(status: &str) -> bool {
    serde_json::from_str::<SkippedStatus>(status).is_err()
}

/// Why a pod with this status was skipped; `None` if it was not, or for a reason that is not known.
#[must_use]
pub fn skip_code(status: &str) -> Option<Code> {
    let SkippedStatus { skipped } = serde_json::from_str(status).ok()?;
    let mut codes = Code::ALL.iter().copied();
    codes.find(|code| code.to_string() == skipped)
}
