//! The workload whose pods are disrupted.

use std::fmt;
use std::str::FromStr;

use anyhow::anyhow;
use ctl::cli::object_arg::ObjectArg;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{GroupVersionKind, Selector};
use serde::Deserialize;

/// The name of a workload, as in `deploy/edge`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkloadName {
    pub kind: WorkloadKind,
    pub name: String,
}

/// The kinds of workloads that replace their pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::EnumString)]
pub(super) enum WorkloadKind {
    Deployment,
    StatefulSet,
    DaemonSet,
}

/// What a workload says of its pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Workload {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    generation: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    /// `None` for a DaemonSet.
    replicas: Option<u32>,
    selector: LabelSelector,
    update_strategy: UpdateStrategy,
    /// Of a Deployment.
    paused: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct UpdateStrategy {
    r#type: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: i64,
    replicas: u32,
    updated_replicas: u32,
    available_replicas: u32,
    // Of a DaemonSet.
    desired_number_scheduled: u32,
    updated_number_scheduled: u32,
    number_available: u32,
}

/// How many pods a workload has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PodCounts {
    pub desired: u32,
    pub existing: u32,
    pub updated: u32,
    pub available: u32,
}

// === impl WorkloadName ===

impl WorkloadName {
    pub(super) fn group_version_kind(&self) -> GroupVersionKind {
        GroupVersionKind::gvk("apps", "v1", &self.kind.to_string())
    }
}

impl FromStr for WorkloadName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let workload = ObjectArg::parse(text).and_then(|parsed| {
            let ObjectArg { kind, name } = parsed.ok()?;
            let kind = kind.kind.parse().ok()?;
            Some(Self { kind, name })
        });
        let invalid =
            || format!("`{text}` is no workload such as deploy/edge, sts/edge or ds/edge");
        workload.ok_or_else(invalid)
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

// === impl WorkloadKind ===

impl WorkloadKind {
    /// The resource in the terms of RBAC.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
        }
    }
}

// === impl Workload ===

impl Workload {
    /// The selector of its pods.
    ///
    /// # Errors
    /// If its expressions are invalid, which no API server admits.
    pub(super) fn selector(&self) -> anyhow::Result<Selector> {
        let selector = Selector::try_from(self.spec.selector.clone());
        selector.map_err(|error| anyhow!("the selector: {error}"))
    }

    /// Whether it replaces no pod by itself when its template changes.
    pub(super) fn updates_on_delete(&self) -> bool {
        self.spec.update_strategy.r#type == "OnDelete"
    }

    /// Whether it is paused, so that no change replaces a pod.
    pub(super) fn is_paused(&self) -> bool {
        self.spec.paused
    }

    pub(super) fn counts(&self) -> PodCounts {
        let status = &self.status;
        match self.spec.replicas {
            Some(desired) => PodCounts {
                desired,
                existing: status.replicas,
                updated: status.updated_replicas,
                available: status.available_replicas,
            },
            None => PodCounts {
                desired: status.desired_number_scheduled,
                existing: status.desired_number_scheduled,
                updated: status.updated_number_scheduled,
                available: status.number_available,
            },
        }
    }

    /// Whether its controller has seen its last change, and all its pods are of the current template and available.
    /// <https://github.com/kubernetes/kubectl/blob/master/pkg/polymorphichelpers/rollout_status.go>
    pub(super) fn is_complete(&self) -> bool {
        let counts = self.counts();
        self.status.observed_generation >= self.metadata.generation
            && [counts.existing, counts.updated, counts.available] == [counts.desired; 3]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_have_a_kind_of_kubectl() {
        for (text, want) in [
            ("deploy/edge", "Deployment edge"),
            ("deployment/edge", "Deployment edge"),
            ("Deployments.apps/edge", "Deployment edge"),
            ("sts/a", "StatefulSet a"),
            ("ds/a", "DaemonSet a"),
        ] {
            assert_eq!(text.parse::<WorkloadName>().unwrap().to_string(), want);
        }
        for text in ["edge", "pod/edge", "deploy/", "deploy/a/b", ""] {
            let error = text.parse::<WorkloadName>().unwrap_err();
            assert!(error.starts_with(&format!("`{text}` ")), "{error}");
        }
    }

    #[test]
    fn workload_is_complete_once_all_pods_are_new_and_available() {
        let deployment = |observed: i64, replicas: u32, updated: u32, available: u32| {
            let object = json!({
                "metadata": {"generation": 2},
                "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "edge"}}},
                "status": {
                    "observedGeneration": observed, "replicas": replicas,
                    "updatedReplicas": updated, "availableReplicas": available,
                },
            });
            let workload: Workload = serde_json::from_value(object).unwrap();
            workload.is_complete()
        };
        assert!(deployment(2, 2, 2, 2));
        for (observed, replicas, updated, available) in
            [(1, 2, 2, 2), (2, 3, 2, 2), (2, 2, 1, 2), (2, 2, 2, 1)]
        {
            assert!(!deployment(observed, replicas, updated, available));
        }
        let daemon_set = json!({
            "metadata": {"generation": 1},
            "spec": {"selector": {}, "updateStrategy": {"type": "OnDelete"}},
            "status": {
                "observedGeneration": 1, "desiredNumberScheduled": 3,
                "updatedNumberScheduled": 3, "numberAvailable": 2,
            },
        });
        let daemon_set: Workload = serde_json::from_value(daemon_set).unwrap();
        assert!(!daemon_set.is_complete());
        assert!(daemon_set.updates_on_delete());
        assert_eq!(daemon_set.counts().available, 2);
    }
}
