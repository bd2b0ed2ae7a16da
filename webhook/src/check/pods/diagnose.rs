//! What is to be said of one pod.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::PodGroup;
use crate::admission::settings::keys::{INJECT, INJECTION, STATUS};
use crate::admission::{
    CONTAINER_NAME, Code, Decision, Defaults, Diagnostic, PodContext, PodView, decide, skip_code,
    token,
};
use crate::check::namespaces::Namespaces;
use crate::check::owner::recreate_remedy;
use crate::check::report::{CheckResult, Subject};
use crate::check::text::{has_or_have, plural};
use crate::check::waiting::{is_image_pull_error, is_starting};

/// Why API servers never ask about a pod, whatever the label of its namespace.
const NEVER_SELECTED: [Code; 4] = [
    Code::SystemNamespace,
    Code::ReleaseNamespace,
    Code::WindowsPod,
    Code::MirrorPod,
];

/// What decides about pods.
#[derive(Debug, Clone, Copy)]
pub struct PodDiagnoser<'a> {
    /// What the webhook injects.
    pub defaults: &'a Defaults,
    /// The image of its drainers, if it is known.
    pub image: Option<&'a str>,
    /// When the webhook was installed.
    pub installed_at: Option<&'a Time>,
    /// The namespaces, if they could be seen.
    pub namespaces: Option<&'a Namespaces>,
}

/// What is to be said of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Diagnosis {
    /// Its drainer, of this image, does not run, and why.
    NotRunning { image: String, reason: String },
    /// It asks and has no drainer.
    NotInjected(Cause),
    /// Its drainer has another image than new ones.
    OtherImage(String),
}

/// Why a pod that asks has no drainer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// Its namespace has not opted in.
    NotOptedIn,
    /// It is left alone, or would be, and why and what to do.
    Skipped(String, Option<&'static str>),
    /// It was skipped, and would not be now.
    SkippedAtCreation(Code),
    /// It was there before the webhook.
    CreatedBeforeInstallation,
    /// Nobody was asked about it.
    WebhookNotCalled,
}

// === impl PodDiagnoser ===

