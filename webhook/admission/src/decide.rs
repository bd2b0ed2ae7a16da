//! The decision about a pod, top to bottom: eligibility, settings, plan, patch.

use super::diagnostics::{Code, Diagnostic, Diagnostics, Effect};
use super::names::{ADOPT, INJECT, MIRROR, STATUS};
use super::patch::{self, Patch};
use super::plan::{self, DrainPlan, PodContext};
use super::pod::PodView;
use super::repair::repair;
use super::settings::parse::{ParsedSettings, inject_requested};
use super::settings::{Defaults, OnInvalid};
use super::shutdown_manager;

/// The decision about a pod.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The pod is admitted unchanged.
    NotRequested,
    Inject {
        /// The settings and objects of the drain, each with its source.
        plan: Box<DrainPlan>,
        patch: Patch,
        /// What the pod's author should know.
        warnings: Vec<Diagnostic>,
    },
    /// The pod has a drainer, and what was changed of its injection is restored.
    Repair {
        patch: Patch,
        /// What was changed, each.
        changes: Vec<Diagnostic>,
    },
    /// The pod is admitted without a drainer; at most its annotation `status` changes.
    Skip {
        reason: Diagnostic,
        /// The change of the manifest; it may be empty.
        patch: Patch,
        /// What the pod's author should know besides.
        warnings: Vec<Diagnostic>,
    },
    /// The pod is denied because its annotations are invalid.
    Deny {
        reasons: Vec<Diagnostic>,
        /// What the pod's author should know besides.
        warnings: Vec<Diagnostic>,
    },
}

/// Decides whether a pod gets a drainer, and how its manifest changes.
pub fn decide(pod: &PodView<'_>, context: &PodContext<'_>, defaults: &Defaults) -> Decision {
    let inject = pod.annotation(INJECT).map(inject_requested);
    // A pod that does not request a drainer is never denied.
    let is_asking = inject.is_some();
    // A pod that has its drainer is looked at again, whatever was added to it.
    let is_certain = || plan::is_certain(pod) || patch::find_drainer(pod).is_some();
    let invalid_inject = match inject {
        None if context.injects_all && is_certain() => None,
        None | Some(Ok(false)) => return Decision::NotRequested,
        Some(Ok(true)) => None,
        Some(Err(bad_value)) => Some(bad_value),
    };
    let context = PodContext {
        in_job: context.in_job || pod.is_owned_by("batch/", "Job"),
        ..*context
    };
    if patch::find_drainer(pod).is_some() {
        return second_look(pod, &context, defaults);
    }
    if let Some(reason) = skip_reason(pod, &context, defaults) {
        return skip(pod, vec![reason], Vec::new());
    }
    let mut diagnostics = Diagnostics::default();
    let adoption = match shutdown_manager::find(pod) {
        // The manager stays, so that no setting applies: a bad one is no reason to deny the pod.
        Err(reason) if reason.code == Code::UnknownShutdownManager => {
            return skip(pod, vec![reason], Vec::new());
        }
        adoption => diagnostics.fail(adoption).flatten(),
    };
    // From here on, the pod is as if it had no manager.
    let (pod, manager, manager_defaults) = match &adoption {
        Some(it) => (&it.pod, Some(it.manager), &it.defaults[..]),
        None => (pod, None, &[][..]),
    };
    let parsed = ParsedSettings::parse(pod, context.in_job, defaults, manager_defaults);
    let (settings, defaulted) = (parsed.settings, parsed.defaulted);
    diagnostics.warnings = parsed.warnings;
    let plan = if diagnostics.failures.is_empty() {
        DrainPlan::try_new(pod, manager, settings, &context, defaults, &mut diagnostics)
    } else {
        None
    };
    let mut failures = parsed.bad_values;
    failures.extend(invalid_inject.into_iter().chain(diagnostics.failures));
    let mut warnings = diagnostics.warnings;
    if let Some(plan) = plan
        && failures.is_empty()
    {
        let (patch, status_left_out) = patch::inject(&plan, pod);
        warnings.extend(status_left_out);
        let plan = Box::new(plan);
        return Decision::Inject {
            plan,
            patch,
            warnings,
        };
    }
    // Not denied for a failure that may be due to a setting which has its default in place of a bad value.
    let is_due_to_default = |it: &Diagnostic| {
        let mut settings = it.code.settings().iter();
        settings.any(|name| defaulted.contains(name))
    };
    let (reasons, others): (Vec<_>, Vec<_>) = failures.iter().cloned().partition(|failure| {
        failure.code.effect() == Effect::Denial && !is_due_to_default(failure)
    });
    if reasons.is_empty() || defaults.on_invalid == OnInvalid::Warn || !is_asking {
        return skip(pod, failures, warnings);
    }
    let is_skip = |failure: &Diagnostic| failure.code.effect() == Effect::Skip;
    warnings.extend(others.into_iter().filter(is_skip));
    warnings.retain(|warning| !is_due_to_default(warning));
    Decision::Deny { reasons, warnings }
}

