//! Why one pod has no drainer, or a drainer that does not run.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::admission::settings::keys::{INJECT, STATUS, inject_requested};
use crate::admission::{
    CONTAINER_NAME, Code, Decision, Defaults, Diagnostic, PodContext, PodView, decide, skip_code,
    token,
};
use crate::check::namespaces::{Namespaces, opt_in_command};
use crate::check::pod_status::{IMAGE_PULL_REASONS, drainer, drainer_waiting_reason};
use crate::check::report::{CheckResult, Subject};
use crate::check::text::{has_or_have, plural};
use crate::check::workload::with_recreation;

/// Diagnoses pods by what is known of the installation.
#[derive(Debug, Clone, Copy)]
pub struct PodDiagnoser<'a> {
    /// The defaults of the webhook.
    pub defaults: &'a Defaults,
    /// The image of new drainers, if it is known.
    pub image: Option<&'a str>,
    /// When the webhook was installed.
    pub installed_at: Option<&'a Time>,
    /// The namespaces, if they could be read.
    pub namespaces: Option<&'a Namespaces>,
}

/// What is wrong with a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Diagnosis {
    /// Its drainer is not running.
    NotRunning { image: String, reason: String },
    /// It requests a drainer and has none.
    NotInjected(Cause),
    /// Its drainer has another image than new ones.
    OtherImage(String),
}

/// Why a pod that requests a drainer has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    NotOptedIn,
    /// It would be skipped or denied now, or API servers do not call the webhook for it.
    Skipped {
        reason: String,
        remedy: Option<&'static str>,
    },
    /// Its annotation `status` holds this code.
    Recorded(Code),
    CreatedBeforeInstallation,
    WebhookNotCalled,
}

/// Pods of one owner with one diagnosis.
#[derive(Debug)]
pub(super) struct PodGroup {
    pub(super) count: usize,
    /// The name of the first pod.
    pub(super) first: String,
}

/// Returns true for annotations that request a drainer, validly or not.
pub(in crate::check) fn is_requested(inject: Option<&String>) -> bool {
    inject.is_some_and(|inject| !matches!(inject_requested(inject), Ok(false)))
}

// === impl PodDiagnoser ===

