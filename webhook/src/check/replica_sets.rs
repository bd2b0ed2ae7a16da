//! Whose pods are refused, so that there is none of them to look at. ReplicaSets tell; other controllers
//! do so by events alone.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use k8s_openapi::api::core::v1::Pod;

use super::dry_run::{DryRunOutcome, UNREACHABLE_REMEDY, outcome};
use super::owner::owner;
use super::pods::PodDiagnoser;
use super::report::{CheckResult, Subject};
use crate::admission::settings::keys::INJECT;
use crate::admission::{Decision, misplaced, objects};
use crate::kubernetes::ReadError;

/// The ReplicaSets of a cluster, as far as they are any business of ours.
#[derive(Debug)]
pub struct BlockedReplicaSets<'a> {
    diagnoser: PodDiagnoser<'a>,
    /// Those whose pods ask and are refused, and what the API server says.
    refusals: BTreeMap<Subject, String>,
    /// What counts for none of their pods, and what to do about it.
    misplaced: BTreeSet<(Subject, String, Option<&'static str>)>,
}

// === impl BlockedReplicaSets ===

impl<'a> BlockedReplicaSets<'a> {
    /// None yet.
    #[must_use]
    pub fn new(judge: PodDiagnoser<'a>) -> Self {
        Self {
            diagnoser: judge,
            refusals: BTreeMap::new(),
            misplaced: BTreeSet::new(),
        }
    }

    /// Takes one more into account. One that is to have no pods is of an earlier version.
    pub fn add(&mut self, set: &ReplicaSet) {
        let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
        if replicas == Some(0) || set.metadata.deletion_timestamp.is_some() {
            return;
        }
        let owner = owner("ReplicaSet", &set.metadata);
        if let Some(why) = create_failure(set).filter(|_| self.requests_injection(set)) {
            self.refusals.entry(owner.clone()).or_insert(why);
        }
        // It has its Deployment's annotations too, and keeps one that is taken away there until a rollout.
        let json = serde_json::to_value(set).unwrap_or_default();
        let stray = objects(&json).into_iter().flat_map(|set| misplaced(&set));
        self.misplaced.extend(stray.map(|stray| {
            let notice = stray.diagnostic;
            (owner.clone(), notice.to_string(), notice.remedy())
        }));
    }

    fn requests_injection(&self, set: &ReplicaSet) -> bool {
        let template = set.spec.as_ref().and_then(|spec| spec.template.clone());
        let template = template.unwrap_or_default();
        let metadata = template.metadata.unwrap_or_default();
        let annotations = metadata.annotations.as_ref();
        if annotations.is_none_or(|annotations| !annotations.contains_key(INJECT)) {
            return false;
        }
        let pod = Pod {
            metadata,
            spec: template.spec,
            status: None,
        };
        let verdict = self
            .diagnoser
            .decision(&pod, set.metadata.namespace.as_deref());
        !matches!(verdict, None | Some(Decision::NotRequested))
    }

    /// Judges them. `unseen` says why some, or all, are not among them.
    #[must_use]
    pub fn results(&self, error: Option<&ReadError>) -> Vec<CheckResult> {
        let unseen =
            error.map(|unseen| CheckResult::unknown("refused", "whether pods are refused", unseen));
        let refused = self.refusals.iter().map(|(owner, why)| {
            let (why, remedy) = match outcome(Err(why.clone())) {
                Ok(DryRunOutcome::Denied {
                    reason: why,
                    remedy,
                }) => (why, remedy),
                Ok(DryRunOutcome::WebhookCallFailed(why)) => (why, Some(UNREACHABLE_REMEDY)),
                Ok(_) | Err(_) => (why.clone(), None),
            };
            let message = format!("{owner} gets no new pods: {why}");
            let point = CheckResult::warning("refused", message).subject(owner.clone());
            match remedy {
                Some(remedy) => point.remedy(remedy),
                None => point,
            }
        });
        let astray = self.misplaced.iter().map(|(owner, why, remedy)| {
            let point =
                CheckResult::warning("astray", format!("{owner}: {why}")).subject(owner.clone());
            match remedy {
                Some(remedy) => point.remedy(*remedy),
                None => point,
            }
        });
        unseen.into_iter().chain(refused).chain(astray).collect()
    }
}