/// Decides on a pod that has its drainer already.
fn second_look(pod: &PodView<'_>, context: &PodContext<'_>, defaults: &Defaults) -> Decision {
    // A pod that is never changed may have a drainer by `inject`.
    let (patch, warnings) = match exclusion(pod, context, defaults) {
        Some(_) => (Patch::default(), Vec::new()),
        None => repair(pod, defaults.grace_margin),
    };
    if !patch.is_empty() {
        let changes = warnings;
        return Decision::Repair { patch, changes };
    }
    Decision::Skip {
        reason: already_injected(),
        patch,
        warnings,
    }
}

/// Why a pod with a drainer gets no other one.
pub fn already_injected() -> Diagnostic {
    Code::AlreadyInjected.diagnostic("the pod has a drainer already")
}

/// Skips a pod for the first failure; the others become warnings.
fn skip(
    pod: &PodView<'_>,
    mut failures: Vec<Diagnostic>,
    mut warnings: Vec<Diagnostic>,
) -> Decision {
    let reason = failures.remove(0);
    let (patch, status_left_out) = patch::record_skip(&reason, pod);
    warnings.extend(failures.into_iter().chain(status_left_out));
    Decision::Skip {
        reason,
        patch,
        warnings,
    }
}

/// Returns why a pod is never changed; `None` if it may be.
fn exclusion(
    pod: &PodView<'_>,
    context: &PodContext<'_>,
    defaults: &Defaults,
) -> Option<Diagnostic> {
    let namespace = context.namespace.or_else(|| pod.namespace());
    let reason = if namespace == Some("kube-system") {
        Code::SystemNamespace.diagnostic("pods in `kube-system` are never changed")
    } else if namespace == Some(&defaults.release_namespace) {
        let own = &defaults.release_namespace;
        let detail = format!("pods in `{own}`, envoy-drainer's own namespace, are never changed");
        Code::ReleaseNamespace.diagnostic(detail)
    } else if pod.is_for_windows() {
        Code::WindowsPod.diagnostic("the pod runs on Windows")
    } else if pod.annotation(MIRROR).is_some() {
        Code::MirrorPod.diagnostic("the pod mirrors a static pod")
    } else {
        return None;
    };
    Some(reason)
}

