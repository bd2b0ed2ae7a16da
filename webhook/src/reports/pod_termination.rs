//! Why a pod terminates, and to which workload it belongs: decided from the Pod and its ReplicaSet.

use admission::Owner;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde::de::IgnoredAny;
use strum::{IntoStaticStr, VariantNames};

use crate::drainer_api::PodIdentity;

/// A kind of object that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnedObjectKind {
    /// With its metadata and its status.
    Pod,
    /// With its metadata.
    ReplicaSet,
}

/// The fields of a Pod or ReplicaSet that decide.
/// <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct OwnedObject {
    metadata: Metadata,
    /// That of a Pod, which its author cannot write.
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: String,
    deletion_timestamp: Option<IgnoredAny>,
    owner_references: Vec<OwnerReference>,
}

/// The termination of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodTermination {
    pub(super) cause: TerminationCause,
    pub(super) kind: WorkloadKind,
    /// The workload, or what is known of it: the ReplicaSet, or the pod itself.
    pub(super) owner: Owner,
}

/// Why a pod terminates, as metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(super) enum TerminationCause {
    /// By the eviction API, as by `kubectl drain`.
    Eviction,
    /// For a pod of higher priority.
    Preemption,
    /// By its node: for lack of a resource, or since the node shuts down.
    Kubelet,
    /// By a `NoExecute` taint of its node.
    Taint,
    /// By a rollout, a smaller scale or a user, or since its containers have completed.
    Deletion,
    /// The pod could not be read, or has another reason.
    Unknown,
}

/// The kind of the workload of a pod, as metrics name it: a ReplicaSet's owner counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantNames)]
pub(super) enum WorkloadKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    /// A pod without a controller.
    Pod,
    /// One of another API group.
    #[strum(serialize = "other")]
    Other,
    /// The pod, or its ReplicaSet, could not be read.
    #[strum(serialize = "unknown")]
    Unknown,
}

// === impl OwnedObject ===

impl OwnedObject {
    /// Returns true for the object of this pod; one with another UID replaced it.
    fn is_of(&self, pod: &PodIdentity) -> bool {
        self.metadata.uid == pod.uid
    }

    /// Returns true if this is the pod's object, and nothing terminates the pod: then it has no drain.
    ///
    /// The kubelet reports the phase of a pod that it terminates by itself, such as a completed one, only after its
    /// last container: until then, its containers have terminated and its sidecars have not.
    /// <https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/status/status_manager.go> (`mergePodStatus`)
    pub(super) fn keeps_running(&self, pod: &PodIdentity) -> bool {
        let status = &self.status;
        let is_finished = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
        let containers = || status.container_statuses.iter().flatten();
        let is_terminated = |it: &ContainerStatus| {
            let state = it.state.as_ref();
            state.is_some_and(|state| state.terminated.is_some())
        };
        let is_complete = containers().next().is_some() && containers().all(is_terminated);
        let is_terminating = self.metadata.deletion_timestamp.is_some()
            || self.disruption().is_some()
            || is_finished
            || is_complete;
        self.is_of(pod) && !is_terminating
    }

    /// The condition of a pod that is about to be terminated.
    /// <https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions>
    fn disruption(&self) -> Option<&PodCondition> {
        let mut conditions = self.status.conditions.iter().flatten();
        conditions
            .find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")
    }

    /// The kind and the workload of this object, which is `itself`: its controller, or itself if it has none, or one
    /// that no API server could have set.
    fn workload(&self, itself: Owner) -> (WorkloadKind, Owner) {
        let mut references = self.metadata.owner_references.iter();
        let Some(controller) = references.find(|owner| owner.controller == Some(true)) else {
            return (WorkloadKind::of(&itself), itself);
        };
        let OwnerReference {
            api_version,
            kind,
            name,
            uid,
            ..
        } = controller.clone();
        let owner = Owner {
            api_version,
            kind,
            namespace: itself.namespace.clone(),
            name,
            uid,
        };
        let kind = WorkloadKind::of(&owner);
        let can_be_owner = owner.can_own_pods() || kind == WorkloadKind::Deployment;
        if owner.is_valid() && can_be_owner {
            (kind, owner)
        } else {
            (WorkloadKind::Other, itself)
        }
    }
}

// === impl PodIdentity ===

impl From<&PodIdentity> for Owner {
    /// The pod as the object of an Event.
    fn from(pod: &PodIdentity) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }
}

// === impl PodTermination ===