/// Why new pods of a ReplicaSet are refused, if they are.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/replicaset/replica_set_utils.go>
fn create_failure(set: &ReplicaSet) -> Option<String> {
    let is_refusal = |condition: &&ReplicaSetCondition| {
        condition.type_ == "ReplicaFailure"
            && condition.status == "True"
            && condition.reason.as_deref() == Some("FailedCreate")
    };
    let mut conditions = set.status.as_ref()?.conditions.iter().flatten();
    conditions.find(is_refusal)?.message.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::{Code, Defaults};
    use crate::check::installation::PODS_ENTRY;
    use crate::kubernetes::ApiCall;

    const QUOTA: &str = r#"pods "edge-5b49-2sv4r" is forbidden: exceeded quota: small"#;

    /// What is told of a ReplicaSet of the Deployment `edge` that asks and is refused so, changed.
    fn results(why: &str, change: impl FnOnce(&mut Value)) -> Vec<(String, Option<String>)> {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "edge", "uid": "1", "controller": true,
        });
        let condition = json!({
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why,
        });
        let mut set = json!({
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
        change(&mut set);
        let defaults = Defaults::new("", "infra");
        let mut refused = BlockedReplicaSets::new(PodDiagnoser {
            defaults: &defaults,
            image: None,
            installed_at: None,
            namespaces: None,
        });
        refused.add(&serde_json::from_value(set).unwrap());
        let points = refused.results(None).into_iter();
        points.map(|point| (point.message, point.remedy)).collect()
    }

    #[test]
    fn whose_pods_are_refused_is_told_and_what_to_do_if_the_refusal_is_ours() {
        let notice = Code::SocketNotMounted.diagnostic("no volume at `/run`");
        let ours = format!(r#"admission webhook "{PODS_ENTRY}" denied the request: {notice:#}"#);
        let uncalled = format!(r#"failed calling webhook "{PODS_ENTRY}": connection refused"#);
        let remedy = Code::SocketNotMounted.remedy();
        let table = [
            (&*ours, "DRN023: no volume at `/run`", Some(remedy)),
            (&*uncalled, &*uncalled, Some(UNREACHABLE_REMEDY)),
            (QUOTA, QUOTA, None),
        ];
        for (why, told, remedy) in table {
            let message = format!("Deployment shop/edge gets no new pods: {told}");
            let want = (message, remedy.map(ToOwned::to_owned));
            assert_eq!(results(why, |_| {}), [want]);
        }
    }

    #[test]
    fn replica_sets_that_do_not_ask_or_are_not_refused_are_nobodys_business() {
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
        for (at, change) in changes.into_iter().enumerate() {
            assert_eq!(results(QUOTA, change), [], "row {at}");
        }
    }

    #[test]
    fn annotations_that_count_for_no_pod_are_told() {
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
            let told = results("", |set| {
                set["status"] = json!(null);
                set["spec"]["template"]["metadata"]["annotations"] = json!({});
                change(set);
            });
            let told: Vec<_> = told.into_iter().map(|(message, _)| message).collect();
            assert_eq!(told, [format!("Deployment shop/edge: {want}")]);
        }
    }

    #[test]
    fn whether_pods_are_refused_may_not_be_known() {
        let defaults = Defaults::new("", "infra");
        let refused = BlockedReplicaSets::new(PodDiagnoser {
            defaults: &defaults,
            image: None,
            installed_at: None,
            namespaces: None,
        });
        let unseen = ReadError::Forbidden(ApiCall {
            verb: "list",
            resource: "replicasets",
            namespace: None,
        });
        let points = refused.results(Some(&unseen));
        assert_eq!(
            points[0].message,
            "whether pods are refused is not known: you may not list replicasets"
        );
        assert!(!points[0].is_blocking);
    }
}