/// Returns why a pod that requests a drainer, and has none, is skipped whatever its annotations request; `None` if it is
/// eligible.
fn skip_reason(
    pod: &PodView<'_>,
    context: &PodContext<'_>,
    defaults: &Defaults,
) -> Option<Diagnostic> {
    if let Some(reason) = exclusion(pod, context, defaults) {
        return Some(reason);
    }
    if pod.annotation(STATUS).is_some_and(patch::records_injection) {
        let detail = format!("`{STATUS}` records a drainer, but the pod has none");
        return Some(Code::StatusWithoutDrainer.about("status", detail));
    }
    if let Some(name) = shutdown_manager::find_drop_in(pod, &defaults.image) {
        let detail = format!("the pod has a drainer already: `{name}`, its shutdown manager");
        return Some(Code::AlreadyInjected.diagnostic(detail));
    }
    match pod.annotation(ADOPT) {
        None | Some("false") => shutdown_manager::find(pod).err(),
        // Its shutdown manager is decided on with its settings.
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::{CONTAINER_NAME, MANAGED_BY};
    use crate::plan::token;

    fn skip_code_of(pod: &Value, namespace: Option<&str>) -> Option<Code> {
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let context = PodContext::new(namespace, token(b""));
        match patch::find_drainer(&pod) {
            Some(_) => Some(Code::AlreadyInjected),
            None => {
                let defaults = Defaults::new("r/mirror:1", "drainers");
                skip_reason(&pod, &context, &defaults).map(|it| it.code)
            }
        }
    }

    #[test]
    fn pod_is_skipped_for_its_manifest() {
        let args = ["serve", "--port=15902", "--token=0123456789abcdef"];
        let status = |status: &str| json!({"metadata": {"annotations": {STATUS: status}}});
        let hooked = json!({"name": "envoy", "lifecycle": {"preStop": {}}});
        let manager = json!({"name": "shutdown-manager", "lifecycle": {"preStop": {}}});
        let drop_in = |image: &str, args: &[&str]| {
            let manager = json!({"name": "shutdown-manager", "image": image, "args": args});
            json!({"spec": {"containers": [hooked, manager]}})
        };
        let table = [
            (json!({}), None),
            (
                json!({"spec": {"containers": [{"name": CONTAINER_NAME, "args": args}]}}),
                Some(Code::AlreadyInjected),
            ),
            (
                json!({"spec": {"initContainers": [{"name": CONTAINER_NAME, "args": args}]}}),
                Some(Code::AlreadyInjected),
            ),
            (
                json!({
                    "metadata": {"annotations": {STATUS: "{}"}},
                    "spec": {"containers": [{"name": CONTAINER_NAME}]},
                }),
                Some(Code::AlreadyInjected),
            ),
            (
                json!({"spec": {"containers": [{"name": CONTAINER_NAME}]}}),
                None,
            ),
            (
                json!({"spec": {"containers": [{"name": CONTAINER_NAME, "args": ["serve", "--port=1"]}]}}),
                None,
            ),
            (
                json!({"spec": {"containers": [{"name": "other", "args": args}]}}),
                None,
            ),
            (
                status(r#"{"version":"0.1.0","sidecar":"native"}"#),
                Some(Code::StatusWithoutDrainer),
            ),
            (status("by hand"), Some(Code::StatusWithoutDrainer)),
            (status(r#"{"skipped":"DRN009"}"#), None),
            (
                json!({"spec": {"os": {"name": "windows"}}}),
                Some(Code::WindowsPod),
            ),
            (
                json!({"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}}}),
                Some(Code::WindowsPod),
            ),
            (
                json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "windows"}}}),
                Some(Code::WindowsPod),
            ),
            (
                json!({"spec": {"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "linux"}}}),
                None,
            ),
            (
                json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": ""}}}),
                Some(Code::MirrorPod),
            ),
            (
                json!({"metadata": {"labels": {MANAGED_BY: "envoy-gateway"}}, "spec": {"containers": [manager]}}),
                Some(Code::UnknownShutdownManager),
            ),
            (
                json!({"metadata": {"labels": {MANAGED_BY: "envoy-gateway"}}, "spec": {"containers": [hooked]}}),
                None,
            ),
            (
                json!({"spec": {"containers": [manager, hooked]}}),
                Some(Code::UnknownShutdownManager),
            ),
            (
                json!({"spec": {"containers": [manager, {"name": "envoy"}]}}),
                None,
            ),
            (json!({"spec": {"containers": [hooked]}}), None),
            // The drainer's image in the place of that of Envoy Gateway and of MARIN3R.
            (
                drop_in("r/team/drainer:1", &["envoy", "shutdown-manager"]),
                Some(Code::AlreadyInjected),
            ),
            (
                drop_in(
                    "r/team/drainer@sha256:0",
                    &["shutdown-manager", "--port", "1"],
                ),
                Some(Code::AlreadyInjected),
            ),
            (
                drop_in("r/mirror:1", &["envoy", "shutdown-manager"]),
                Some(Code::AlreadyInjected),
            ),
            (
                drop_in("r/mirror:2", &["envoy", "shutdown-manager"]),
                Some(Code::UnknownShutdownManager),
            ),
            (
                drop_in("drainer", &["serve"]),
                Some(Code::UnknownShutdownManager),
            ),
        ];
        for (pod, code) in table {
            assert_eq!(skip_code_of(&pod, Some("shop")), code, "{pod}");
        }
    }

    #[test]
    fn pod_is_skipped_for_its_namespace() {
        let table = [
            (Some("kube-system"), None, Some(Code::SystemNamespace)),
            (Some("drainers"), None, Some(Code::ReleaseNamespace)),
            (None, Some("drainers"), Some(Code::ReleaseNamespace)),
            (Some("shop"), Some("kube-system"), None),
            (None, None, None),
        ];
        for (requested, in_manifest, code) in table {
            let pod = json!({"metadata": {"namespace": in_manifest}});
            assert_eq!(
                skip_code_of(&pod, requested),
                code,
                "{requested:?} {in_manifest:?}"
            );
        }
    }
}
