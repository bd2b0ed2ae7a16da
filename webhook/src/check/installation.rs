//! Whether there is an installation, exactly one, and whether it runs.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::flags::UnreadFlags;
use super::point::{About, Point, Section};
use super::unseen::Unseen;
use super::words::names;

/// The entry of a webhook configuration by which an installation is known, whatever its release is
/// called.
pub const PODS_ENTRY: &str = "pods.envoy-drainer.dev";

/// What tells of pods that nobody asked about.
const POLICY_SUFFIX: &str = "-seen";

/// The name of the point that says whether there is one.
const FOUND: &str = "found";

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An installation, as API servers know it.
#[derive(Debug, Clone)]
pub struct Installation {
    /// The name of its webhook configuration, and of most else.
    pub name: String,
    /// When that was made.
    pub since: Option<Time>,
    /// The namespace of its Service.
    pub namespace: String,
    /// The name of its Service.
    pub service: String,
    /// The port of its Service that API servers call.
    pub port: i32,
    /// Its labels.
    labels: BTreeMap<String, String>,
    /// Its entries.
    pub entries: Vec<MutatingWebhook>,
    /// The names of other installations.
    others: Vec<String>,
}

/// What there is of an installation, or why that is not known.
#[derive(Debug)]
pub struct Parts {
    /// Where API servers call.
    pub service: Result<Option<Service>, Unseen>,
    /// What runs behind it.
    pub deployment: Result<Option<Deployment>, Unseen>,
    /// Its pods.
    pub pods: Result<Vec<Pod>, Unseen>,
    /// Whether its policy is there, and bound.
    pub policy: Result<bool, Unseen>,
}

/// The installation that API servers ask first, or that of the configuration called `chosen`.
///
/// # Errors
/// When there is none: a point that says so.
pub fn find(
    configurations: Vec<MutatingWebhookConfiguration>,
    chosen: Option<&str>,
) -> Result<Installation, Box<Point>> {
    let mut found: Vec<_> = configurations.into_iter().filter_map(read).collect();
    // The order in which API servers ask.
    // <https://github.com/kubernetes/apiserver/blob/master/pkg/admission/configuration/mutating_webhook_manager.go>
    found.sort_by(|one, other| one.name.cmp(&other.name));
    let all: Vec<_> = found.iter().map(|found| found.name.clone()).collect();
    let wanted = |found: &Installation| chosen.is_none_or(|chosen| chosen == found.name);
    match found.into_iter().find(wanted) {
        Some(found) => Ok(Installation {
            others: all.into_iter().filter(|name| *name != found.name).collect(),
            ..found
        }),
        None => Err(Box::new(not_found(chosen, &all))),
    }
}

fn not_found(chosen: Option<&str>, all: &[String]) -> Point {
    let Some(chosen) = chosen else {
        return Point::error(FOUND, "envoy-drainer is not installed in this cluster")
            .remedy("install its chart")
            .command(
                "helm install envoy-drainer charts/envoy-drainer --namespace envoy-drainer --create-namespace",
            );
    };
    let message =
        format!("no MutatingWebhookConfiguration `{chosen}` has the entry `{PODS_ENTRY}`");
    let point = Point::error(FOUND, message);
    match all {
        [] => point,
        all => point.remedy(format!(
            "there is {}",
            names(all.iter().map(String::as_str))
        )),
    }
}

/// `None` for one that is not the chart's: that one has API servers call a Service.
fn read(configuration: MutatingWebhookConfiguration) -> Option<Installation> {
    let entries = configuration.webhooks.unwrap_or_default();
    let pods = entries.iter().find(|entry| entry.name == PODS_ENTRY)?;
    let service = pods.client_config.service.clone()?;
    let ObjectMeta {
        name,
        labels,
        creation_timestamp,
        ..
    } = configuration.metadata;
    Some(Installation {
        name: name.unwrap_or_default(),
        since: creation_timestamp,
        namespace: service.namespace,
        service: service.name,
        // The default of the API.
        port: service.port.unwrap_or(443),
        labels: labels.unwrap_or_default(),
        entries,
        others: Vec::new(),
    })
}

