//! Which pods request a drainer and have none, and which drainers do not run or are outdated.

mod diagnose;

pub use diagnose::PodDiagnoser;
pub(super) use diagnose::is_requested;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kubernetes::ReadError;

use self::diagnose::Diagnosis;
use super::report::{CheckResult, Section};
use crate::object_name::{ObjectName, owner_name};
use crate::pod_status::drainer;
use crate::text::{has_or_have, plural};

/// The pods of a cluster that request a drainer or have one.
#[derive(Debug)]
pub struct Pods<'a> {
    diagnoser: PodDiagnoser<'a>,
    /// How many have a drainer.
    injected: usize,
    /// The names of pods, by diagnosis and workload.
    groups: BTreeMap<(Diagnosis, ObjectName), Vec<String>>,
}

// === impl Pods ===

impl<'a> Pods<'a> {
    /// No pods yet.
    pub fn new(diagnoser: PodDiagnoser<'a>) -> Self {
        Self {
            diagnoser,
            injected: 0,
            groups: BTreeMap::new(),
        }
    }

    /// Adds a pod. Finished and terminating pods are ignored.
    pub fn add(&mut self, pod: &Pod) {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        let is_finished = matches!(phase, Some("Succeeded" | "Failed"));
        if is_finished || pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        self.injected += usize::from(drainer(pod).is_some());
        let owner = owner_name("Pod", &pod.metadata);
        if let Some(diagnosis) = self.diagnoser.diagnose(pod) {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let group = self.groups.entry((diagnosis, owner));
            group.or_default().push(name);
        }
    }

    /// The results. `error` says why pods are missing.
    pub fn section(&self, error: Option<&ReadError>) -> Section {
        let mut results = Vec::new();
        if error.is_none() || self.injected > 0 {
            let message = match self.injected {
                0 => "no pod has a drainer yet".to_owned(),
                count => format!("{} {} a drainer", plural(count, "pod"), has_or_have(count)),
            };
            results.push(CheckResult::ok("injected", message));
        }
        let unknown = |error| CheckResult::unknown("pods", "the state of other pods", error);
        results.extend(error.map(unknown));
        for ((diagnosis, owner), pods) in &self.groups {
            results.push(diagnosis.check_result(owner, pods));
        }
        Section::new("pods", results)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::core::Expression;
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Severity;
    use crate::check::namespaces::Namespaces;
    use admission::keys::{INJECT, INJECTION, PREFIX, STATUS};
    use admission::{
        CONTAINER_NAME, Code, Decision, Defaults, OnInvalid, PodContext, PodSettings, PodView,
        Settings, decide, token,
    };

    const IMAGE: &str = "drainer:2";

    fn namespaces() -> Namespaces {
        let text = str::to_owned;
        let excluded = ["kube-system", "infra", "bank", "vault"].map(text);
        let mut namespaces = Namespaces::new(vec![
            Expression::In(text(INJECTION), [text("enabled")].into()),
            Expression::NotIn(text("kubernetes.io/metadata.name"), excluded.into()),
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

    /// A pod of the Deployment `edge` that requests a drainer, created after the installation; changed.
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
        results_in(Some(&namespaces()), pods)
    }

    fn results_in(
        namespaces: Option<&Namespaces>,
        pods: impl IntoIterator<Item = Pod>,
    ) -> Vec<CheckResult> {
        results_with(&Defaults::new(IMAGE, "infra"), namespaces, pods)
    }

    fn results_with(
        defaults: &Defaults,
        namespaces: Option<&Namespaces>,
        pods: impl IntoIterator<Item = Pod>,
    ) -> Vec<CheckResult> {
        let since: Time = serde_json::from_value(json!("2026-01-02T00:00:00Z")).unwrap();
        let mut all = Pods::new(PodDiagnoser {
            load_balancers: &[],
            defaults,
            installed_at: Some(&since),
            namespaces,
        });
        pods.into_iter().for_each(|pod| all.add(&pod));
        all.section(None).results
    }

    #[test]
    fn cause_of_missing_drainer_is_reported() {
        type Change = fn(&mut Value);
        const EXCLUDED: &str = "the webhook configuration excludes its namespace: it requires `kubernetes.io/metadata.name notin (bank,infra,kube-system,vault)`";
        let table: [(Change, &str); 14] = [
            (
                |_| {},
                "created while the webhook was unavailable, or before the namespace was labeled",
            ),
            (
                |pod| pod["metadata"]["creationTimestamp"] = json!("2026-01-01T23:59:59Z"),
                "created before the installation",
            ),
            (
                |pod| pod["metadata"]["namespace"] = json!("default"),
                "the namespace has not opted in",
            ),
            (
                |pod| pod["metadata"]["namespace"] = json!("infra"),
                EXCLUDED,
            ),
            (
                |pod| pod["metadata"]["namespace"] = json!("kube-system"),
                EXCLUDED,
            ),
            (|pod| pod["metadata"]["namespace"] = json!("bank"), EXCLUDED),
            (
                |pod| pod["metadata"]["namespace"] = json!("vault"),
                EXCLUDED,
            ),
            (
                |pod| {
                    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("a");
                },
                "DRN005: the pod mirrors a static pod",
            ),
            (
                |pod| pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {}}),
                "DRN008: container `envoy` has a preStop hook already",
            ),
            (
                // What is recorded counts, whatever would be decided now.
                |pod| {
                    pod["metadata"]["namespace"] = json!("default");
                    pod["metadata"]["annotations"][STATUS] = json!(r#"{"skipped":"DRN008"}"#);
                },
                "DRN008: Envoy's container has a preStop hook already",
            ),
            (
                |pod| pod["metadata"]["annotations"][STATUS] = json!("{}"),
                "DRN011: `envoy-drainer.dev/status` records a drainer, but the pod has none",
            ),
            (
                |pod| pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "windows"}),
                "DRN004: the pod runs on Windows",
            ),
            (
                |pod| {
                    pod["metadata"]["annotations"]["envoy-drainer.dev/drain-timeout"] = json!("9")
                },
                "DRN020: `envoy-drainer.dev/drain-timeout`: invalid duration `9`: expected a duration such as 90s, 1m30s or 400ms",
            ),
            (
                |pod| pod["metadata"]["annotations"][INJECT] = json!("yes"),
                "DRN020: `envoy-drainer.dev/inject`: invalid value `yes`: \"true\" requests a drainer, \"false\" does not",
            ),
        ];
        for (change, cause) in table {
            let result = &results([pod(change)])[1];
            let namespace = result.subject.as_ref().unwrap().namespace.clone();
            let pods = format!("1 pod of Deployment {}/edge", namespace.unwrap());
            assert_eq!(result.message, format!("{pods} has no drainer: {cause}"));
            assert_eq!(result.severity, Severity::Warning);
            let labels = result
                .commands
                .iter()
                .any(|command| command.contains(" label "));
            assert_eq!(labels, cause == "the namespace has not opted in");
        }
    }

