//! Which pods ask for a drainer and have none, and why; and what has become of those that have one.

mod diagnose;

pub use diagnose::PodDiagnoser;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use self::diagnose::Diagnosis;
use super::owner::owner;
use super::report::{CheckResult, Section, Subject};
use super::text::{has_or_have, join, plural};
use crate::kubernetes::ReadError;

/// The pods of a cluster, as far as they are any business of ours.
#[derive(Debug)]
pub struct Pods<'a> {
    diagnoser: PodDiagnoser<'a>,
    /// How many have a drainer.
    injected: usize,
    /// What is to be said of whose pods.
    groups: BTreeMap<(Diagnosis, Subject), PodGroup>,
}

/// A number of pods alike.
#[derive(Debug)]
struct PodGroup {
    count: usize,
    /// The name of the first.
    first: String,
}

// === impl Pods ===

impl<'a> Pods<'a> {
    /// None yet.
    #[must_use]
    pub fn new(judge: PodDiagnoser<'a>) -> Self {
        Self {
            diagnoser: judge,
            injected: 0,
            groups: BTreeMap::new(),
        }
    }

    /// Takes one more into account. One that has ended or is going is nobody's business any more.
    pub fn add(&mut self, pod: &Pod) {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        if has_ended || pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        self.injected += usize::from(diagnose::drainer(pod).is_some());
        if let Some(finding) = self.diagnoser.diagnose(pod) {
            let alike = self.groups.entry((finding, owner("Pod", &pod.metadata)));
            let alike = alike.or_insert_with(|| PodGroup {
                count: 0,
                first: pod.metadata.name.clone().unwrap_or_default(),
            });
            alike.count += 1;
        }
    }

    /// Judges them. `unseen` says why some, or all, are not among them.
    #[must_use]
    pub fn section(&self, error: Option<&ReadError>) -> Section {
        let drainers = match self.injected {
            0 => "no pod has a drainer yet".to_owned(),
            many => format!("{} {} a drainer", plural(many, "pod"), has_or_have(many)),
        };
        let mut points = Vec::new();
        if error.is_none() || self.injected > 0 {
            points.push(CheckResult::ok("injected", drainers));
        }
        points.extend(
            error.map(|unseen| CheckResult::unknown("pods", "what there is of other pods", unseen)),
        );
        for ((finding, owner), alike) in &self.groups {
            points.extend(self.diagnoser.check_result(finding, owner, alike));
        }
        points.extend(self.other_images());
        Section {
            name: "pods",
            results: points,
        }
    }

