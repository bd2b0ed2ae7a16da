//! Which pods ask for a drainer and have none, and why; and what has become of those that have one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::namespaces::Namespaces;
use super::owner::{anew, owner};
use super::point::{About, Point, Section};
use super::words::{count, has, names};
use crate::admission::annotations::{INJECT, INJECTION, STATUS};
use crate::admission::{
    CONTAINER_NAME, Code, Defaults, Facts, Notice, PodView, Verdict, mutate, skipped_for, token,
};
use crate::kubernetes::Unseen;

/// What kubelets say of an image that they do not have.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go>
const PULLING: [&str; 4] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
];

/// What decides about pods.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// What the webhook injects.
    pub defaults: &'a Defaults,
    /// The image of its drainers, if it is known.
    pub image: Option<&'a str>,
    /// When the webhook was installed.
    pub since: Option<&'a Time>,
    /// The namespaces, if they could be seen.
    pub namespaces: Option<&'a Namespaces>,
}

/// The pods of a cluster, as far as they are any business of ours.
#[derive(Debug)]
pub struct Pods<'a> {
    judge: Judge<'a>,
    /// How many have a drainer.
    injected: usize,
    /// What is to be said of whose pods.
    found: BTreeMap<(Finding, About), Alike>,
}

/// A number of pods alike.
#[derive(Debug)]
struct Alike {
    many: usize,
    /// The name of the first.
    one: String,
}

/// What is to be said of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    /// Its drainer, of this image, does not run, and why.
    NotRunning { image: String, reason: String },
    /// It asks and has no drainer.
    Without(Why),
    /// Its drainer has another image than new ones.
    OtherImage(String),
}

/// Why a pod that asks has no drainer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// Its namespace has not opted in.
    NotOptedIn,
    /// Its namespace has, and is left out.
    LeftOut,
    /// It was skipped, or would be, and why and what to do.
    Skipped(String, Option<&'static str>),
    /// It was skipped, and would not be now.
    SkippedOnce(Code),
    /// It was there before the webhook.
    Older,
    /// Nobody was asked about it.
    NotSeen,
}

// === impl Pods ===

impl<'a> Pods<'a> {
    /// None yet.
    #[must_use]
    pub fn new(judge: Judge<'a>) -> Self {
        Self {
            judge,
            injected: 0,
            found: BTreeMap::new(),
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
        let finding = match drainer(pod) {
            Some(drainer) => {
                self.injected += 1;
                self.judge.injected(pod, drainer)
            }
            None => self.judge.without(pod).map(Finding::Without),
        };
        if let Some(finding) = finding {
            let alike = self.found.entry((finding, owner(&pod.metadata)));
            let alike = alike.or_insert_with(|| Alike {
                many: 0,
                one: pod.metadata.name.clone().unwrap_or_default(),
            });
            alike.many += 1;
        }
    }

    /// Judges them. `unseen` says why some, or all, are not among them.
    #[must_use]
    pub fn section(&self, unseen: Option<&Unseen>) -> Section {
        let drainers = match self.injected {
            0 => "no pod has a drainer yet".to_owned(),
            many => format!("{} {} a drainer", count(many, "pod"), has(many)),
        };
        let mut points = Vec::new();
        if unseen.is_none() || self.injected > 0 {
            points.push(Point::ok("injected", drainers));
        }
        points.extend(
            unseen.map(|unseen| Point::unknown("pods", "what there is of other pods", unseen)),
        );
        for ((finding, owner), alike) in &self.found {
            points.extend(self.judge.point(finding, owner, alike));
        }
        points.extend(self.other_images());
        Section {
            name: "pods",
            points,
        }
    }

    /// What is to be said of drainers that are not the newest: a line an image, since there are many of
    /// them after each upgrade.
    fn other_images(&self) -> Vec<Point> {
        let mut images: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
        for ((finding, owner), alike) in &self.found {
            if let Finding::OtherImage(image) = finding {
                let (many, owners) = images.entry(image).or_default();
                *many += alike.many;
                owners.push(owner.to_string());
            }
        }
        let point = |(image, (many, owners)): (&str, (usize, Vec<String>))| {
            let message = format!(
                "{} of {} {} the drainer {image}, which goes on to work; new pods get {}",
                count(many, "pod"),
                names(owners.iter().map(String::as_str)),
                has(many),
                self.judge.image.unwrap_or_default()
            );
            Point::warning("other-image", message).remedy("roll them when it suits you")
        };
        images.into_iter().map(point).collect()
    }
}

// === impl Judge ===

impl Judge<'_> {
    fn injected(&self, pod: &Pod, drainer: &Container) -> Option<Finding> {
        let image = drainer.image.as_deref().unwrap_or_default();
        if let Some(reason) = waiting(pod) {
            return Some(Finding::NotRunning {
                image: image.to_owned(),
                reason: reason.to_owned(),
            });
        }
        let is_new = self.image.is_none_or(|new| new == image);
        (!is_new).then(|| Finding::OtherImage(image.to_owned()))
    }

