//! A replica that is not ready, and why, as far as its pod tells.

use std::fmt;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use super::deployment::is_ready;
use super::waiting::{is_crash_loop, is_starting};

/// What is said of a pod that no node takes.
/// <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions>
const UNSCHEDULABLE: &str = "Unschedulable";

/// A replica that is not ready.
#[derive(Debug)]
pub(super) struct UnreadyPod<'a> {
    name: &'a str,
    reason: Option<WaitingReason<'a>>,
}

/// What a pod waits for.
#[derive(Debug)]
struct WaitingReason<'a> {
    reason: &'a str,
    message: Option<&'a str>,
}

// === impl UnreadyPod ===

impl<'a> UnreadyPod<'a> {
    /// The first of these pods that is not ready; of several, one that tells why.
    pub(super) fn first(pods: impl IntoIterator<Item = &'a Pod>) -> Option<Self> {
        let unready = pods.into_iter().filter_map(Self::from_pod);
        unready.min_by_key(|unready| unready.reason.is_none())
    }

    fn from_pod(pod: &'a Pod) -> Option<Self> {
        if is_ready(pod) || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut waiting = containers.into_iter().flatten().filter_map(waiting_reason);
        let mut unscheduled = conditions
            .into_iter()
            .flatten()
            .filter_map(unschedulable_reason);
        Some(Self {
            name: pod.metadata.name.as_deref().unwrap_or_default(),
            reason: waiting.next().or_else(|| unscheduled.next()),
        })
    }

    /// Returns true if it has failed to start, and the same is tried again and again.
    pub(super) fn is_stuck(&self) -> bool {
        let of_nodes =
            |why: &WaitingReason<'_>| is_starting(why.reason) || why.reason == UNSCHEDULABLE;
        self.reason.as_ref().is_some_and(|why| !of_nodes(why))
    }

    /// The command that tells more.
    pub(super) fn command(&self, namespace: &str) -> String {
        let pod = self.name;
        match &self.reason {
            Some(why) if !is_crash_loop(why.reason) => {
                format!("kubectl describe pod {pod} --namespace {namespace}")
            }
            // It has run, or does, so that its log tells.
            _ => format!("kubectl logs {pod} --namespace {namespace}"),
        }
    }
}

impl fmt::Display for UnreadyPod<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            None => write!(f, "`{}` is not ready", self.name),
            Some(WaitingReason {
                reason,
                message: None,
            }) => f.write_str(reason),
            Some(WaitingReason {
                reason,
                message: Some(message),
            }) => write!(f, "{reason} ({message})"),
        }
    }
}

fn waiting_reason(container: &ContainerStatus) -> Option<WaitingReason<'_>> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    Some(WaitingReason {
        reason: waiting.reason.as_deref()?,
        message: waiting.message.as_deref(),
    })
}

fn unschedulable_reason(condition: &PodCondition) -> Option<WaitingReason<'_>> {
    let is_so = condition.type_ == "PodScheduled" && condition.status == "False";
    is_so.then_some(WaitingReason {
        reason: UNSCHEDULABLE,
        message: condition.message.as_deref(),
    })
}