impl PodDiagnoser<'_> {
    /// `None` for a pod that is as it should be.
    pub(super) fn diagnose(&self, pod: &Pod) -> Option<Diagnosis> {
        let Some(drainer) = drainer(pod) else {
            return self.cause(pod).map(Diagnosis::NotInjected);
        };
        let image = drainer.image.clone().unwrap_or_default();
        if let Some(reason) = drainer_waiting_reason(pod) {
            let reason = reason.to_owned();
            return Some(Diagnosis::NotRunning { image, reason });
        }
        let is_outdated = self.image.is_some_and(|new| new != image);
        is_outdated.then_some(Diagnosis::OtherImage(image))
    }

    /// `None` for a pod that does not request a drainer. What is recorded comes first, then what the
    /// pod's namespace and age explain, and last what the webhook would decide now.
    fn cause(&self, pod: &Pod) -> Option<Cause> {
        let annotations = pod.metadata.annotations.as_ref()?;
        if !is_requested(annotations.get(INJECT)) {
            return None;
        }
        let namespace = pod.metadata.namespace.as_deref();
        let cause = match annotations.get(STATUS) {
            Some(status) => skip_code(status).map(Cause::Recorded),
            None => self
                .selection_cause(namespace)
                .or_else(|| self.age_cause(pod)),
        };
        cause.or_else(|| self.decision_cause(pod, namespace))
    }

    /// The cause if the webhook configuration does not match the namespace.
    fn selection_cause(&self, namespace: Option<&str>) -> Option<Cause> {
        let (namespaces, namespace) = self.namespaces.zip(namespace)?;
        if namespaces.selected.contains(namespace) {
            return None;
        }
        Some(match namespaces.exclusion(namespace) {
            Some((unmet, remedy)) => Cause::Skipped {
                reason: format!(
                    "the webhook configuration excludes its namespace: it requires `{unmet}`"
                ),
                remedy: Some(remedy),
            },
            None => Cause::NotOptedIn,
        })
    }

    fn age_cause(&self, pod: &Pod) -> Option<Cause> {
        let created = pod.metadata.creation_timestamp.as_ref()?;
        let is_older = created.0 < self.installed_at?.0;
        is_older.then_some(Cause::CreatedBeforeInstallation)
    }

    /// The cause by what the webhook would decide now.
    fn decision_cause(&self, pod: &Pod, namespace: Option<&str>) -> Option<Cause> {
        let json = serde_json::to_string(pod).ok()?;
        let view = PodView::decode(&json).ok()?;
        let context = PodContext {
            namespace,
            in_job: false,
            token: token(&[]),
        };
        let skipped = |diagnostic: &Diagnostic| Cause::Skipped {
            reason: diagnostic.to_string(),
            remedy: diagnostic.remedy(),
        };
        match decide(&view, &context, self.defaults) {
            Decision::NotRequested => None,
            Decision::Skip { reason, .. } => Some(skipped(&reason)),
            Decision::Deny { reasons, .. } => reasons.first().map(skipped),
            Decision::Inject { .. } => Some(Cause::WebhookNotCalled),
        }
    }

    /// `None` for a diagnosis of which one result covers many owners.
    pub(super) fn check_result(
        &self,
        diagnosis: &Diagnosis,
        owner: &Subject,
        group: &PodGroup,
    ) -> Option<CheckResult> {
        let PodGroup { count, first } = group;
        let pods = match &*owner.kind {
            "Pod" => format!("{owner} has"),
            _ => format!(
                "{} of {owner} {}",
                plural(*count, "pod"),
                has_or_have(*count)
            ),
        };
        let namespace = owner.namespace.as_deref().unwrap_or_default();
        let result = match diagnosis {
            Diagnosis::OtherImage(_) => return None,
            Diagnosis::NotInjected(cause) => {
                let message = format!("{pods} no drainer: {}", cause.message());
                cause.with_remedy(CheckResult::warning("without-drainer", message), owner)
            }
            Diagnosis::NotRunning { image, reason } => {
                let message = format!("{pods} a drainer that is not running: {reason}");
                let result = CheckResult::error("not-running", message);
                if IMAGE_PULL_REASONS.contains(&&**reason) {
                    result.with_remedy(format!(
                        "the node cannot pull {image}: check `image` in the chart's values; pods need their own pull secrets"
                    ))
                    .with_command(format!("kubectl describe pod {first} --namespace {namespace}"))
                } else {
                    result.with_command(format!(
                        "kubectl logs {first} --container {CONTAINER_NAME} --namespace {namespace}"
                    ))
                }
            }
        };
        Some(result.with_subject(owner.clone()))
    }
}

// === impl Cause ===

impl Cause {
    fn message(&self) -> String {
        match self {
            Self::NotOptedIn => "the namespace has not opted in".to_owned(),
            Self::Skipped { reason, .. } => reason.clone(),
            Self::Recorded(code) => {
                format!("{code}: {}", code.sentence().trim_end_matches('.'))
            }
            Self::CreatedBeforeInstallation => "created before the installation".to_owned(),
            Self::WebhookNotCalled => {
                "created while the webhook was unavailable, or before the namespace was labeled"
                    .to_owned()
            }
        }
    }

    fn with_remedy(&self, result: CheckResult, owner: &Subject) -> CheckResult {
        match self {
            Self::NotOptedIn => {
                let namespace = owner.namespace.as_deref().unwrap_or_default();
                with_recreation(
                    result
                        .with_remedy("label the namespace")
                        .with_command(opt_in_command(namespace)),
                    owner,
                )
            }
            Self::Skipped { remedy, .. } => result.with_optional_remedy(*remedy),
            Self::Recorded(code) => with_recreation(result.with_remedy(code.remedy()), owner),
            Self::CreatedBeforeInstallation | Self::WebhookNotCalled => {
                with_recreation(result, owner)
            }
        }
    }
}
