//! What is to be said of one pod.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Alike;
use crate::admission::annotations::{INJECT, INJECTION, STATUS};
use crate::admission::{
    CONTAINER_NAME, Code, Defaults, Facts, Notice, PodView, Verdict, mutate, skipped_for, token,
};
use crate::check::namespaces::Namespaces;
use crate::check::owner::anew;
use crate::check::point::{About, Point};
use crate::check::waiting::{is_pulling, is_starting};
use crate::check::words::{count, has};

/// Why API servers never ask about a pod, whatever the label of its namespace.
const NEVER_ASKED_ABOUT: [Code; 4] = [
    Code::SystemNamespace,
    Code::ReleaseNamespace,
    Code::WindowsPod,
    Code::MirrorPod,
];

/// What decides about pods.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// What the webhook injects.
    pub defaults: &'a Defaults,
    /// The image of its drainers, if it is known.
    pub image: Option<&'a str>,
    /// When the webhook was installed.
    pub since: Option<&'a Time>,
    /// The namespaces, if they could be seen.
    pub namespaces: Option<&'a Namespaces>,
}

/// What is to be said of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finding {
    /// Its drainer, of this image, does not run, and why.
    NotRunning { image: String, reason: String },
    /// It asks and has no drainer.
    Without(Why),
    /// Its drainer has another image than new ones.
    OtherImage(String),
}

/// Why a pod that asks has no drainer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// Its namespace has not opted in.
    NotOptedIn,
    /// It is left alone, or would be, and why and what to do.
    Skipped(String, Option<&'static str>),
    /// It was skipped, and would not be now.
    SkippedOnce(Code),
    /// It was there before the webhook.
    Older,
    /// Nobody was asked about it.
    NotSeen,
}

// === impl Judge ===

impl Judge<'_> {
    /// `None` for a pod of which nothing is to be said.
    pub(super) fn finding(&self, pod: &Pod) -> Option<Finding> {
        match drainer(pod) {
            Some(drainer) => self.injected(pod, drainer),
            None => self.without(pod).map(Finding::Without),
        }
    }

    fn injected(&self, pod: &Pod, drainer: &Container) -> Option<Finding> {
        let image = drainer.image.as_deref().unwrap_or_default();
        if let Some(reason) = waiting(pod) {
            return Some(Finding::NotRunning {
                image: image.to_owned(),
                reason: reason.to_owned(),
            });
        }
        let is_new = self.image.is_none_or(|new| new == image);
        (!is_new).then(|| Finding::OtherImage(image.to_owned()))
    }

    /// `None` for a pod that does not ask.
    fn without(&self, pod: &Pod) -> Option<Why> {
        let annotations = pod.metadata.annotations.as_ref()?;
        annotations.get(INJECT)?;
        let namespace = pod.metadata.namespace.as_deref();
        let verdict = self.verdict(pod, namespace)?;
        let status = annotations.get(STATUS).map(|status| skipped_for(status));
        let told = |notice: &Notice| Why::Skipped(notice.to_string(), notice.remedy());
        let is_never_asked_about = matches!(
            &verdict,
            Verdict::Skip { reason, .. } if NEVER_ASKED_ABOUT.contains(&reason.code)
        );
        if status.is_none()
            && !is_never_asked_about
            && let Some(why) = self.not_asked_about(namespace)
        {
            return Some(why);
        }
        Some(match (verdict, status) {
            (Verdict::NotAsked, _) => return None,
            (Verdict::Skip { reason, .. }, _) => told(&reason),
            (Verdict::Deny { reasons, .. }, _) => told(reasons.first()?),
            (Verdict::Inject { .. }, Some(Some(code))) => Why::SkippedOnce(code),
            (Verdict::Inject { .. }, Some(None) | None) => {
                let created = pod.metadata.creation_timestamp.as_ref();
                match self.since.zip(created) {
                    Some((since, created)) if created.0 < since.0 => Why::Older,
                    _ => Why::NotSeen,
                }
            }
        })
    }

    /// What would become of a pod if it were made now.
    pub(in crate::check) fn verdict(&self, pod: &Pod, namespace: Option<&str>) -> Option<Verdict> {
        let json = serde_json::to_string(pod).ok()?;
        let view = PodView::decode(&json).ok()?;
        let facts = Facts {
            namespace,
            in_job: false,
            token: token(&[]),
        };
        Some(mutate(&view, &facts, self.defaults))
    }

    fn not_asked_about(&self, namespace: Option<&str>) -> Option<Why> {
        let (namespaces, namespace) = self.namespaces.zip(namespace)?;
        if namespaces.asked.contains(namespace) {
            return None;
        }
        Some(match namespaces.leaves_out(namespace) {
            Some((unmet, remedy)) => {
                let why = format!("API servers leave its namespace out: they ask where `{unmet}`");
                Why::Skipped(why, Some(remedy))
            }
            None => Why::NotOptedIn,
        })
    }

    /// `None` for what is said of many owners at once.
    pub(super) fn point(&self, finding: &Finding, owner: &About, alike: &Alike) -> Option<Point> {
        const WITHOUT: &str = "without-drainer";
        let Alike { many, one } = alike;
        let pods = match &*owner.kind {
            "Pod" => format!("{owner} has"),
            _ => format!("{} of {owner} {}", count(*many, "pod"), has(*many)),
        };
        let namespace = owner.namespace.as_deref().unwrap_or_default();
        let asks = |why: &str| Point::warning(WITHOUT, format!("{pods} no drainer: {why}"));
        let point = match finding {
            Finding::OtherImage(_) => return None,
            Finding::NotRunning { image, reason } => {
                let message = format!("{pods} a drainer that does not run: {reason}");
                let point = Point::error("not-running", message);
                if is_pulling(reason) {
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
            Finding::Without(Why::NotOptedIn) => {
                let label =
                    format!("kubectl label namespace {namespace} {INJECTION}=enabled --overwrite");
                let point = asks("the namespace has not opted in").command(label);
                let mut point = anew(point, owner);
                // A remedy stands above the commands, and the label comes first.
                point.remedy = point
                    .remedy
                    .map(|then| format!("label the namespace, then {then}"));
                point
            }
            Finding::Without(Why::Skipped(why, None)) => asks(why),
            Finding::Without(Why::Skipped(why, Some(remedy))) => asks(why).remedy(*remedy),
            Finding::Without(Why::SkippedOnce(code)) => {
                let why = format!("skipped when made ({code}), and would get one now");
                anew(asks(&why), owner)
            }
            Finding::Without(Why::Older) => anew(asks("older than the installation"), owner),
            Finding::Without(Why::NotSeen) => {
                let why = "made while the webhook was away, or before the namespace had the label";
                anew(asks(why), owner)
            }
        };
        Some(point.about(owner.clone()))
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
fn waiting(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let plain = status.container_statuses.iter().flatten();
    let is_ours = |status: &&ContainerStatus| status.name == CONTAINER_NAME;
    let status = init.chain(plain).find(is_ours)?;
    let reason = status.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
    (!is_starting(reason)).then_some(reason)
}