impl PodDiagnoser<'_> {
    /// `None` for a pod of which nothing is to be said.
    pub(super) fn diagnose(&self, pod: &Pod) -> Option<Diagnosis> {
        match drainer(pod) {
            Some(drainer) => self.diagnose_injected(pod, drainer),
            None => self.cause(pod).map(Diagnosis::NotInjected),
        }
    }

    fn diagnose_injected(&self, pod: &Pod, drainer: &Container) -> Option<Diagnosis> {
        let image = drainer.image.as_deref().unwrap_or_default();
        if let Some(reason) = waiting_reason(pod) {
            return Some(Diagnosis::NotRunning {
                image: image.to_owned(),
                reason: reason.to_owned(),
            });
        }
        let is_new = self.image.is_none_or(|new| new == image);
        (!is_new).then(|| Diagnosis::OtherImage(image.to_owned()))
    }

    /// `None` for a pod that does not ask.
    fn cause(&self, pod: &Pod) -> Option<Cause> {
        let annotations = pod.metadata.annotations.as_ref()?;
        annotations.get(INJECT)?;
        let namespace = pod.metadata.namespace.as_deref();
        let verdict = self.decision(pod, namespace)?;
        let status = annotations.get(STATUS).map(|status| skip_code(status));
        let told = |notice: &Diagnostic| Cause::Skipped(notice.to_string(), notice.remedy());
        let is_never_asked_about = matches!(
            &verdict,
            Decision::Skip { reason, .. } if NEVER_SELECTED.contains(&reason.code)
        );
        if status.is_none()
            && !is_never_asked_about
            && let Some(why) = self.not_selected_cause(namespace)
        {
            return Some(why);
        }
        Some(match (verdict, status) {
            (Decision::NotRequested, _) => return None,
            (Decision::Skip { reason, .. }, _) => told(&reason),
            (Decision::Deny { reasons, .. }, _) => told(reasons.first()?),
            (Decision::Inject { .. }, Some(Some(code))) => Cause::SkippedAtCreation(code),
            (Decision::Inject { .. }, Some(None) | None) => {
                let created = pod.metadata.creation_timestamp.as_ref();
                match self.installed_at.zip(created) {
                    Some((since, created)) if created.0 < since.0 => {
                        Cause::CreatedBeforeInstallation
                    }
                    _ => Cause::WebhookNotCalled,
                }
            }
        })
    }

    /// What would become of a pod if it were made now.
    pub(in crate::check) fn decision(
        &self,
        pod: &Pod,
        namespace: Option<&str>,
    ) -> Option<Decision> {
        let json = serde_json::to_string(pod).ok()?;
        let view = PodView::decode(&json).ok()?;
        let facts = PodContext {
            namespace,
            in_job: false,
            token: token(&[]),
        };
        Some(decide(&view, &facts, self.defaults))
    }

    fn not_selected_cause(&self, namespace: Option<&str>) -> Option<Cause> {
        let (namespaces, namespace) = self.namespaces.zip(namespace)?;
        if namespaces.selected.contains(namespace) {
            return None;
        }
        Some(match namespaces.exclusion(namespace) {
            Some((unmet, remedy)) => {
                let why = format!("API servers leave its namespace out: they ask where `{unmet}`");
                Cause::Skipped(why, Some(remedy))
            }
            None => Cause::NotOptedIn,
        })
    }

    /// `None` for what is said of many owners at once.
    pub(super) fn check_result(
        &self,
        finding: &Diagnosis,
        owner: &Subject,
        alike: &PodGroup,
    ) -> Option<CheckResult> {
        const WITHOUT: &str = "without-drainer";
        let PodGroup {
            count: many,
            first: one,
        } = alike;
        let pods = match &*owner.kind {
            "Pod" => format!("{owner} has"),
            _ => format!("{} of {owner} {}", plural(*many, "pod"), has_or_have(*many)),
        };
        let namespace = owner.namespace.as_deref().unwrap_or_default();
        let asks = |why: &str| CheckResult::warning(WITHOUT, format!("{pods} no drainer: {why}"));
        let point = match finding {
            Diagnosis::OtherImage(_) => return None,
            Diagnosis::NotRunning { image, reason } => {
                let message = format!("{pods} a drainer that does not run: {reason}");
                let point = CheckResult::error("not-running", message);
                if is_image_pull_error(reason) {
                    point.remedy(format!(
                        "the node cannot pull {image}: see `image` in the chart's values; pods need pull secrets of their own"
                    ))
                    .command(format!("kubectl describe pod {one} --namespace {namespace}"))
                } else {
                    point.command(format!(
                        "kubectl logs {one} --container {CONTAINER_NAME} --namespace {namespace}"
                    ))
                }
            }
            Diagnosis::NotInjected(Cause::NotOptedIn) => {
                let label =
                    format!("kubectl label namespace {namespace} {INJECTION}=enabled --overwrite");
                let point = asks("the namespace has not opted in").command(label);
                let mut point = recreate_remedy(point, owner);
                // A remedy stands above the commands, and the label comes first.
                point.remedy = point
                    .remedy
                    .map(|then| format!("label the namespace, then {then}"));
                point
            }
            Diagnosis::NotInjected(Cause::Skipped(why, None)) => asks(why),
            Diagnosis::NotInjected(Cause::Skipped(why, Some(remedy))) => asks(why).remedy(*remedy),
            Diagnosis::NotInjected(Cause::SkippedAtCreation(code)) => {
                let why = format!("skipped when made ({code}), and would get one now");
                recreate_remedy(asks(&why), owner)
            }
            Diagnosis::NotInjected(Cause::CreatedBeforeInstallation) => {
                recreate_remedy(asks("older than the installation"), owner)
            }
            Diagnosis::NotInjected(Cause::WebhookNotCalled) => {
                let why = "made while the webhook was away, or before the namespace had the label";
                recreate_remedy(asks(why), owner)
            }
        };
        Some(point.subject(owner.clone()))
    }
}

/// A pod's drainer, if it has one.
pub(super) fn drainer(pod: &Pod) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    let mut containers = init.chain(&spec.containers);
    containers.find(|container| container.name == CONTAINER_NAME)
}

/// Why a pod's drainer does not run, if it should.
fn waiting_reason(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let plain = status.container_statuses.iter().flatten();
    let is_ours = |status: &&ContainerStatus| status.name == CONTAINER_NAME;
    let status = init.chain(plain).find(is_ours)?;
    let reason = status.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
    (!is_starting(reason)).then_some(reason)
}