impl PodTermination {
    /// The termination of a pod, as far as it is known without the pod's ReplicaSet. `object` is `None` if the pod
    /// could not be read; one with another UID replaced it.
    pub(super) fn new(pod: &PodIdentity, object: Option<&OwnedObject>) -> Self {
        let itself = Owner::from(pod);
        let Some(object) = object.filter(|object| object.is_of(pod)) else {
            return Self {
                cause: TerminationCause::Unknown,
                kind: WorkloadKind::Unknown,
                owner: itself,
            };
        };
        let (kind, owner) = match object.workload(itself) {
            // Until the ReplicaSet's owner is known.
            (WorkloadKind::ReplicaSet, owner) => (WorkloadKind::Unknown, owner),
            known => known,
        };
        Self {
            cause: TerminationCause::of(object),
            kind,
            owner,
        }
    }

    /// The ReplicaSet whose owner is not known.
    pub(super) fn replica_set(&self) -> Option<&Owner> {
        let is_replica_set = WorkloadKind::of(&self.owner) == WorkloadKind::ReplicaSet;
        Some(&self.owner).filter(|_| is_replica_set)
    }

    /// Adds the pod's ReplicaSet; `None` if it could not be read.
    pub(super) fn add_replica_set(&mut self, object: Option<&OwnedObject>) {
        if let Some(object) = object.filter(|object| object.metadata.uid == self.owner.uid) {
            (self.kind, self.owner) = object.workload(self.owner.clone());
        }
    }
}

// === impl TerminationCause ===

impl TerminationCause {
    /// The cause, by the pod's condition.
    fn of(pod: &OwnedObject) -> Self {
        let Some(disruption) = pod.disruption() else {
            return Self::Deletion;
        };
        match disruption.reason.as_deref() {
            Some("EvictionByEvictionAPI") => Self::Eviction,
            Some("PreemptionByScheduler") => Self::Preemption,
            Some("TerminationByKubelet") => Self::Kubelet,
            Some("DeletionByTaintManager") => Self::Taint,
            _ => Self::Unknown,
        }
    }
}

// === impl WorkloadKind ===