/// Says that it cannot be known whether there is an installation.
#[must_use]
pub fn not_seen(unseen: &Unseen) -> Point {
    let message = format!("whether envoy-drainer is installed is not known: {unseen}");
    Point::error(FOUND, message)
        .remedy("ask somebody who may see the cluster's webhook configurations")
}

/// The port of a pod that a Service's port leads to.
#[must_use]
pub fn target_port(service: &Service, port: i32, pod: &Pod) -> Option<u16> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    let port = ports.iter().find(|known| known.port == port)?;
    let number = match port.target_port.as_ref() {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            ports
                .find(|port| port.name.as_ref() == Some(name))?
                .container_port
        }
    };
    number.try_into().ok()
}

/// Returns true if a pod answers, as its kubelet sees it.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

// === impl Installation ===

impl Installation {
    /// The name by which API servers call it.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// The name of its policy, and of the binding.
    #[must_use]
    pub fn policy(&self) -> String {
        format!("{}{POLICY_SUFFIX}", self.name)
    }

    /// The entry that asks about pods.
    #[must_use]
    pub fn pods_entry(&self) -> Option<&MutatingWebhook> {
        self.entries.iter().find(|entry| entry.name == PODS_ENTRY)
    }

    /// Judges what there is of it.
    #[must_use]
    pub fn section(&self, parts: &Parts, flags: Option<&UnreadFlags>) -> Section {
        let mut points = vec![self.found()];
        points.extend(self.several());
        points.extend(self.other_version(flags));
        points.extend(self.service(&parts.service));
        points.push(self.replicas(parts));
        points.push(self.failure_policy(&parts.policy));
        Section {
            name: "installation",
            points,
        }
    }

    fn label(&self, name: &str) -> Option<&str> {
        let key = format!("app.kubernetes.io/{name}");
        self.labels.get(&key).map(String::as_str)
    }

    fn found(&self) -> Point {
        let version = self.label("version").map(|version| format!(" {version}"));
        let release = self.label("instance").unwrap_or(&self.name);
        let message = format!(
            "envoy-drainer{} is the release `{release}` in the namespace `{}`",
            version.unwrap_or_default(),
            self.namespace
        );
        Point::ok(FOUND, message).about(About::of_cluster(
            "MutatingWebhookConfiguration",
            &self.name,
        ))
    }

    fn several(&self) -> Option<Point> {
        let [first, ..] = &self.others[..] else {
            return None;
        };
        let others = names(self.others.iter().map(String::as_str));
        let message = format!(
            "there are others, {others}: the first by name changes the pods of all, and only `{}` is looked at",
            self.name
        );
        let point = Point::warning("several", message)
            .remedy("uninstall all but one; to look at another")
            .command(format!(
                "envoy-drainer check --webhook-configuration {first}"
            ));
        Some(point)
    }

    fn other_version(&self, flags: Option<&UnreadFlags>) -> Option<Point> {
        const NAME: &str = "version";
        let installed = self.label("version").filter(|version| *version != VERSION);
        let message = match (installed, flags) {
            (None, None) => return None,
            (Some(installed), None) => {
                format!("this program is of version {VERSION}, the installation of {installed}")
            }
            (_, Some(unread)) => {
                format!("the webhook's flags are not those of this program, {VERSION}: {unread}")
            }
        };
        let remedy = "check with the program of the installation's version";
        Some(Point::warning(NAME, message).remedy(remedy))
    }

