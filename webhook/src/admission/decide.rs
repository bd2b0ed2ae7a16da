//! What becomes of a pod: the whole story on one page.

use drainer::Token;

use super::defaults::{Defaults, OnInvalid};
use super::diagnostics::{Diagnostic, Effect};
use super::patch::Patch;
use super::plan::DrainPlan;
use super::pod::PodView;
use super::settings::ParsedSettings;
use super::settings::keys;
use super::settings::keys::INJECT;
use super::{edit, eligibility};

/// What is known of a pod beside its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodContext<'a> {
    /// The namespace, if it is known; else the manifest's counts.
    pub namespace: Option<&'a str>,
    /// The pod is of a Job. A pod whose owner is a Job says so itself; a Job's template does not.
    pub in_job: bool,
    /// The secret of the pod's hooks: at admission from the system's randomness, offline from the
    /// document by [`super::token`].
    pub token: Token,
}

/// What becomes of a pod.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The pod does not ask for a drainer.
    NotRequested,
    /// The pod gets its drainer.
    Inject {
        /// What will happen, and why.
        plan: Box<DrainPlan>,
        /// The change of the manifest.
        patch: Patch,
        /// What the pod's author should know.
        warnings: Vec<Diagnostic>,
    },
    /// The pod stays as it is, but for the annotation `status`.
    Skip {
        /// Why.
        reason: Diagnostic,
        /// The change of the manifest; it may be empty.
        patch: Patch,
        /// What the pod's author should know beside.
        warnings: Vec<Diagnostic>,
    },
    /// The pod asks for what it cannot have and is refused.
    Deny {
        /// Everything that is wrong.
        reasons: Vec<Diagnostic>,
        /// What the pod's author should know beside.
        warnings: Vec<Diagnostic>,
    },
}

/// Decides what becomes of a pod.
#[must_use]
pub fn decide(pod: &PodView<'_>, facts: &PodContext<'_>, defaults: &Defaults) -> Decision {
    let unclear = match pod.annotation(INJECT).map(keys::inject_requested) {
        None | Some(Ok(false)) => return Decision::NotRequested,
        Some(Ok(true)) => None,
        Some(Err(bad_value)) => Some(bad_value),
    };
    if let Some(reason) = eligibility::skip_reason(pod, facts, defaults) {
        return skip(pod, vec![reason], Vec::new());
    }
    let facts = PodContext {
        in_job: facts.in_job || pod.is_owned_by_job(),
        ..*facts
    };
    let ParsedSettings {
        settings,
        bad_values,
        mut warnings,
        defaulted: stand_ins,
    } = ParsedSettings::parse(pod, facts.in_job, defaults);
    let mut obstacles = Vec::from_iter(unclear);
    let plan = DrainPlan::try_new(pod, settings, &facts, defaults, &mut warnings)
        .map_err(|found| obstacles.extend(found));
    if defaults.on_invalid == OnInvalid::Deny {
        let refusal = |notice: &&Diagnostic| {
            notice.code.effect() == Effect::Refusal && !stand_ins.accounts_for(notice)
        };
        let refusals = bad_values.iter().chain(&obstacles).filter(refusal);
        let reasons: Vec<_> = refusals.cloned().collect();
        if !reasons.is_empty() {
            let skip = |notice: &Diagnostic| notice.code.effect() == Effect::Skip;
            warnings.extend(obstacles.into_iter().filter(skip));
            warnings.retain(|warning| !stand_ins.accounts_for(warning));
            return Decision::Deny { reasons, warnings };
        }
    }
    match plan {
        Ok(plan) if obstacles.is_empty() => Decision::Inject {
            patch: edit::inject(&plan, pod, &mut warnings),
            plan: Box::new(plan),
            warnings,
        },
        _ => skip(pod, obstacles, warnings),
    }
}

/// Skips a pod for the first of these reasons; the others are told beside it.
fn skip(
    pod: &PodView<'_>,
    mut reasons: Vec<Diagnostic>,
    mut warnings: Vec<Diagnostic>,
) -> Decision {
    let reason = reasons.remove(0);
    warnings.extend(reasons);
    Decision::Skip {
        patch: edit::skip(reason.code, pod, &mut warnings),
        reason,
        warnings,
    }
}
