//! ReplicaSets whose pods are denied or rejected, so that there is no pod to diagnose. Other controllers report
//! rejections by Events alone.

use std::collections::BTreeMap;

use admission::keys::INJECT;
use admission::{misplaced, objects};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use kubernetes::ReadError;

use super::dry_run::{in_one_line, unreachable_remedy};
use super::namespaces::Namespaces;
use super::pods::is_requested;
use super::report::CheckResult;
use crate::object_name::{ObjectName, owner_name};

/// The ReplicaSets of a cluster whose pods are rejected, or whose annotations have no effect.
#[derive(Debug, Default)]
pub struct ReplicaSets<'a> {
    /// The namespaces of the cluster, if known.
    namespaces: Option<&'a Namespaces>,
    /// About the rejection of pods that request a drainer, by owner.
    rejections: BTreeMap<ObjectName, CheckResult>,
    /// About annotations that have no effect, by owner and message, since several ReplicaSets of an owner have them.
    misplaced: BTreeMap<(ObjectName, String), CheckResult>,
}

// === impl ReplicaSets ===

impl<'a> ReplicaSets<'a> {
    /// No ReplicaSets yet, of a cluster with these namespaces.
    pub fn new(namespaces: Option<&'a Namespaces>) -> Self {
        Self {
            namespaces,
            ..Self::default()
        }
    }

    /// Adds a ReplicaSet, unless it is scaled to 0, as those of earlier revisions are.
    pub fn add(&mut self, replica_set: &ReplicaSet) {
        let replicas = replica_set.spec.as_ref().and_then(|spec| spec.replicas);
        if replicas == Some(0) || replica_set.metadata.deletion_timestamp.is_some() {
            return;
        }
        let owner = owner_name("ReplicaSet", &replica_set.metadata);
        let warning = |name, message: &str, remedy: Option<&str>| {
            CheckResult::warning(name, message)
                .with_optional_remedy(remedy)
                .with_subject(owner.clone())
        };
        if let Some(rejection) = create_failure(replica_set) {
            let remedy = unreachable_remedy(&rejection);
            let message = format!("{owner} gets no new pods: {}", in_one_line(&rejection));
            let rejections = self.rejections.entry(owner.clone());
            rejections.or_insert_with(|| warning("denied", &message, remedy));
        }
        // It copies its Deployment's annotations; one that is removed there stays here until a rollout.
        let json = serde_json::to_value(replica_set).unwrap_or_default();
        let injects_all = Namespaces::injects_all(self.namespaces, owner.namespace.as_deref());
        let objects = objects(&json);
        for annotation in objects.iter().flat_map(|it| misplaced(it, injects_all)) {
            let diagnostic = annotation.diagnostic;
            let message = format!("{owner}: {diagnostic}");
            let result = warning("astray", &message, diagnostic.remedy());
            self.misplaced.insert((owner.clone(), message), result);
        }
    }

    /// The results. `error` says why ReplicaSets are missing.
    pub fn results(&self, error: Option<&ReadError>) -> Vec<CheckResult> {
        let unknown =
            error.map(|error| CheckResult::unknown("denied", "whether pods are rejected", error));
        let found = self.rejections.values().chain(self.misplaced.values());
        unknown.into_iter().chain(found.cloned()).collect()
    }
}

/// Why a ReplicaSet cannot create pods, if they request a drainer and it cannot.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/replicaset/replica_set_utils.go>
fn create_failure(replica_set: &ReplicaSet) -> Option<String> {
    let template = replica_set.spec.as_ref()?.template.as_ref()?;
    let annotations = template.metadata.as_ref()?.annotations.as_ref()?;
    if !is_requested(annotations.get(INJECT)) {
        return None;
    }
    let is_failure = |condition: &&ReplicaSetCondition| {
        condition.type_ == "ReplicaFailure"
            && condition.status == "True"
            && condition.reason.as_deref() == Some("FailedCreate")
    };
    let mut conditions = replica_set.status.as_ref()?.conditions.iter().flatten();
    conditions.find(is_failure)?.message.clone()
}

#[cfg(test)]
mod tests {
    use kubernetes::api_call;
    use serde_json::{Value, json};

    use admission::Code;
    use admission::keys::INJECTION;

    use super::*;
    use crate::check::dry_run::UNREACHABLE_REMEDY;
    use crate::check::installation::PODS_ENTRY;
    use crate::check::webhook_configuration::ALL;

    const QUOTA: &str = r#"pods "edge-5b49-2sv4r" is forbidden: exceeded quota: small"#;

