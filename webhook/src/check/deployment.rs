//! Whether an installation runs, and what becomes of pods while it does not.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::installation::{Installation, ServeArgsError};
use super::pod_status::UnreadyPod;
use super::report::{CheckResult, Section, Subject};
use super::rollout::Rollout;
use crate::kubernetes::ReadError;

/// What there is of an installation, or why that is not known.
#[derive(Debug)]
pub struct DeploymentObjects {
    /// Where API servers call.
    pub service: Result<Option<Service>, ReadError>,
    /// What runs behind it.
    pub deployment: Result<Option<Deployment>, ReadError>,
    /// Its pods.
    pub pods: Result<Vec<Pod>, ReadError>,
    /// Whether its policy is there, and bound.
    pub policy: Result<bool, ReadError>,
    /// Whether the policy for its service account is there, and bound.
    pub ca_bundle_policy: Result<bool, ReadError>,
}

/// Judges what an installation is, and what there is of it. `unread` says why the flags of its webhook
/// cannot be read.
#[must_use]
pub fn section(
    installation: &Installation,
    objects: &DeploymentObjects,
    args_error: Option<&ServeArgsError>,
) -> Section {
    let mut points = installation.results(args_error);
    points.extend(service(installation, &objects.service));
    points.push(replicas(installation, objects));
    points.push(failure_policy(installation, &objects.policy));
    points.push(service_account(installation, &objects.ca_bundle_policy));
    Section {
        name: "installation",
        results: points,
    }
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

fn service(
    installation: &Installation,
    service: &Result<Option<Service>, ReadError>,
) -> Option<CheckResult> {
    const NAME: &str = "service";
    match service {
        Ok(Some(_)) => None,
        Ok(None) => {
            let message = format!(
                "there is no Service `{}` in the namespace `{}`, which API servers call",
                installation.service, installation.namespace
            );
            Some(CheckResult::error(NAME, message).remedy("upgrade or install the release again"))
        }
        Err(unseen) => Some(CheckResult::unknown_blocking(
            NAME,
            "whether there is the Service that API servers call",
            unseen,
        )),
    }
}

fn replicas(installation: &Installation, objects: &DeploymentObjects) -> CheckResult {
    const NAME: &str = "replicas";
    let deployment = match &objects.deployment {
        Ok(Some(deployment)) => deployment,
        Ok(None) => {
            let message = format!(
                "no Deployment of the namespace `{}` is behind the Service `{}`",
                installation.namespace, installation.service
            );
            return CheckResult::error(NAME, message)
                .remedy("upgrade or install the release again");
        }
        Err(unseen) => {
            return CheckResult::unknown_blocking(NAME, "how many replicas are ready", unseen);
        }
    };
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let spec = deployment.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0);
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let about = Subject::namespaced("Deployment", &installation.namespace, name);
    if wanted == 0 {
        let namespace = &installation.namespace;
        return CheckResult::error(
            NAME,
            format!("Deployment `{name}` is scaled to 0: nobody answers"),
        )
        .command(format!(
            "kubectl scale deployment {name} --replicas 2 --namespace {namespace}"
        ))
        .subject(about);
    }
    let of_wanted = match wanted {
        1 => format!("{ready} of 1 replica is ready"),
        wanted => format!("{ready} of {wanted} replicas are ready"),
    };
    let rollout = Rollout::of(deployment);
    if ready >= wanted && rollout == Rollout::Complete {
        return CheckResult::ok(NAME, of_wanted).subject(about);
    }
    let unready = UnreadyPod::first(objects.pods.iter().flatten());
    let namespace = &installation.namespace;
    let release = installation.label("instance").unwrap_or(name);
    let why = unready.as_ref().map(|unready| format!(": {unready}"));
    let why = why.unwrap_or_default();
    let look = match &unready {
        Some(unready) => unready.command(namespace),
        None => format!(
            "kubectl logs --namespace {namespace} --selector app.kubernetes.io/instance={release} --prefix --tail 10"
        ),
    };
    let is_stuck =
        rollout == Rollout::DeadlineExceeded || unready.as_ref().is_some_and(UnreadyPod::is_stuck);
    let (on_the_way, then) = match rollout {
        Rollout::Complete => ("", None),
        _ if is_stuck => (
            "; the rollout is stuck",
            Some(format!("helm rollback {release} --namespace {namespace}")),
        ),
        Rollout::Progressing | Rollout::DeadlineExceeded => (
            "; a rollout is under way",
            Some(format!(
                "kubectl rollout status deployment {name} --namespace {namespace}"
            )),
        ),
    };
    let point = match ready {
        0 => CheckResult::error(
            NAME,
            format!("{of_wanted}, so nobody answers{on_the_way}{why}"),
        ),
        _ => CheckResult::warning(NAME, format!("{of_wanted}{on_the_way}{why}")),
    };
    let commands = [look].into_iter().chain(then);
    commands.fold(point, CheckResult::command).subject(about)
}