    /// `None` for a pod that does not ask.
    fn without(&self, pod: &Pod) -> Option<Why> {
        let annotations = pod.metadata.annotations.as_ref()?;
        annotations.get(INJECT)?;
        let namespace = pod.metadata.namespace.as_deref();
        let verdict = self.verdict(pod, namespace)?;
        let status = annotations.get(STATUS).map(|status| skipped_for(status));
        let told = |notice: &Notice| Why::Skipped(notice.to_string(), notice.remedy());
        if status.is_none()
            && let Some(why) = self.not_asked_about(namespace)
        {
            return Some(why);
        }
        Some(match (verdict, status) {
            (Verdict::NotAsked, _) => return None,
            (Verdict::Skip { reason, .. }, _) => told(&reason),
            (Verdict::Deny { reasons, .. }, _) => told(reasons.first()?),
            (Verdict::Inject { .. }, Some(Some(code))) => Why::SkippedOnce(code),
            (Verdict::Inject { .. }, Some(None) | None) => {
                let created = pod.metadata.creation_timestamp.as_ref();
                match self.since.zip(created) {
                    Some((since, created)) if created.0 < since.0 => Why::Older,
                    _ => Why::NotSeen,
                }
            }
        })
    }

    /// What would become of a pod if it were made now.
    fn verdict(&self, pod: &Pod, namespace: Option<&str>) -> Option<Verdict> {
        let json = serde_json::to_string(pod).ok()?;
        let view = PodView::decode(&json).ok()?;
        let facts = Facts {
            namespace,
            in_job: false,
            token: token(&[]),
        };
        Some(mutate(&view, &facts, self.defaults))
    }

    fn not_asked_about(&self, namespace: Option<&str>) -> Option<Why> {
        let (namespaces, namespace) = self.namespaces.zip(namespace)?;
        if namespaces.asked.contains(namespace) {
            return None;
        }
        let mut left_out = namespaces.left_out.iter();
        Some(match left_out.any(|(name, _)| name == namespace) {
            true => Why::LeftOut,
            false => Why::NotOptedIn,
        })
    }

    /// `None` for what is said of many owners at once.
    fn point(&self, finding: &Finding, owner: &About, alike: &Alike) -> Option<Point> {
        const WITHOUT: &str = "without-drainer";
        let Alike { many, one } = alike;
        let pods = match &*owner.kind {
            "Pod" => format!("{owner} has"),
            _ => format!("{} of {owner} {}", count(*many, "pod"), has(*many)),
        };
        let namespace = owner.namespace.as_deref().unwrap_or_default();
        let asks = |why: &str| Point::warning(WITHOUT, format!("{pods} no drainer: {why}"));
        let point = match finding {
            Finding::OtherImage(_) => return None,
            Finding::NotRunning { image, reason } => {
                let message = format!("{pods} a drainer that does not run: {reason}");
                let point = Point::error("not-running", message);
                if PULLING.contains(&&**reason) {
                    point.remedy(format!(
                        "the node cannot pull {image}: see `image` in the chart's values; pods need pull secrets of their own"
                    ))
                    .command(format!("kubectl describe pod {one} --namespace {namespace}"))
                } else {
                    point.command(format!(
                        "kubectl logs {one} --container {CONTAINER_NAME} --namespace {namespace}"
                    ))
                }
            }
            Finding::Without(Why::NotOptedIn) => {
                let label =
                    format!("kubectl label namespace {namespace} {INJECTION}=enabled --overwrite");
                anew(asks("the namespace has not opted in").command(label), owner)
            }
            Finding::Without(Why::LeftOut) => {
                asks("API servers do not ask about pods of this namespace, though it has the label")
            }
            Finding::Without(Why::Skipped(why, None)) => asks(why),
            Finding::Without(Why::Skipped(why, Some(remedy))) => asks(why).remedy(*remedy),
            Finding::Without(Why::SkippedOnce(code)) => {
                let why = format!("skipped when made ({code}), and would get one now");
                anew(asks(&why), owner)
            }
            Finding::Without(Why::Older) => anew(asks("older than the installation"), owner),
            Finding::Without(Why::NotSeen) => {
                let why = "made while the webhook was away, or before the namespace had the label";
                anew(asks(why), owner)
            }
        };
        Some(point.about(owner.clone()))
    }
}

