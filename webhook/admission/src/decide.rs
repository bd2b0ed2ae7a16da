//! The decision about a pod, top to bottom: eligibility, settings, plan, patch.

use super::context::PodContext;
use super::diagnostics::{Code, Diagnostic, Diagnostics, Effect};
use super::eligibility;
use super::names::INJECT;
use super::patch;
use super::patch::Patch;
use super::plan::DrainPlan;
use super::pod::PodView;
use super::settings::ParsedSettings;
use super::settings::defaults::{Defaults, OnInvalid};
use super::settings::keys;
use super::shutdown_manager;

#[derive(Debug, Clone)]
pub enum Decision {
    NotRequested,
    Inject {
        /// The settings and objects of the drain, each with its source.
        plan: Box<DrainPlan>,
        patch: Patch,
        /// What the pod's author should know.
        warnings: Vec<Diagnostic>,
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
    let invalid_inject = match pod.annotation(INJECT).map(keys::inject_requested) {
        None | Some(Ok(false)) => return Decision::NotRequested,
        Some(Ok(true)) => None,
        Some(Err(bad_value)) => Some(bad_value),
    };
    if let Some(reason) = eligibility::skip_reason(pod, context, defaults) {
        return skip(pod, vec![reason], Vec::new());
    }
    let context = PodContext {
        in_job: context.in_job || pod.is_owned_by_job(),
        ..*context
    };
    let mut diagnostics = Diagnostics::default();
    let adoption = match shutdown_manager::find(pod, defaults.grace_margin) {
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
    let (reasons, others): (Vec<_>, Vec<_>) = failures.iter().cloned().partition(|failure| {
        failure.code.effect() == Effect::Denial && !defaulted.may_have_caused(failure)
    });
    if reasons.is_empty() || defaults.on_invalid == OnInvalid::Warn {
        return skip(pod, failures, warnings);
    }
    let is_skip = |failure: &Diagnostic| failure.code.effect() == Effect::Skip;
    warnings.extend(others.into_iter().filter(is_skip));
    warnings.retain(|warning| !defaulted.may_have_caused(warning));
    Decision::Deny { reasons, warnings }
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
