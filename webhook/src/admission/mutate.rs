//! What becomes of a pod: the whole story on one page.

use drainer::Token;
use json_patch::Patch;

use super::annotations::INJECT;
use super::codes::{Code, Effect, Notice};
use super::defaults::{Defaults, OnInvalid};
use super::plan::DrainPlan;
use super::settings::Settings;
use super::view::PodView;
use super::{edit, eligibility};

/// What is known of a pod beside its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The namespace, if it is known; else the manifest's counts.
    pub namespace: Option<&'a str>,
    /// The pod is of a Job. A pod whose owner is a Job says so itself; a Job's template does not.
    pub in_job: bool,
    /// The secret of the pod's hooks; see [`super::token`].
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
    let asks = match pod.annotation(INJECT) {
        None | Some("false" | "disabled") => return Verdict::NotAsked,
        Some("true" | "enabled") => None,
        Some(value) => Some(Code::BadValue.about(format!(
            "`{INJECT}`: invalid value `{value}`: true or false"
        ))),
    };
    if let Some(reason) = eligibility::skip(pod, facts, defaults) {
        return skip(pod, reason, Vec::new());
    }
    let in_job = facts.in_job || pod.is_of_a_job();
    let read = Settings::read(pod, in_job, defaults);
    let mut warnings = read.warnings;
    let plan = DrainPlan::try_new(
        pod,
        read.settings,
        read.timing,
        in_job,
        facts.token,
        defaults,
        &mut warnings,
    );
    let obstacles = asks
        .into_iter()
        .chain(plan.as_ref().err().into_iter().flatten().cloned());
    match defaults.on_invalid {
        OnInvalid::Deny => {
            let refusals = obstacles
                .clone()
                .filter(|o| o.code.effect() == Effect::Refusal);
            let reasons: Vec<_> = read.bad_values.into_iter().chain(refusals).collect();
            if !reasons.is_empty() {
                return Verdict::Deny { reasons, warnings };
            }
        }
        OnInvalid::Warn => {
            let defaulted = |bad: Notice| Code::DefaultUsed.about(bad.detail);
            warnings.extend(read.bad_values.into_iter().map(defaulted));
        }
    }
    let mut obstacles: Vec<_> = obstacles.collect();
    match plan {
        Ok(plan) if obstacles.is_empty() => {
            let patch = edit::inject(&plan, pod);
            Verdict::Inject {
                plan: Box::new(plan),
                patch,
                warnings,
            }
        }
        _ => {
            let reason = obstacles.remove(0);
            warnings.extend(obstacles);
            skip(pod, reason, warnings)
        }
    }
}

fn skip(pod: &PodView<'_>, reason: Notice, warnings: Vec<Notice>) -> Verdict {
    let patch = edit::skip(reason.code, pod);
    Verdict::Skip {
        reason,
        patch,
        warnings,
    }
}