fn drainer(pod: &Pod) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    let mut containers = init.chain(&spec.containers);
    containers.find(|container| container.name == CONTAINER_NAME)
}

/// Why a pod's drainer does not run, if it should.
fn waiting(pod: &Pod) -> Option<&str> {
    /// What every container goes through.
    const STARTING: [&str; 2] = ["PodInitializing", "ContainerCreating"];
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let plain = status.container_statuses.iter().flatten();
    let is_ours = |status: &&ContainerStatus| status.name == CONTAINER_NAME;
    let status = init.chain(plain).find(is_ours)?;
    let reason = status.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
    (!STARTING.contains(&reason)).then_some(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Mark;
    use crate::check::selector::Requirement;

    const IMAGE: &str = "drainer:2";

    fn namespaces() -> Namespaces {
        let requirement = |key: &str, operator: &str, value: &str| Requirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: vec![value.to_owned()],
        };
        let mut namespaces = Namespaces::new(vec![
            requirement(INJECTION, "In", "enabled"),
            requirement("kubernetes.io/metadata.name", "NotIn", "infra"),
        ]);
        for (name, value) in [("shop", "enabled"), ("infra", "enabled"), ("default", "")] {
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

    fn waits(pod: &mut Value, reason: &str) {
        let state = json!({"waiting": {"reason": reason}});
        pod["status"]["initContainerStatuses"] = json!([{
            "name": CONTAINER_NAME, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        }]);
    }

    fn points(pods: impl IntoIterator<Item = Pod>) -> Vec<Point> {
        let namespaces = namespaces();
        let since: Time = serde_json::from_value(json!("2026-01-02T00:00:00Z")).unwrap();
        let defaults = Defaults::new(IMAGE, "infra");
        let mut all = Pods::new(Judge {
            defaults: &defaults,
            image: Some(IMAGE),
            since: Some(&since),
            namespaces: Some(&namespaces),
        });
        pods.into_iter().for_each(|pod| all.add(&pod));
        all.section(None).points
    }

    #[test]
    fn why_a_pod_has_no_drainer_is_told() {
        type Change = fn(&mut Value);
        let table: [(Change, &str); 9] = [
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
                "API servers do not ask about pods of this namespace, though it has the label",
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
            let told = points([pod(change)]);
            let namespace = told[1].about.as_ref().unwrap().namespace.clone();
            let whose = format!("1 pod of Deployment {}/edge", namespace.unwrap());
            assert_eq!(told[1].message, format!("{whose} has no drainer: {why}"));
            assert_eq!(told[1].mark, Mark::Warning);
        }
    }

    #[test]
    fn drainers_that_do_not_run_or_are_not_the_newest_are_told() {
        let table = [
            (pod(|pod| with_drainer(pod, IMAGE)), None),
            (
                pod(|pod| with_drainer(pod, "drainer:1")),
                Some((Mark::Warning, "other-image")),
            ),
            (
                pod(|pod| {
                    with_drainer(pod, "drainer:1");
                    waits(pod, "ImagePullBackOff");
                }),
                Some((Mark::Error, "not-running")),
            ),
            (
                pod(|pod| {
                    with_drainer(pod, IMAGE);
                    waits(pod, "PodInitializing");
                }),
                None,
            ),
        ];
        for (pod, want) in table {
            let told = points([pod.clone()]);
            assert_eq!(told[0].message, "1 pod has a drainer");
            let found = told.get(1).map(|point| (point.mark, point.name));
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
            let told = points([pod(change)]);
            assert_eq!(told.len(), 1, "{told:?}");
        }
        assert_eq!(points([Pod::default()]).len(), 1);
    }

    #[test]
    fn pods_alike_of_one_owner_are_counted() {
        let alone = pod(|pod| pod["metadata"]["ownerReferences"] = json!(null));
        let older = pod(|pod| pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z"));
        let told = points([pod(|_| {}), alone, older, pod(|_| {})]);
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
        let told = points([
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
