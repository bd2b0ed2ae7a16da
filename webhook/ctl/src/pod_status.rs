//! The drainer of a pod, and the status of pods and containers, as kubelets and the scheduler write it.

use std::fmt;

use admission::{CONTAINER_NAME, is_drop_in};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition};

/// The reasons of a container that has yet to start.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/kubelet_pods.go>
const STARTING_REASONS: [&str; 2] = ["PodInitializing", "ContainerCreating"];

/// The reasons of a container whose image cannot be pulled.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go>
pub(crate) const IMAGE_PULL_REASONS: [&str; 4] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
];

/// The reason of a container that ran and exited, so that its log may say more.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// The reason of a pod for which there is no node.
/// <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions>
const UNSCHEDULABLE: &str = "Unschedulable";

/// A pod that is not ready, and perhaps why.
#[derive(Debug)]
pub struct UnreadyPod<'a> {
    name: &'a str,
    /// `None` if its status does not say.
    reason: Option<WaitingReason<'a>>,
}

/// Why a container is waiting: the reason and the message.
type WaitingReason<'a> = (&'a str, Option<&'a str>);

/// A pod's drainer, if it has one, which may run in the place of a shutdown manager.
pub(crate) fn drainer(pod: &Pod) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    let mut containers = init.chain(&spec.containers);
    containers.find(|container| container.name == CONTAINER_NAME || is_manager(container))
}

/// Returns true if the drainer runs in a container in the place of a shutdown manager.
fn is_manager(container: &Container) -> bool {
    let image = container.image.as_deref().unwrap_or_default();
    let args = container.args.iter().flatten();
    is_drop_in(image, None, args.map(String::as_str))
}

/// The status of a pod's drainer, if a kubelet has reported it.
pub(crate) fn drainer_status(pod: &Pod) -> Option<&ContainerStatus> {
    let (status, name) = (pod.status.as_ref()?, &drainer(pod)?.name);
    let init = status.init_container_statuses.iter().flatten();
    let mut statuses = init.chain(status.container_statuses.iter().flatten());
    statuses.find(|status| status.name == *name)
}

/// Why a pod's drainer is waiting, unless it is only starting.
pub(crate) fn drainer_waiting_reason(pod: &Pod) -> Option<&str> {
    let (reason, _) = waiting_reason(drainer_status(pod)?)?;
    (!STARTING_REASONS.contains(&reason)).then_some(reason)
}

/// Why a container is waiting, if it is.
fn waiting_reason(container: &ContainerStatus) -> Option<WaitingReason<'_>> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.as_deref()?, waiting.message.as_deref()))
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready", "True").is_some()
}

/// The condition of this type, if it has this status.
fn condition<'a>(pod: &'a Pod, type_: &str, status: &str) -> Option<&'a PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status == status)
}

// === impl UnreadyPod ===

impl<'a> UnreadyPod<'a> {
    /// The first of these pods that is not ready, preferably one with a reason.
    pub fn first(pods: impl IntoIterator<Item = &'a Pod>) -> Option<Self> {
        let unready = pods.into_iter().filter_map(Self::from_pod);
        unready.min_by_key(|unready| unready.reason.is_none())
    }

    fn from_pod(pod: &'a Pod) -> Option<Self> {
        if pod.metadata.deletion_timestamp.is_some() || is_ready(pod) {
            return None;
        }
        let status = pod.status.iter();
        let containers = status.flat_map(|status| status.container_statuses.iter().flatten());
        let mut waiting = containers.filter_map(waiting_reason);
        let unscheduled = condition(pod, "PodScheduled", "False");
        let unschedulable = unscheduled.map(|it| (UNSCHEDULABLE, it.message.as_deref()));
        Some(Self {
            name: pod.metadata.name.as_deref().unwrap_or_default(),
            reason: waiting.next().or(unschedulable),
        })
    }

    /// Returns true if it fails to start over and over.
    pub fn is_stuck(&self) -> bool {
        let is_stuck = |reason| !STARTING_REASONS.contains(&reason) && reason != UNSCHEDULABLE;
        self.reason.is_some_and(|(reason, _)| is_stuck(reason))
    }

    /// The command that prints more.
    pub(crate) fn command(&self, namespace: &str) -> String {
        let pod = self.name;
        // Without a reason it runs, or ran, so it has a log.
        if self.reason.is_none_or(|(reason, _)| reason == CRASH_LOOP) {
            format!("kubectl logs {pod} --namespace {namespace}")
        } else {
            format!("kubectl describe pod {pod} --namespace {namespace}")
        }
    }
}

impl fmt::Display for UnreadyPod<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((reason, message)) = self.reason else {
            return write!(f, "`{}` is not ready", self.name);
        };
        f.write_str(reason)?;
        message.map_or(Ok(()), |message| write!(f, " ({message})"))
    }
}