    fn service(&self, service: &Result<Option<Service>, Unseen>) -> Option<Point> {
        const NAME: &str = "service";
        match service {
            Ok(Some(_)) => None,
            Ok(None) => {
                let message = format!(
                    "there is no Service `{}` in the namespace `{}`, which API servers call",
                    self.service, self.namespace
                );
                Some(Point::error(NAME, message).remedy("upgrade or install the release again"))
            }
            Err(unseen) => Some(Point::unknown(
                NAME,
                "whether there is the Service that API servers call",
                unseen,
            )),
        }
    }

    fn replicas(&self, parts: &Parts) -> Point {
        const NAME: &str = "replicas";
        let deployment = match &parts.deployment {
            Ok(Some(deployment)) => deployment,
            Ok(None) => {
                let message = format!(
                    "no Deployment of the namespace `{}` is behind the Service `{}`",
                    self.namespace, self.service
                );
                return Point::error(NAME, message).remedy("upgrade or install the release again");
            }
            Err(unseen) => return Point::unknown(NAME, "how many replicas are ready", unseen),
        };
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        let spec = deployment.spec.as_ref();
        let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0);
        let status = deployment.status.as_ref();
        let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
        let updated = status.and_then(|status| status.updated_replicas);
        let about = About::in_namespace("Deployment", &self.namespace, name);
        let describe = || {
            let namespace = &self.namespace;
            format!(
                "kubectl describe deployment,pods --namespace {namespace} --selector app.kubernetes.io/instance={}",
                self.label("instance").unwrap_or(name)
            )
        };
        if wanted == 0 {
            let namespace = &self.namespace;
            return Point::error(
                NAME,
                format!("Deployment `{name}` is scaled to 0: nobody answers"),
            )
            .command(format!(
                "kubectl scale deployment {name} --replicas 2 --namespace {namespace}"
            ))
            .about(about);
        }
        let waits = parts.pods.iter().flatten().find_map(waits_for);
        let waits = waits.map(|waits| format!(": {waits}")).unwrap_or_default();
        let of_wanted = match wanted {
            1 => format!("{ready} of 1 replica is ready"),
            wanted => format!("{ready} of {wanted} replicas are ready"),
        };
        if ready == 0 {
            Point::error(NAME, format!("{of_wanted}, so nobody answers{waits}")).command(describe())
        } else if ready < wanted {
            Point::warning(NAME, format!("{of_wanted}{waits}")).command(describe())
        } else if let Some(updated) = updated.filter(|updated| *updated < wanted) {
            let message = format!(
                "{of_wanted}, {updated} of the newest version: a rollout is under way{waits}"
            );
            Point::warning(NAME, message).command(format!(
                "kubectl rollout status deployment {name} --namespace {}",
                self.namespace
            ))
        } else {
            Point::ok(NAME, of_wanted)
        }
        .about(about)
    }

    fn failure_policy(&self, policy: &Result<bool, Unseen>) -> Point {
        const NAME: &str = "failure-policy";
        let entry = self.pods_entry();
        // The default of the API.
        let fails = entry.and_then(|entry| entry.failure_policy.as_deref()) != Some("Ignore");
        if fails {
            let message = "while no replica answers, pods that ask for a drainer are refused (failurePolicy `Fail`)";
            return Point::ok(NAME, message);
        }
        let message =
            "while no replica answers, pods start without a drainer (failurePolicy `Ignore`)";
        match policy {
            Ok(true) => Point::ok(
                NAME,
                format!(
                    "{message}, and the policy `{}` tells of them",
                    self.policy()
                ),
            ),
            Ok(false) => Point::warning(NAME, format!("{message}, and nothing tells of them"))
                .remedy(
                    "set `policy.enabled: true` in the chart's values, from Kubernetes 1.30 on",
                ),
            Err(unseen) => {
                let what = format!(
                    "{message}; whether the policy `{}` tells of them",
                    self.policy()
                );
                Point::unknown(NAME, what, unseen)
            }
        }
    }
}