impl WorkloadKind {
    /// The kind of a pod, or of the controller of a pod or ReplicaSet.
    fn of(owner: &Owner) -> Self {
        match (owner.group(), &*owner.kind) {
            ("", "Pod") => Self::Pod,
            ("apps", "Deployment") => Self::Deployment,
            ("apps", "ReplicaSet") => Self::ReplicaSet,
            ("apps", "StatefulSet") => Self::StatefulSet,
            ("apps", "DaemonSet") => Self::DaemonSet,
            ("batch", "Job") => Self::Job,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(metadata: &Value, status: &Value) -> OwnedObject {
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn identity() -> PodIdentity {
        PodIdentity {
            namespace: "shop".to_owned(),
            name: "edge-1".to_owned(),
            uid: "7".to_owned(),
        }
    }

    fn owned_by(uid: &str, api_version: &str, kind: &str, name: &str) -> OwnedObject {
        let owners = json!([
            {"apiVersion": "example.com/v1", "kind": "Shop", "name": "s", "uid": "1"},
            {"apiVersion": api_version, "kind": kind, "name": name, "uid": "8", "controller": true},
        ]);
        object(&json!({"uid": uid, "ownerReferences": owners}), &json!({}))
    }

    #[test]
    fn cause_is_the_reason_of_the_disruption() {
        let condition = |status: &str, reason: &str| {
            json!([
                {"type": "Ready", "status": "True"},
                {"type": "DisruptionTarget", "status": status, "reason": reason},
            ])
        };
        for (conditions, want) in [
            (json!([]), "deletion"),
            (condition("True", "EvictionByEvictionAPI"), "eviction"),
            (condition("True", "PreemptionByScheduler"), "preemption"),
            (condition("True", "TerminationByKubelet"), "kubelet"),
            (condition("True", "DeletionByTaintManager"), "taint"),
            (condition("True", "DeletionByPodGC"), "unknown"),
            (condition("False", "EvictionByEvictionAPI"), "deletion"),
        ] {
            let pod = object(&json!({"uid": "7"}), &json!({"conditions": conditions}));
            let termination = PodTermination::new(&identity(), Some(&pod));
            assert_eq!(<&str>::from(termination.cause), want, "{conditions}");
        }
    }

    #[test]
    fn pod_that_nothing_terminates_keeps_running() {
        let state = |state: &str| json!({"name": "envoy", "state": {state: {}}});
        let (running, terminated) = (state("running"), state("terminated"));
        let disrupted =
            |status: &str| json!({"conditions": [{"type": "DisruptionTarget", "status": status}]});
        let deleted = json!({"uid": "7", "deletionTimestamp": "2026-01-02T10:01:15Z"});
        let own = json!({"uid": "7"});
        for (metadata, status, want) in [
            (&own, json!({}), true),
            (
                &own,
                json!({"phase": "Running", "containerStatuses": [running]}),
                true,
            ),
            (
                &own,
                json!({"containerStatuses": [running, terminated]}),
                true,
            ),
            (&own, disrupted("False"), true),
            (
                &json!({"uid": "7", "deletionTimestamp": null}),
                json!({}),
                true,
            ),
            (&deleted, json!({"phase": "Running"}), false),
            (&own, disrupted("True"), false),
            (&own, json!({"phase": "Failed"}), false),
            (&own, json!({"phase": "Succeeded"}), false),
            // A Job's pod whose native sidecars are being terminated.
            (
                &own,
                json!({"phase": "Running", "containerStatuses": [terminated]}),
                false,
            ),
            // Another pod of this name.
            (&json!({"uid": "9"}), json!({}), false),
        ] {
            let object = object(metadata, &status);
            assert_eq!(
                object.keeps_running(&identity()),
                want,
                "{metadata} {status}"
            );
        }
    }

    #[test]
    fn pod_that_is_not_readable_is_unknown() {
        for other in [None, Some(owned_by("9", "apps/v1", "DaemonSet", "d"))] {
            let termination = PodTermination::new(&identity(), other.as_ref());
            assert_eq!(termination.cause, TerminationCause::Unknown);
            assert_eq!(termination.kind, WorkloadKind::Unknown);
            let owner = &termination.owner;
            assert_eq!(
                (&*owner.kind, &*owner.name, &*owner.uid),
                ("Pod", "edge-1", "7")
            );
        }
    }

    #[test]
    fn owner_is_the_controller_of_the_pod_or_its_replica_set() {
        let pod = |api_version, kind, name| owned_by("7", api_version, kind, name);
        let set = |api_version, kind, name| Some(owned_by("8", api_version, kind, name));
        let of_set = || pod("apps/v1", "ReplicaSet", "edge-7f");
        let path = "../secrets/ca";
        for (pod, set, kind, owner) in [
            (
                object(&json!({"uid": "7"}), &json!({})),
                None,
                "Pod",
                "Pod edge-1",
            ),
            (
                pod("apps/v1", "StatefulSet", "s"),
                None,
                "StatefulSet",
                "StatefulSet s",
            ),
            (
                pod("apps/v1", "DaemonSet", "d"),
                None,
                "DaemonSet",
                "DaemonSet d",
            ),
            (pod("batch/v1", "Job", "j"), None, "Job", "Job j"),
            (pod("example.com/v1", "Edge", "e"), None, "other", "Edge e"),
            (
                pod("example.com/v1", "DaemonSet", "e"),
                None,
                "other",
                "DaemonSet e",
            ),
            // Of a mirror pod, and forged ones.
            (pod("v1", "Node", "n"), None, "other", "Pod edge-1"),
            (
                pod("apps/v1", "DaemonSet", path),
                None,
                "other",
                "Pod edge-1",
            ),
            (of_set(), None, "unknown", "ReplicaSet edge-7f"),
            (
                pod("apps/v1", "ReplicaSet", path),
                None,
                "other",
                "Pod edge-1",
            ),
            (
                of_set(),
                set("apps/v1", "Deployment", "edge"),
                "Deployment",
                "Deployment edge",
            ),
            (
                of_set(),
                set("argoproj.io/v1alpha1", "Rollout", "edge"),
                "other",
                "Rollout edge",
            ),
            (
                of_set(),
                set("v1", "Secret", "ca"),
                "other",
                "ReplicaSet edge-7f",
            ),
            (
                of_set(),
                Some(object(&json!({"uid": "8"}), &json!({}))),
                "ReplicaSet",
                "ReplicaSet edge-7f",
            ),
            // Another ReplicaSet of this name.
            (
                of_set(),
                Some(owned_by("9", "apps/v1", "Deployment", "edge")),
                "unknown",
                "ReplicaSet edge-7f",
            ),
        ] {
            let mut termination = PodTermination::new(&identity(), Some(&pod));
            let is_of_set = termination.replica_set().is_some();
            assert!(is_of_set || set.is_none(), "{pod:?}");
            if is_of_set {
                termination.add_replica_set(set.as_ref());
            }
            let Owner {
                kind: found, name, ..
            } = &termination.owner;
            assert_eq!(format!("{found} {name}"), owner, "{pod:?} {set:?}");
            assert_eq!(<&str>::from(termination.kind), kind, "{pod:?} {set:?}");
        }
    }
}
