//! The workload whose pods are disrupted.

use admission::{WorkloadObject, objects};
use anyhow::{anyhow, ensure};
use ctl::cli::object_arg::ObjectArg;
use ctl::restart::RESTARTABLE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::core::Selector;
use serde::Deserialize;
use serde_json::Value;

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
    /// `None` for a DaemonSet, and where it is 1 by default.
    replicas: Option<u32>,
    selector: LabelSelector,
    update_strategy: UpdateStrategy,
    /// Of a Deployment or an Argo Rollout.
    paused: bool,
    /// Of an Argo Rollout.
    restart_at: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct UpdateStrategy {
    r#type: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    /// A number, and of an Argo Rollout a string.
    observed_generation: Value,
    replicas: u32,
    updated_replicas: u32,
    available_replicas: u32,
    /// Of an Argo Rollout: the `restartAt` of the last restart that is complete.
    restarted_at: Option<Time>,
    // Of a DaemonSet.
    desired_number_scheduled: Option<u32>,
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

/// Parses the name of a workload, as in `deploy/edge`.
pub(super) fn parse_workload(text: &str) -> Result<ObjectArg, String> {
    let object = ObjectArg::parse(text).and_then(Result::ok);
    let is_workload = |ObjectArg { kind, .. }: &ObjectArg| {
        RESTARTABLE.contains(&&*kind.kind) || kind.group.contains('.')
    };
    object.filter(is_workload).ok_or_else(|| {
        format!(
            "`{text}` is no workload that replaces its pods: use deploy/NAME, sts/NAME, ds/NAME, rollout/NAME of \
             Argo, or KIND.VERSION.GROUP/NAME of a custom resource with `spec.selector` and `spec.template`"
        )
    })
}

// === impl Workload ===

impl Workload {
    /// Reads an object.
    ///
    /// # Errors
    /// If it has no pod template, or is of another shape.
    pub(super) fn read(object: Value) -> anyhow::Result<Self> {
        let has_template = |it: &WorkloadObject<'_>| it.template.is_some();
        ensure!(
            objects(&object).first().is_some_and(has_template),
            "it has no pod template at `spec.template`"
        );
        Ok(serde_json::from_value(object)?)
    }

    /// The selector of its pods.
    ///
    /// # Errors
    /// If its expressions are invalid, which no API server admits of a known kind, or it selects all pods.
    pub(super) fn selector(&self) -> anyhow::Result<Selector> {
        let selector = Selector::try_from(self.spec.selector.clone());
        let selector = selector.map_err(|error| anyhow!("the selector: {error}"))?;
        ensure!(!selector.selects_all(), "spec.selector has no matchLabels");
        Ok(selector)
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
        match status.desired_number_scheduled {
            None => PodCounts {
                desired: self.spec.replicas.unwrap_or(1),
                existing: status.replicas,
                updated: status.updated_replicas,
                available: status.available_replicas,
            },
            Some(desired) => PodCounts {
                desired,
                existing: desired,
                updated: status.updated_number_scheduled,
                available: status.number_available,
            },
        }
    }

    /// The last change that its controller has seen; `None` if its status does not say.
    pub(super) fn observed_generation(&self) -> Option<i64> {
        let it = &self.status.observed_generation;
        it.as_i64().or_else(|| it.as_str()?.parse().ok())
    }

    /// Whether its controller has seen its last change, and all its pods are of the current template and available.
    /// <https://github.com/kubernetes/kubectl/blob/master/pkg/polymorphichelpers/rollout_status.go>
    pub(super) fn is_complete(&self) -> bool {
        let (counts, restart) = (self.counts(), &self.spec.restart_at);
        self.observed_generation() >= Some(self.metadata.generation)
            && (restart.is_none() || *restart == self.status.restarted_at)
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
            ("rollout/a", "Rollout a"),
            ("CloneSet.v1alpha1.apps.kruise.io/a", "CloneSet a"),
        ] {
            assert_eq!(parse_workload(text).unwrap().to_string(), want);
        }
        for text in [
            "edge",
            "pod/edge",
            "rs/edge",
            "cloneset/edge",
            "deploy/",
            "deploy/a/b",
            "",
        ] {
            let error = parse_workload(text).unwrap_err();
            assert!(error.starts_with(&format!("`{text}` ")), "{error}");
            assert!(error.contains("KIND.VERSION.GROUP/NAME"), "{error}");
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

    /// A Rollout of Argo with two pods, changed.
    fn rollout(change: impl FnOnce(&mut Value)) -> Workload {
        let mut object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"generation": 7},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "edge"}},
                "template": {"spec": {"containers": []}},
            },
            "status": {
                "observedGeneration": "7", "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
            },
        });
        change(&mut object);
        Workload::read(object).unwrap()
    }

    #[test]
    fn argo_rollout_is_complete_once_its_restart_is() {
        type Change = fn(&mut Value);
        let table: [(Change, bool); 9] = [
            (|_| {}, true),
            (|it| it["status"]["observedGeneration"] = json!("6"), false),
            // Of an early Argo, whose status has a hash.
            (
                |it| it["status"]["observedGeneration"] = json!("7d4f"),
                false,
            ),
            (|it| it["status"]["observedGeneration"] = json!(7), true),
            (|it| it["status"] = json!({}), false),
            (|it| it["status"]["updatedReplicas"] = json!(1), false),
            (
                |it| it["spec"]["restartAt"] = json!("2026-01-02T10:00:00Z"),
                false,
            ),
            (
                |it| {
                    it["spec"]["restartAt"] = json!("2026-01-02T10:00:00Z");
                    it["status"]["restartedAt"] = json!("2026-01-01T10:00:00Z");
                },
                false,
            ),
            (
                |it| {
                    it["spec"]["restartAt"] = json!("2026-01-02T11:00:00+01:00");
                    it["status"]["restartedAt"] = json!("2026-01-02T10:00:00Z");
                },
                true,
            ),
        ];
        for (row, (change, want)) in table.into_iter().enumerate() {
            assert_eq!(rollout(change).is_complete(), want, "row {row}");
        }
        let one = rollout(|it| it["spec"]["replicas"] = json!(null));
        assert_eq!(one.counts().desired, 1);
    }

    #[test]
    fn what_a_drill_cannot_tell_is_an_error() {
        let unknown = rollout(|it| it["status"] = json!({"replicas": 2}));
        assert_eq!(unknown.observed_generation(), None);
        // A DeploymentConfig's selector is a map.
        for selector in [json!({}), json!({"app": "edge"})] {
            let error = rollout(|it| it["spec"]["selector"] = selector).selector();
            assert!(error.unwrap_err().to_string().contains("matchLabels"));
        }
        assert!(rollout(|_| {}).selector().is_ok());
        let of_deployment = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
            "spec": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "edge"}},
        });
        let error = Workload::read(of_deployment).unwrap_err().to_string();
        assert_eq!(error, "it has no pod template at `spec.template`");
    }
}