    /// Messages and remedies for a ReplicaSet of the Deployment `edge` that requests a drainer and is
    /// rejected for this reason; changed.
    fn results(reason: &str, change: impl FnOnce(&mut Value)) -> Vec<(String, Option<String>)> {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "edge", "uid": "1", "controller": true,
        });
        let condition = json!({
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": reason,
        });
        let mut replica_set = json!({
            "metadata": {"name": "edge-5b49", "namespace": "shop", "ownerReferences": [owner]},
            "spec": {
                "replicas": 2,
                "selector": {},
                "template": {
                    "metadata": {"annotations": {INJECT: "true"}},
                    "spec": {"containers": [{"name": "envoy"}]},
                },
            },
            "status": {"replicas": 0, "conditions": [condition]},
        });
        change(&mut replica_set);
        let mut blocked = ReplicaSets::default();
        blocked.add(&serde_json::from_value(replica_set).unwrap());
        let results = blocked.results(None).into_iter();
        results
            .map(|result| (result.message, result.remedy))
            .collect()
    }

    #[test]
    fn rejections_are_reported_with_a_remedy_for_failed_calls() {
        let denial = Code::SocketNotMounted.diagnostic("no volume at `/run`");
        let ours = format!(r#"admission webhook "{PODS_ENTRY}" denied the request: {denial:#}"#);
        let uncalled = format!(r#"failed calling webhook "{PODS_ENTRY}": connection refused"#);
        let table = [
            (&*ours, None),
            (&*uncalled, Some(UNREACHABLE_REMEDY)),
            (QUOTA, None),
        ];
        for (rejection, remedy) in table {
            let message = format!("Deployment shop/edge gets no new pods: {rejection}");
            let want = (message, remedy.map(ToOwned::to_owned));
            assert_eq!(results(rejection, |_| {}), [want]);
        }
    }

    #[test]
    fn replica_sets_without_request_or_rejection_are_ignored() {
        type Change = fn(&mut Value);
        let changes: [Change; 7] = [
            |set| set["spec"]["template"]["metadata"] = json!(null),
            |set| set["spec"]["template"]["metadata"]["annotations"][INJECT] = json!("false"),
            |set| set["spec"]["replicas"] = json!(0),
            |set| set["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:01Z"),
            |set| set["status"]["conditions"][0]["status"] = json!("False"),
            |set| set["status"]["conditions"][0]["reason"] = json!("FailedDelete"),
            |set| set["status"] = json!(null),
        ];
        for (row, change) in changes.into_iter().enumerate() {
            assert_eq!(results(QUOTA, change), [], "row {row}");
        }
    }

    #[test]
    fn misplaced_annotations_are_reported() {
        type Change = fn(&mut Value);
        let table: [(Change, &str); 3] = [
            (
                |set| set["metadata"]["annotations"] = json!({INJECT: "true"}),
                "DRN059: `envoy-drainer.dev/inject` in metadata.annotations will not reach pods: move to spec.template.metadata.annotations",
            ),
            (
                |set| {
                    set["spec"]["template"]["metadata"]["annotations"] =
                        json!({"envoy-drainer.dev/drain-timeout": "90s"});
                },
                "DRN060: `envoy-drainer.dev/drain-timeout` is set, but no `inject` requests a drainer",
            ),
            (
                |set| {
                    set["spec"]["template"]["metadata"]["annotations"] =
                        json!({"envoy-drainer.dev/injct": "true"});
                },
                "DRN050: unknown annotation `envoy-drainer.dev/injct`: did you mean `inject`?",
            ),
        ];
        for (change, want) in table {
            let found = results("", |set| {
                set["status"] = json!(null);
                set["spec"]["template"]["metadata"]["annotations"] = json!({});
                change(set);
            });
            let messages: Vec<_> = found.into_iter().map(|(message, _)| message).collect();
            assert_eq!(messages, [format!("Deployment shop/edge: {want}")]);
        }
    }

    #[test]
    fn settings_alone_have_an_effect_in_a_namespace_that_requests_drainers_for_all() {
        let mut namespaces = Namespaces::default();
        let labels = json!({"name": "shop", "labels": {INJECTION: ALL}});
        namespaces.add(serde_json::from_value(labels).unwrap());
        for (annotation, want) in [
            ("envoy-drainer.dev/drain-timeout", 0),
            ("envoy-drainer.dev/drain-timeuot", 1),
        ] {
            let replica_set = json!({
                "metadata": {"name": "edge", "namespace": "shop"},
                "spec": {"selector": {}, "template": {"metadata": {"annotations": {annotation: "90s"}}}},
            });
            let mut found = ReplicaSets::new(Some(&namespaces));
            found.add(&serde_json::from_value(replica_set).unwrap());
            assert_eq!(found.results(None).len(), want, "{annotation}");
        }
    }

    #[test]
    fn unreadable_replica_sets_are_unknown_and_not_blocking() {
        let error = ReadError::Forbidden(api_call("list", "replicasets", None));
        let results = ReplicaSets::default().results(Some(&error));
        assert_eq!(
            results[0].message,
            "whether pods are rejected is unknown: forbidden: list replicasets"
        );
        assert!(!results[0].is_blocking);
    }
}
