//! The annotation `status`: what the webhook did to a pod, for operators and for the next admission.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::diagnostics::{Code, Diagnostic};
use super::plan::{DrainPlan, GracePeriod};
use super::shutdown_manager::ManagerProduct;
use super::sidecar_mode::SidecarMode;

/// The status of a pod that has a drainer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusAnnotation<'a> {
    version: &'a str,
    sidecar: SidecarMode,
    container: &'a str,
    grace: GracePeriod,
    /// What Envoy's container became, if it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    envoy: Option<SidecarMode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extra_hooks: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_hook: Option<&'a RawValue>,
    /// The product whose shutdown manager was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    adopted: Option<ManagerProduct>,
}

/// Maximum length of a replaced hook that the status repeats, in bytes. All annotations of a pod together may have
/// 256 KiB.
const MAX_HOOK_LEN: usize = 4096;

/// The status of a pod that requested a drainer and was skipped.
#[derive(Serialize, Deserialize)]
struct SkippedStatus {
    skipped: String,
    /// The diagnostic's detail, where the code alone does not tell what to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Why a pod was skipped, as its status records it. Displayed as `DRN008: Envoy's container has a preStop hook already`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedSkip {
    pub code: Code,
    /// The diagnostic's detail, if it is recorded.
    reason: Option<String>,
}

/// What the status of a pod with a drainer records beside the drainer's own arguments.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedInjection {
    /// The name of Envoy's container; empty if it is not recorded.
    pub container: String,
    /// What Envoy's container became, if it was moved.
    pub envoy: Option<SidecarMode>,
    /// The containers whose SIGTERM waits for the drain.
    pub extra_hooks: Vec<String>,
    /// The product whose shutdown manager was removed.
    pub adopted: Option<ManagerProduct>,
}

/// Encodes the status of a pod that gets a drainer.
pub(super) fn encode_injected(plan: &DrainPlan) -> String {
    let replaced_hook = plan.replaced_hook.as_deref();
    let too_long = serde_json::from_str(r#""too long to repeat""#).expect("it is a JSON string");
    let status = StatusAnnotation {
        version: env!("CARGO_PKG_VERSION"),
        sidecar: plan.sidecar,
        container: &plan.envoy.name,
        grace: plan.grace,
        envoy: plan.is_envoy_moved.then_some(SidecarMode::Native),
        extra_hooks: plan.extra_hooks.iter().map(|it| &*it.container).collect(),
        replaced_hook: replaced_hook.map(|hook| match hook.get().len() {
            ..=MAX_HOOK_LEN => hook,
            _ => too_long,
        }),
        adopted: plan.adopted.map(|manager| manager.product),
    };
    serde_json::to_string(&status).expect("strings, numbers and JSON always serialize")
}

/// Encodes the status of a pod that is skipped.
pub(super) fn encode_skipped(reason: &Diagnostic) -> String {
    let Diagnostic { code, detail, .. } = reason;
    let is_named = *code == Code::UnknownShutdownManager;
    serde_json::to_string(&SkippedStatus {
        skipped: code.to_string(),
        reason: is_named.then(|| detail.clone()),
    })
    .expect("strings always serialize")
}

/// Returns true unless the status records a skip: that pod is decided again, since another webhook may have
/// added the Envoy that was missing.
pub(super) fn records_injection(status: &str) -> bool {
    serde_json::from_str::<SkippedStatus>(status).is_err()
}

// === impl RecordedInjection ===

impl RecordedInjection {
    /// Reads the status of a pod; nothing is recorded in one that cannot be read.
    pub fn read(status: &str) -> Self {
        serde_json::from_str(status).unwrap_or_default()
    }
}

// === impl RecordedSkip ===

impl RecordedSkip {
    /// Reads the status of a pod; `None` if it was not skipped or the code is unknown.
    pub fn read(status: &str) -> Option<Self> {
        let SkippedStatus { skipped, reason } = serde_json::from_str(status).ok()?;
        let mut codes = Code::ALL.iter().copied();
        let code = codes.find(|code| code.to_string() == skipped)?;
        Some(Self { code, reason })
    }
}

impl fmt::Display for RecordedSkip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, reason } = self;
        let sentence = || code.sentence().trim_end_matches('.');
        let reason = reason.as_deref().unwrap_or_else(sentence);
        write!(f, "{code}: {reason}")
    }
}
