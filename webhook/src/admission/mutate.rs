//! What becomes of a pod: the whole story on one page.

use drainer::Token;

use super::annotations::{self, INJECT};
use super::codes::{Effect, Notice};
use super::defaults::{Defaults, OnInvalid};
use super::patch::Patch;
use super::plan::DrainPlan;
use super::settings::Reading;
use super::view::PodView;
use super::{edit, eligibility};

/// What is known of a pod beside its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
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
pub enum Verdict {
    /// The pod does not ask for a drainer.
    NotAsked,
    /// The pod gets its drainer.
    Inject {
        /// What will happen, and why.
        plan: Box<DrainPlan>,
        /// The change of the manifest.
        patch: Patch,
        /// What the pod's author should know.
        warnings: Vec<Notice>,
    },
    /// The pod stays as it is, but for the annotation `status`.
    Skip {
        /// Why.
        reason: Notice,
        /// The change of the manifest; it may be empty.
        patch: Patch,
        /// What the pod's author should know beside.
        warnings: Vec<Notice>,
    },
    /// The pod asks for what it cannot have and is refused.
    Deny {
        /// Everything that is wrong.
        reasons: Vec<Notice>,
        /// What the pod's author should know beside.
        warnings: Vec<Notice>,
    },
}

/// Decides what becomes of a pod.
#[must_use]
pub fn mutate(pod: &PodView<'_>, facts: &Facts<'_>, defaults: &Defaults) -> Verdict {
    let unclear = match pod.annotation(INJECT).map(annotations::asks) {
        None | Some(Ok(false)) => return Verdict::NotAsked,
        Some(Ok(true)) => None,
        Some(Err(bad_value)) => Some(bad_value),
    };
    if let Some(reason) = eligibility::skip(pod, facts, defaults) {
        return skip(pod, vec![reason], Vec::new());
    }
    let facts = Facts {
        in_job: facts.in_job || pod.is_of_a_job(),
        ..*facts
    };
    let Reading {
        settings,
        bad_values,
        mut warnings,
        stand_ins,
    } = Reading::of(pod, facts.in_job, defaults);
    let mut obstacles = Vec::from_iter(unclear);
    let plan = DrainPlan::try_new(pod, settings, &facts, defaults, &mut warnings)
        .map_err(|found| obstacles.extend(found));
    if defaults.on_invalid == OnInvalid::Deny {
        let refusal = |notice: &&Notice| {
            notice.code.effect() == Effect::Refusal && !stand_ins.explain(notice)
        };
        let refusals = bad_values.iter().chain(&obstacles).filter(refusal);
        let reasons: Vec<_> = refusals.cloned().collect();
        if !reasons.is_empty() {
            let skip = |notice: &Notice| notice.code.effect() == Effect::Skip;
            warnings.extend(obstacles.into_iter().filter(skip));
            warnings.retain(|warning| !stand_ins.explain(warning));
            return Verdict::Deny { reasons, warnings };
        }
    }
    match plan {
        Ok(plan) if obstacles.is_empty() => Verdict::Inject {
            patch: edit::inject(&plan, pod, &mut warnings),
            plan: Box::new(plan),
            warnings,
        },
        _ => skip(pod, obstacles, warnings),
    }
}

/// Skips a pod for the first of these reasons; the others are told beside it.
fn skip(pod: &PodView<'_>, mut reasons: Vec<Notice>, mut warnings: Vec<Notice>) -> Verdict {
    let reason = reasons.remove(0);
    warnings.extend(reasons);
    Verdict::Skip {
        patch: edit::skip(reason.code, pod, &mut warnings),
        reason,
        warnings,
    }
}