    #[test]
    fn excluded_namespaces_have_codes_where_selection_is_unknown() {
        for (namespace, cause) in [
            (
                "infra",
                "DRN003: pods in `infra`, envoy-drainer's own namespace, are never changed",
            ),
            (
                "kube-system",
                "DRN002: pods in `kube-system` are never changed",
            ),
        ] {
            let pod = pod(|pod| pod["metadata"]["namespace"] = json!(namespace));
            let result = &results_in(None, [pod])[1];
            assert!(result.message.ends_with(cause), "{result:?}");
        }
    }

    #[test]
    fn recorded_code_has_its_remedy_and_the_pod_is_recreated() {
        let skipped = |owners: Option<Value>| {
            pod(|pod| {
                pod["metadata"]["annotations"][STATUS] = json!(r#"{"skipped":"DRN008"}"#);
                if let Some(owners) = owners {
                    pod["metadata"]["ownerReferences"] = owners;
                }
            })
        };
        let remedy = Code::ExistingHook.remedy();
        let result = &results([skipped(None)])[1];
        assert_eq!(result.remedy.as_deref(), Some(remedy));
        let restart = "kubectl rollout restart deployment edge --namespace shop";
        assert_eq!(result.commands, [restart]);
        let result = &results([skipped(Some(json!(null)))])[1];
        let remedy = format!("{remedy}, then delete the pod and create it again");
        assert_eq!(result.remedy, Some(remedy));
    }

    #[test]
    fn namespace_is_labeled_before_pods_are_recreated() {
        let alone = pod(|pod| {
            pod["metadata"]["namespace"] = json!("default");
            pod["metadata"]["ownerReferences"] = json!(null);
        });
        let result = &results([alone])[1];
        let remedy = "label the namespace, then delete the pod and create it again";
        assert_eq!(result.remedy.as_deref(), Some(remedy));
        let label =
            "kubectl label namespace default envoy-drainer.dev/injection=enabled --overwrite";
        assert_eq!(result.commands, [label]);
    }

    /// A remedy that comes first, or pods that nothing restarts, are left to the user.
    #[test]
    fn workload_whose_restart_is_enough_is_named() {
        type Change = fn(&mut Value);
        let table: [(Change, bool); 7] = [
            (|_| {}, true),
            (
                |pod| pod["metadata"]["creationTimestamp"] = json!("2026-01-01T23:59:59Z"),
                true,
            ),
            (|pod| with_drainer(pod, "drainer:1"), true),
            (
                |pod| {
                    with_drainer(pod, IMAGE);
                    pod["metadata"]["annotations"]["envoy-drainer.dev/drain-timout"] = json!("9s");
                },
                false,
            ),
            (|pod| pod["metadata"]["namespace"] = json!("default"), false),
            (
                |pod| pod["metadata"]["annotations"][STATUS] = json!(r#"{"skipped":"DRN008"}"#),
                false,
            ),
            (
                |pod| {
                    with_drainer(pod, "drainer:1");
                    pod["metadata"]["ownerReferences"] = json!(null);
                },
                false,
            ),
        ];
        for (row, (change, want)) in table.into_iter().enumerate() {
            let result = &results([pod(change)])[1];
            let deployment = ObjectName::new("Deployment", Some("shop"), "edge");
            assert_eq!(result.restart, want.then_some(deployment), "row {row}");
            assert!(!want || result.commands[0].starts_with("kubectl rollout restart"));
        }
    }

    #[test]
    fn waiting_and_outdated_drainers_are_reported() {
        let table = [
            (pod(|pod| with_drainer(pod, IMAGE)), None),
            (
                pod(|pod| with_drainer(pod, "drainer:1")),
                Some((Severity::Warning, "drainer")),
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
            (
                pod(|pod| {
                    with_drainer(pod, "drainer:1");
                    pod["metadata"]["annotations"]["envoy-drainer.dev/drain-timout"] = json!("9s");
                }),
                Some((Severity::Warning, "drainer")),
            ),
        ];
        for (pod, want) in table {
            let results = results([pod.clone()]);
            assert_eq!(results[0].message, "1 pod has a drainer");
            let found = results.get(1).map(|result| (result.severity, result.name));
            assert_eq!(found, want, "{pod:?}");
        }
    }

    /// The pod as admission injects it with the built-in defaults, with these annotations.
    fn injected(annotations: &[(&str, &str)]) -> Pod {
        let pod = pod(|pod| {
            for (name, value) in annotations {
                pod["metadata"]["annotations"][format!("{PREFIX}{name}")] = json!(value);
            }
        });
        let mut pod = serde_json::to_value(pod).unwrap();
        let json = pod.to_string();
        let view = PodView::decode(&json).unwrap();
        let context = PodContext::new(Some("shop"), token(b""));
        let decision = decide(&view, &context, &Defaults::new(IMAGE, "infra"));
        let Decision::Inject { patch, .. } = decision else {
            panic!("{decision:?}");
        };
        json_patch::patch(&mut pod, &patch.operations()).unwrap();
        serde_json::from_value(pod).unwrap()
    }

    fn changed(mut pod: Pod, change: impl FnOnce(&mut Pod)) -> Pod {
        change(&mut pod);
        pod
    }

    /// An installation whose values were changed: the maximum of `drain-timeout`, and the default of `idle-exit`.
    fn changed_values() -> Defaults {
        let mut values = PodSettings::default();
        values.drain.timing.idle_exit = Some(Duration::from_secs(20));
        let mut defaults = Defaults::new(IMAGE, "infra");
        defaults.settings = Settings::try_new(values).unwrap();
        defaults.maxima.drain_timeout = Duration::from_secs(70);
        defaults
    }

    #[test]
    fn effects_of_changed_values_on_new_pods_are_told() {
        const DENIED: &str = "new pods are denied: DRN020: `envoy-drainer.dev/drain-timeout`: 90s: the installation's maximum is 70s";
        const CAPPED: &str = "its `drain-timeout` is 90s, and new pods get 70s";
        const IDLE_EXIT: &str = "its `idle-exit` is 7s, and new pods get 20s";
        const NEW_IMAGE: &str =
            "its image is drainer:2, which keeps working; new pods get drainer:3";
        let with_image = |image: &str| Defaults {
            image: image.to_owned(),
            ..changed_values()
        };
        let warn = Defaults {
            on_invalid: OnInvalid::Warn,
            ..changed_values()
        };
        let plain = || injected(&[]);
        let long = || injected(&[("drain-timeout", "90s")]);
        // By a later webhook. The default of `drain-timeout` would be longer with it.
        let patient = changed(plain(), |pod| {
            pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(300);
        });
        let unrecorded = changed(plain(), |pod| {
            pod.metadata.annotations.as_mut().unwrap().remove(STATUS);
        });
        let elsewhere = changed(plain(), |pod| {
            pod.metadata.namespace = Some("default".to_owned());
        });
        let table = [
            (with_image(IMAGE), plain(), &[IDLE_EXIT][..], true),
            (with_image(IMAGE), long(), &[DENIED], false),
            (warn, long(), &[CAPPED, IDLE_EXIT], true),
            (
                with_image("drainer:3"),
                plain(),
                &[NEW_IMAGE, IDLE_EXIT],
                true,
            ),
            (with_image("drainer:3"), long(), &[NEW_IMAGE, DENIED], false),
            (with_image(IMAGE), patient, &[IDLE_EXIT], true),
            (
                with_image(IMAGE),
                injected(&[("idle-exit", "7s")]),
                &[],
                false,
            ),
            (Defaults::new(IMAGE, "infra"), long(), &[], false),
            // It is unknown what the pod was like before, API servers do not call the webhook, or its values are unknown.
            (with_image(IMAGE), unrecorded, &[], false),
            (with_image(IMAGE), elsewhere, &[], false),
            (with_image(""), plain(), &[], false),
        ];
        for (row, (defaults, pod, notes, is_restarted)) in table.into_iter().enumerate() {
            let results = results_with(&defaults, Some(&namespaces()), [pod]);
            let pods = "1 pod of Deployment shop/edge has a drainer";
            let want = (!notes.is_empty()).then(|| format!("{pods}: {}", notes.join("; ")));
            let found = results.get(1);
            assert_eq!(found.map(|it| &it.message), want.as_ref(), "row {row}");
            let has_restart = found.is_some_and(|it| it.restart.is_some());
            assert_eq!(has_restart, is_restarted, "row {row}");
        }
    }

    /// New pods have neither when they are admitted.
    #[test]
    fn later_changes_of_a_pod_are_no_changed_values() {
        let annotated = changed(injected(&[]), |pod| {
            let annotations = pod.metadata.annotations.as_mut().unwrap();
            annotations.insert(format!("{PREFIX}idle-exit"), "9s".to_owned());
        });
        let with_port = changed(injected(&[("port", "15902")]), |pod| {
            let added = json!({"name": "mesh", "ports": [{"containerPort": 15902}]});
            let containers = &mut pod.spec.as_mut().unwrap().containers;
            containers.push(serde_json::from_value(added).unwrap());
        });
        for (pod, want) in [
            (annotated, "`idle-exit` is annotated 9s, and runs with 7s"),
            (with_port, "port 15902 belongs to container `mesh`"),
        ] {
            let result = &results_with(&changed_values(), Some(&namespaces()), [pod])[1];
            assert!(result.message.contains(want), "{result:?}");
            assert!(!result.message.contains("new pods"), "{result:?}");
        }
    }

    #[test]
    fn finished_pods_and_those_without_request_are_ignored() {
        type Change = fn(&mut Value);
        let changes: [Change; 7] = [
            |pod| pod["metadata"]["annotations"] = json!({}),
            |pod| pod["metadata"]["annotations"] = json!(null),
            |pod| pod["metadata"]["annotations"][INJECT] = json!("false"),
            |pod| {
                pod["metadata"]["annotations"] =
                    json!({INJECT: "false", STATUS: r#"{"skipped":"DRN008"}"#});
            },
            |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:01Z"),
            |pod| pod["status"]["phase"] = json!("Succeeded"),
            |pod| pod["status"]["phase"] = json!("Failed"),
        ];
        for change in changes {
            let results = results([pod(change)]);
            assert_eq!(results.len(), 1, "{results:?}");
        }
        assert_eq!(results([Pod::default()]).len(), 1);
    }

    #[test]
    fn pods_of_one_owner_and_cause_are_counted() {
        let alone = pod(|pod| pod["metadata"]["ownerReferences"] = json!(null));
        let older = pod(|pod| pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z"));
        let results = results([pod(|_| {}), alone, older, pod(|_| {})]);
        let pods: Vec<_> = results
            .iter()
            .filter_map(|result| result.message.split_once(" no drainer: "))
            .map(|(pods, _)| pods)
            .collect();
        let want = [
            "1 pod of Deployment shop/edge has",
            "2 pods of Deployment shop/edge have",
            "Pod shop/edge-5b4977cc78-2sv4r has",
        ];
        assert_eq!(pods, want);
    }
}