/// Why a pod is not ready, if a container of it says why.
fn waits_for(pod: &Pod) -> Option<String> {
    if is_ready(pod) {
        return None;
    }
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let waiting = |container: &k8s_openapi::api::core::v1::ContainerStatus| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        Some(match waiting.message.as_deref() {
            Some(message) => format!("{reason} ({message})"),
            None => reason.to_owned(),
        })
    };
    let conditions = status.conditions.iter().flatten();
    let unschedulable = |condition: &k8s_openapi::api::core::v1::PodCondition| {
        let is_so = condition.type_ == "PodScheduled" && condition.status == "False";
        condition.message.clone().filter(|_| is_so)
    };
    let waits = containers.filter_map(waiting).next();
    waits.or_else(|| conditions.filter_map(unschedulable).next())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::{Call, Mark};

    fn configuration(name: &str, change: impl FnOnce(&mut Value)) -> MutatingWebhookConfiguration {
        let service = json!({"name": name, "namespace": "infra", "path": "/inject", "port": 443});
        let mut configuration = json!({
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/instance": name,
                    "app.kubernetes.io/version": VERSION,
                },
            },
            "webhooks": [{
                "name": PODS_ENTRY,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": service},
                "failurePolicy": "Ignore",
                "sideEffects": "None",
            }],
        });
        change(&mut configuration);
        serde_json::from_value(configuration).unwrap()
    }

    fn installed(name: &str) -> MutatingWebhookConfiguration {
        configuration(name, |_| {})
    }

    fn installation(change: impl FnOnce(&mut Value)) -> Installation {
        find(vec![configuration("drainer", change)], None).expect("there is one")
    }

    fn deployment(wanted: i32, ready: i32, updated: i32) -> Deployment {
        let deployment = json!({
            "metadata": {"name": "drainer"},
            "spec": {
                "replicas": wanted,
                "selector": {},
                "template": {"spec": {"containers": []}},
            },
            "status": {"readyReplicas": ready, "updatedReplicas": updated},
        });
        serde_json::from_value(deployment).unwrap()
    }

    fn parts(deployment: Option<Deployment>) -> Parts {
        Parts {
            service: Ok(Some(Service::default())),
            deployment: Ok(deployment),
            pods: Ok(Vec::new()),
            policy: Ok(true),
        }
    }

    /// The points of an installation by name, but for `found`.
    fn points(installation: &Installation, parts: &Parts) -> Vec<(&'static str, Mark)> {
        let points = installation.section(parts, None).points.into_iter();
        let points = points.map(|point| (point.name, point.mark));
        points.filter(|(name, _)| *name != "found").collect()
    }

    fn forbidden() -> Unseen {
        Unseen::Forbidden(Call {
            verb: "get",
            resource: "services",
            namespace: None,
        })
    }

    #[test]
    fn an_installation_is_known_by_its_entry_whatever_it_is_called() {
        let strangers =
            || configuration("a", |value| value["webhooks"][0]["name"] = json!("other"));
        let found = find(vec![strangers(), installed("mine")], None).expect("there is one");
        assert_eq!(found.name, "mine");
        assert_eq!(found.host(), "mine.infra.svc");
        assert_eq!(found.port, 443);
        let none = find(vec![strangers()], None).unwrap_err();
        assert_eq!(none.mark, Mark::Error);
        assert_eq!(
            none.message,
            "envoy-drainer is not installed in this cluster"
        );
        assert!(find(Vec::new(), None).is_err());
    }

    #[test]
    fn of_several_the_one_that_is_asked_first_is_looked_at_or_the_one_that_is_chosen() {
        let both = || vec![installed("b"), installed("a")];
        let first = find(both(), None).expect("there are two");
        assert_eq!(first.name, "a");
        let told = points(&first, &parts(Some(deployment(2, 2, 2))));
        assert_eq!(told[0], ("several", Mark::Warning));
        assert_eq!(find(both(), Some("b")).expect("it is there").name, "b");
        let none = find(both(), Some("c")).unwrap_err();
        assert_eq!(none.remedy.as_deref(), Some("there is `a`, `b`"));
    }

    #[test]
    fn replicas_are_counted() {
        let table = [
            (Some(deployment(2, 2, 2)), Mark::Ok),
            (Some(deployment(2, 1, 2)), Mark::Warning),
            (Some(deployment(2, 2, 1)), Mark::Warning),
            (Some(deployment(2, 0, 2)), Mark::Error),
            (Some(deployment(0, 0, 0)), Mark::Error),
            (Some(Deployment::default()), Mark::Error),
            (None, Mark::Error),
        ];
        for (deployment, mark) in table {
            let parts = parts(deployment);
            let told = points(&installation(|_| {}), &parts);
            assert_eq!(
                told,
                [("replicas", mark), ("failure-policy", Mark::Ok)],
                "{parts:?}"
            );
        }
    }

    #[test]
    fn why_a_replica_is_not_ready_is_told_if_its_pod_tells() {
        let image = json!({"name": "webhook", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}});
        let pod = json!({"metadata": {}, "status": {"containerStatuses": [image]}});
        let mut parts = parts(Some(deployment(1, 0, 1)));
        parts.pods = Ok(vec![serde_json::from_value(pod).unwrap()]);
        let told = installation(|_| {}).section(&parts, None).points;
        assert_eq!(
            told[1].message,
            "0 of 1 replica is ready, so nobody answers: ImagePullBackOff (no such image)"
        );
    }

    #[test]
    fn pods_that_nobody_asks_about_are_refused_or_told_of_or_neither() {
        let table = [
            ("Ignore", Ok(true), Mark::Ok),
            ("Ignore", Ok(false), Mark::Warning),
            ("Ignore", Err(forbidden()), Mark::Unknown),
            ("Fail", Ok(false), Mark::Ok),
            ("Fail", Err(forbidden()), Mark::Ok),
        ];
        for (fails, policy, mark) in table {
            let installation =
                installation(|value| value["webhooks"][0]["failurePolicy"] = json!(fails));
            let mut parts = parts(Some(deployment(2, 2, 2)));
            parts.policy = policy;
            let told = points(&installation, &parts);
            assert_eq!(told[1], ("failure-policy", mark), "{fails} {parts:?}");
        }
    }

    #[test]
    fn a_missing_service_is_an_error_and_one_that_cannot_be_seen_is_not() {
        for (service, mark) in [(Ok(None), Mark::Error), (Err(forbidden()), Mark::Unknown)] {
            let mut parts = parts(None);
            parts.service = service;
            let told = points(&installation(|_| {}), &parts);
            assert_eq!(told[0], ("service", mark));
        }
    }

    #[test]
    fn an_installation_of_another_version_is_told() {
        let other = installation(|value| {
            value["metadata"]["labels"]["app.kubernetes.io/version"] = json!("9.9.9");
        });
        let told = points(&other, &parts(Some(deployment(2, 2, 2))));
        assert_eq!(told[0], ("version", Mark::Warning));
    }

    #[test]
    fn a_services_port_leads_to_a_pods() {
        let service = |target: Value| -> Service {
            let ports = json!([{"port": 80}, {"port": 443, "targetPort": target}]);
            serde_json::from_value(json!({"spec": {"ports": ports}})).unwrap()
        };
        let containers = json!([
            {"name": "mesh"},
            {"name": "webhook", "ports": [{"name": "https", "containerPort": 10260}]},
        ]);
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap();
        for (target, port, want) in [
            (json!("https"), 443, Some(10260)),
            (json!(10250), 443, Some(10250)),
            (json!(null), 443, Some(443)),
            (json!("other"), 443, None),
            (json!(70_000), 443, None),
            (json!("https"), 444, None),
        ] {
            assert_eq!(
                target_port(&service(target.clone()), port, &pod),
                want,
                "{target}"
            );
        }
        assert_eq!(target_port(&Service::default(), 443, &pod), None);
    }
}