    /// What is to be said of drainers that are not the newest: a line an image, since there are many of
    /// them after each upgrade.
    fn other_images(&self) -> Vec<CheckResult> {
        let mut images: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
        for ((finding, owner), alike) in &self.groups {
            if let Diagnosis::OtherImage(image) = finding {
                let (many, owners) = images.entry(image).or_default();
                *many += alike.count;
                owners.push(owner.to_string());
            }
        }
        let point = |(image, (many, owners)): (&str, (usize, Vec<String>))| {
            let message = format!(
                "{} of {} {} the drainer {image}, which goes on to work; new pods get {}",
                plural(many, "pod"),
                join(owners.iter().map(String::as_str)),
                has_or_have(many),
                self.diagnoser.image.unwrap_or_default()
            );
            CheckResult::warning("other-image", message).remedy("roll them when it suits you")
        };
        images.into_iter().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::settings::keys::{INJECT, INJECTION, STATUS};
    use crate::admission::{CONTAINER_NAME, Defaults};
    use crate::check::Severity;
    use crate::check::namespaces::Namespaces;
    use crate::check::selector::Requirement;

    const IMAGE: &str = "drainer:2";

    fn namespaces() -> Namespaces {
        let requirement = |key: &str, operator: &str, values: &[&str]| Requirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|&value| value.to_owned()).collect(),
        };
        let mut namespaces = Namespaces::new(vec![
            requirement(INJECTION, "In", &["enabled"]),
            requirement(
                "kubernetes.io/metadata.name",
                "NotIn",
                &["kube-system", "infra", "bank", "vault"],
            ),
        ]);
        for (name, value) in [
            ("shop", "enabled"),
            ("infra", "enabled"),
            ("kube-system", ""),
            ("bank", "enabled"),
            ("vault", ""),
            ("default", ""),
        ] {
            let labels = json!({INJECTION: value, "kubernetes.io/metadata.name": name});
            let metadata = json!({"name": name, "labels": labels});
            namespaces.add(serde_json::from_value(metadata).unwrap());
        }
        namespaces
    }

    /// A pod of the Deployment `edge` that asks and was made after the installation, changed.
    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": "edge-5b4977cc78-2sv4r",
                "namespace": "shop",
                "creationTimestamp": "2026-01-02T00:00:01Z",
                "annotations": {INJECT: "true"},
                "labels": {"pod-template-hash": "5b4977cc78"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "edge-5b4977cc78",
                    "uid": "1",
                    "controller": true,
                }],
            },
            "spec": {"containers": [{"name": "envoy"}]},
            "status": {"phase": "Running"},
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    fn with_drainer(pod: &mut Value, image: &str) {
        pod["spec"]["initContainers"] = json!([{"name": CONTAINER_NAME, "image": image}]);
    }

    fn set_waiting(pod: &mut Value, reason: &str) {
        let state = json!({"waiting": {"reason": reason}});
        pod["status"]["initContainerStatuses"] = json!([{
            "name": CONTAINER_NAME, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }]);
    }

    fn results(pods: impl IntoIterator<Item = Pod>) -> Vec<CheckResult> {
        let namespaces = namespaces();
        let since: Time = serde_json::from_value(json!("2026-01-02T00:00:00Z")).unwrap();
        let defaults = Defaults::new(IMAGE, "infra");
        let mut all = Pods::new(PodDiagnoser {
            defaults: &defaults,
            image: Some(IMAGE),
            installed_at: Some(&since),
            namespaces: Some(&namespaces),
        });
        pods.into_iter().for_each(|pod| all.add(&pod));
        all.section(None).results
    }

    #[test]
    fn why_a_pod_has_no_drainer_is_told() {
        type Change = fn(&mut Value);
        let table: [(Change, &str); 13] = [
            (
                |_| {},
                "made while the webhook was away, or before the namespace had the label",
            ),
            (
                |pod| pod["metadata"]["creationTimestamp"] = json!("2026-01-01T23:59:59Z"),
                "older than the installation",
            ),
            (
                |pod| pod["metadata"]["namespace"] = json!("default"),
                "the namespace has not opted in",
            ),
            (
                |pod| pod["metadata"]["namespace"] = json!("infra"),
                "DRN003: pods in `infra`, envoy-drainer's own namespace, are never changed",
            ),
            (
                |pod| pod["metadata"]["namespace"] = json!("kube-system"),
                "DRN002: pods in `kube-system` are never changed",
            ),
            (
                |pod| {
                    pod["metadata"]["namespace"] = json!("default");
                    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("a");
                },
                "DRN005: the pod mirrors a static pod",
            ),
            (
                |pod| pod["metadata"]["namespace"] = json!("bank"),
                "API servers leave its namespace out: they ask where `kubernetes.io/metadata.name NotIn (kube-system, infra, bank, vault)`",
            ),
            (
                |pod| pod["metadata"]["namespace"] = json!("vault"),
                "API servers leave its namespace out: they ask where `kubernetes.io/metadata.name NotIn (kube-system, infra, bank, vault)`",
            ),
            (
                |pod| {
                    pod["metadata"]["annotations"][STATUS] = json!(r#"{"skipped":"DRN008"}"#);
                    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {}});
                },
                "DRN008: container `envoy` has a preStop hook already",
            ),
            (
                |pod| pod["metadata"]["annotations"][STATUS] = json!(r#"{"skipped":"DRN008"}"#),
                "skipped when made (DRN008), and would get one now",
            ),
            (
                |pod| pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "windows"}),
                "DRN004: the pod runs on Windows",
            ),
            (
                |pod| {
                    pod["metadata"]["annotations"]["envoy-drainer.dev/drain-timeout"] = json!("9")
                },
                "DRN020: `envoy-drainer.dev/drain-timeout`: invalid duration `9`: write it like 90s, 1m30s or 400ms",
            ),
            (
                |pod| pod["metadata"]["annotations"][INJECT] = json!("yes"),
                "DRN020: `envoy-drainer.dev/inject`: invalid value `yes`: \"true\" asks for a drainer, \"false\" does not",
            ),
        ];
        for (change, why) in table {
            let told = results([pod(change)]);
            let namespace = told[1].subject.as_ref().unwrap().namespace.clone();
            let whose = format!("1 pod of Deployment {}/edge", namespace.unwrap());
            assert_eq!(told[1].message, format!("{whose} has no drainer: {why}"));
            assert_eq!(told[1].severity, Severity::Warning);
            let labels = told[1]
                .commands
                .iter()
                .any(|command| command.contains(" label "));
            assert_eq!(labels, why == "the namespace has not opted in");
        }
    }

    #[test]
    fn a_namespace_is_labelled_before_its_pods_are_made_anew() {
        let alone = pod(|pod| {
            pod["metadata"]["namespace"] = json!("default");
            pod["metadata"]["ownerReferences"] = json!(null);
        });
        let told = results([alone]);
        let remedy = "label the namespace, then delete the pod and make it anew";
        assert_eq!(told[1].remedy.as_deref(), Some(remedy));
        let label =
            "kubectl label namespace default envoy-drainer.dev/injection=enabled --overwrite";
        assert_eq!(told[1].commands, [label]);
    }

    #[test]
    fn drainers_that_do_not_run_or_are_not_the_newest_are_told() {
        let table = [
            (pod(|pod| with_drainer(pod, IMAGE)), None),
            (
                pod(|pod| with_drainer(pod, "drainer:1")),
                Some((Severity::Warning, "other-image")),
            ),
            (
                pod(|pod| {
                    with_drainer(pod, "drainer:1");
                    set_waiting(pod, "ImagePullBackOff");
                }),
                Some((Severity::Error, "not-running")),
            ),
            (
                pod(|pod| {
                    with_drainer(pod, IMAGE);
                    set_waiting(pod, "PodInitializing");
                }),
                None,
            ),
        ];
        for (pod, want) in table {
            let told = results([pod.clone()]);
            assert_eq!(told[0].message, "1 pod has a drainer");
            let found = told.get(1).map(|point| (point.severity, point.name));
            assert_eq!(found, want, "{pod:?}");
        }
    }

    #[test]
    fn pods_that_do_not_ask_or_have_ended_are_nobodys_business() {
        type Change = fn(&mut Value);
        let changes: [Change; 6] = [
            |pod| pod["metadata"]["annotations"] = json!({}),
            |pod| pod["metadata"]["annotations"] = json!(null),
            |pod| pod["metadata"]["annotations"][INJECT] = json!("false"),
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:01Z"),
            |pod| pod["status"]["phase"] = json!("Succeeded"),
            |pod| pod["status"]["phase"] = json!("Failed"),
        ];
        for change in changes {
            let told = results([pod(change)]);
            assert_eq!(told.len(), 1, "{told:?}");
        }
        assert_eq!(results([Pod::default()]).len(), 1);
    }

    #[test]
    fn pods_alike_of_one_owner_are_counted() {
        let alone = pod(|pod| pod["metadata"]["ownerReferences"] = json!(null));
        let older = pod(|pod| pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z"));
        let told = results([pod(|_| {}), alone, older, pod(|_| {})]);
        let told: Vec<_> = told
            .iter()
            .filter_map(|point| point.message.split_once(" no drainer: "))
            .map(|(whose, _)| whose)
            .collect();
        let want = [
            "1 pod of Deployment shop/edge has",
            "2 pods of Deployment shop/edge have",
            "Pod shop/edge-5b4977cc78-2sv4r has",
        ];
        assert_eq!(told, want);
    }

    #[test]
    fn drainers_that_are_not_the_newest_share_a_line() {
        let old = |name: &str| {
            let name = name.to_owned();
            pod(move |pod| {
                with_drainer(pod, "drainer:1");
                pod["metadata"]["ownerReferences"][0]["name"] = json!(name);
            })
        };
        let told = results([
            old("b-5b4977cc78"),
            old("a-5b4977cc78"),
            old("a-5b4977cc78"),
        ]);
        assert_eq!(
            told[1].message,
            "3 pods of `Deployment shop/a`, `Deployment shop/b` have the drainer drainer:1, which goes on to work; new pods get drainer:2"
        );
        assert_eq!(told.len(), 2);
    }
}
