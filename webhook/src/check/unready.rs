//! A replica that is not ready, and why, as far as its pod tells.

use std::fmt;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

use super::running::is_ready;
use super::waiting::{is_crashing, is_starting};

/// What is said of a pod that no node takes.
/// <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions>
const UNSCHEDULABLE: &str = "Unschedulable";

/// A replica that is not ready.
#[derive(Debug)]
pub(super) struct Unready<'a> {
    pod: &'a str,
    why: Option<Why<'a>>,
}

/// What a pod waits for.
#[derive(Debug)]
struct Why<'a> {
    reason: &'a str,
    message: Option<&'a str>,
}

// === impl Unready ===

impl<'a> Unready<'a> {
    /// The first of these pods that is not ready; of several, one that tells why.
    pub(super) fn first(pods: impl IntoIterator<Item = &'a Pod>) -> Option<Self> {
        let unready = pods.into_iter().filter_map(Self::read);
        unready.min_by_key(|unready| unready.why.is_none())
    }

    fn read(pod: &'a Pod) -> Option<Self> {
        if is_ready(pod) || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut waiting = containers.into_iter().flatten().filter_map(waiting);
        let mut unscheduled = conditions.into_iter().flatten().filter_map(unscheduled);
        Some(Self {
            pod: pod.metadata.name.as_deref().unwrap_or_default(),
            why: waiting.next().or_else(|| unscheduled.next()),
        })
    }

    /// Returns true if it has failed to start, and the same is tried again and again.
    pub(super) fn is_stuck(&self) -> bool {
        let of_nodes = |why: &Why<'_>| is_starting(why.reason) || why.reason == UNSCHEDULABLE;
        self.why.as_ref().is_some_and(|why| !of_nodes(why))
    }

    /// The command that tells more.
    pub(super) fn command(&self, namespace: &str) -> String {
        let pod = self.pod;
        match &self.why {
            Some(why) if !is_crashing(why.reason) => {
                format!("kubectl describe pod {pod} --namespace {namespace}")
            }
            // It has run, or does, so that its log tells.
            _ => format!("kubectl logs {pod} --namespace {namespace}"),
        }
    }
}

impl fmt::Display for Unready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            None => write!(f, "`{}` is not ready", self.pod),
            Some(Why {
                reason,
                message: None,
            }) => f.write_str(reason),
            Some(Why {
                reason,
                message: Some(message),
            }) => write!(f, "{reason} ({message})"),
        }
    }
}

fn waiting(container: &ContainerStatus) -> Option<Why<'_>> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    Some(Why {
        reason: waiting.reason.as_deref()?,
        message: waiting.message.as_deref(),
    })
}

fn unscheduled(condition: &PodCondition) -> Option<Why<'_>> {
    let is_so = condition.type_ == "PodScheduled" && condition.status == "False";
    is_so.then_some(Why {
        reason: UNSCHEDULABLE,
        message: condition.message.as_deref(),
    })
}