fn failure_policy(installation: &Installation, policy: &Result<bool, ReadError>) -> CheckResult {
    const NAME: &str = "failure-policy";
    let entry = installation.pods_entry();
    // The default of the API.
    let fails = entry.and_then(|entry| entry.failure_policy.as_deref()) != Some("Ignore");
    if fails {
        let message = "while no replica answers, pods that ask for a drainer are refused (failurePolicy `Fail`)";
        return CheckResult::ok(NAME, message);
    }
    let message = "while no replica answers, pods start without a drainer (failurePolicy `Ignore`)";
    match policy {
        Ok(true) => CheckResult::ok(
            NAME,
            format!(
                "{message}, and the policy `{}` tells of them",
                installation.policy()
            ),
        ),
        Ok(false) => CheckResult::warning(NAME, format!("{message}, and nothing tells of them"))
            .remedy("set `policy.enabled: true` in the chart's values, from Kubernetes 1.30 on"),
        Err(unseen) => {
            let what = format!(
                "{message}; whether the policy `{}` tells of them",
                installation.policy()
            );
            CheckResult::unknown(NAME, what, unseen)
        }
    }
}

/// What the token of its service account is good for.
fn service_account(installation: &Installation, policy: &Result<bool, ReadError>) -> CheckResult {
    const NAME: &str = "service-account";
    let name = installation.ca_bundle_policy();
    match policy {
        Ok(true) => CheckResult::ok(
            NAME,
            format!("of its configuration the webhook may write the caBundle alone, by the policy `{name}`"),
        ),
        Ok(false) => CheckResult::warning(
            NAME,
            format!(
                "there is no policy `{name}`, so with the webhook's token every object of the cluster can be sent \
                 elsewhere and changed"
            ),
        )
        .remedy("set `policy.enabled: true` in the chart's values, from Kubernetes 1.30 on"),
        Err(unseen) => {
            let what = format!("whether the policy `{name}` restricts the webhook's service account");
            CheckResult::unknown(NAME, what, unseen)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Severity;
    use crate::check::installation::find;
    use crate::check::installation::tests::configuration;
    use crate::kubernetes::ApiCall;

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

    fn objects(deployment: Option<Deployment>) -> DeploymentObjects {
        DeploymentObjects {
            service: Ok(Some(Service::default())),
            deployment: Ok(deployment),
            pods: Ok(Vec::new()),
            policy: Ok(true),
            ca_bundle_policy: Ok(true),
        }
    }

    /// The points of an installation by name, but for `found`.
    fn results(
        installation: &Installation,
        parts: &DeploymentObjects,
    ) -> Vec<(&'static str, Severity)> {
        let points = section(installation, parts, None).results.into_iter();
        let points = points.map(|point| (point.name, point.severity));
        points.filter(|(name, _)| *name != "found").collect()
    }

    fn forbidden() -> ReadError {
        ReadError::Forbidden(ApiCall {
            verb: "get",
            resource: "services",
            namespace: None,
        })
    }

    #[test]
    fn replicas_are_counted() {
        let table = [
            (Some(deployment(2, 2, 2)), Severity::Ok),
            (Some(deployment(2, 1, 2)), Severity::Warning),
            (Some(deployment(2, 2, 1)), Severity::Warning),
            (Some(deployment(2, 0, 2)), Severity::Error),
            (Some(deployment(0, 0, 0)), Severity::Error),
            (Some(Deployment::default()), Severity::Error),
            (None, Severity::Error),
        ];
        for (deployment, mark) in table {
            let parts = objects(deployment);
            let told = results(&installation(|_| {}), &parts);
            assert_eq!(
                told,
                [
                    ("replicas", mark),
                    ("failure-policy", Severity::Ok),
                    ("service-account", Severity::Ok)
                ],
                "{parts:?}"
            );
        }
    }

    #[test]
    fn why_a_replica_is_not_ready_is_told_if_its_pod_tells() {
        let image = json!({"name": "webhook", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}});
        let pod = json!({"metadata": {}, "status": {"containerStatuses": [image]}});
        let mut parts = objects(Some(deployment(1, 0, 1)));
        parts.pods = Ok(vec![serde_json::from_value(pod).unwrap()]);
        let told = section(&installation(|_| {}), &parts, None).results;
        assert_eq!(
            told[1].message,
            "0 of 1 replica is ready, so nobody answers: ImagePullBackOff (no such image)"
        );
    }

    #[test]
    fn a_rollout_that_does_not_get_on_is_told_from_one_that_may() {
        const LOGS: &str = "kubectl logs new --namespace infra";
        const DESCRIBE: &str = "kubectl describe pod new --namespace infra";
        const STATUS: &str = "kubectl rollout status deployment drainer --namespace infra";
        const BACK: &str = "helm rollback drainer --namespace infra";
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let runs = json!({"running": {}});
        let late = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
        let table = [
            (
                waits("CrashLoopBackOff"),
                json!([]),
                "the rollout is stuck: CrashLoopBackOff",
                [LOGS, BACK],
            ),
            (
                waits("ErrImagePull"),
                json!([]),
                "the rollout is stuck: ErrImagePull",
                [DESCRIBE, BACK],
            ),
            (
                waits("CreateContainerConfigError"),
                json!([]),
                "the rollout is stuck: CreateContainerConfigError",
                [DESCRIBE, BACK],
            ),
            (
                waits("ContainerCreating"),
                json!([]),
                "a rollout is under way: ContainerCreating",
                [DESCRIBE, STATUS],
            ),
            (
                runs.clone(),
                json!([]),
                "a rollout is under way: `new` is not ready",
                [LOGS, STATUS],
            ),
            (
                runs,
                late,
                "the rollout is stuck: `new` is not ready",
                [LOGS, BACK],
            ),
        ];
        for (state, conditions, want, commands) in table {
            let mut deployment = deployment(2, 2, 1);
            deployment.metadata.name = Some("drainer".to_owned());
            let status = deployment.status.get_or_insert_default();
            status.conditions = serde_json::from_value(conditions).unwrap();
            let container = json!({
                "name": "webhook", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            });
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let old = json!({"metadata": {"name": "old"}, "status": {"conditions": ready}});
            let going =
                json!({"metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
            let new =
                json!({"metadata": {"name": "new"}, "status": {"containerStatuses": [container]}});
            let mut parts = objects(Some(deployment));
            parts.pods = Ok(serde_json::from_value(json!([old, going, new])).unwrap());
            let told = section(&installation(|_| {}), &parts, None)
                .results
                .remove(1);
            assert_eq!(told.message, format!("2 of 2 replicas are ready; {want}"));
            assert_eq!(told.severity, Severity::Warning);
            assert_eq!(told.commands, commands);
        }
    }

    #[test]
    fn pods_that_nobody_asks_about_are_refused_or_told_of_or_neither() {
        let table = [
            ("Ignore", Ok(true), Severity::Ok),
            ("Ignore", Ok(false), Severity::Warning),
            ("Ignore", Err(forbidden()), Severity::Unknown),
            ("Fail", Ok(false), Severity::Ok),
            ("Fail", Err(forbidden()), Severity::Ok),
        ];
        for (fails, policy, mark) in table {
            let installation =
                installation(|value| value["webhooks"][0]["failurePolicy"] = json!(fails));
            let mut parts = objects(Some(deployment(2, 2, 2)));
            parts.policy = policy;
            let told = results(&installation, &parts);
            assert_eq!(told[1], ("failure-policy", mark), "{fails} {parts:?}");
        }
    }

    #[test]
    fn an_account_that_no_policy_restricts_is_a_warning() {
        for (policy, mark) in [
            (Ok(true), Severity::Ok),
            (Ok(false), Severity::Warning),
            (Err(forbidden()), Severity::Unknown),
        ] {
            let mut parts = objects(Some(deployment(2, 2, 2)));
            parts.ca_bundle_policy = policy;
            let told = results(&installation(|_| {}), &parts);
            assert_eq!(told.last(), Some(&("service-account", mark)), "{parts:?}");
        }
    }

    #[test]
    fn a_missing_service_is_an_error_and_one_that_cannot_be_seen_is_not() {
        for (service, mark) in [
            (Ok(None), Severity::Error),
            (Err(forbidden()), Severity::Unknown),
        ] {
            let mut parts = objects(None);
            parts.service = service;
            let told = results(&installation(|_| {}), &parts);
            assert_eq!(told[0], ("service", mark));
        }
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
