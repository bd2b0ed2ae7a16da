//! The Deployment of an installation, its Service and policies: does it run, and what happens to pods
//! while it does not?

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::api::core::v1::Pod;
use kubernetes::ReadError;

use super::installation::{Installation, ServeArgsError};
use super::report::{CheckResult, Section};
use crate::object_name::ObjectName;
use crate::pod_status::UnreadyPod;
use crate::text::plural;

const POLICY_REMEDY: &str =
    "set `policy.enabled: true` in the chart's values, which needs Kubernetes 1.30";

const REINSTALL_REMEDY: &str = "upgrade or reinstall the release";

/// The objects of an installation, or the errors of reading them.
#[derive(Debug)]
pub struct DeploymentObjects {
    /// The Deployment behind the Service that API servers call.
    pub deployment: Result<Option<Deployment>, ReadError>,
    pub pods: Result<Vec<Pod>, ReadError>,
    /// Whether the policy that reports pods that the webhook did not see exists, and is bound.
    pub policy: Result<bool, ReadError>,
    /// Whether the policy for the webhook's service account exists, and is bound.
    pub ca_bundle_policy: Result<bool, ReadError>,
}

/// The state of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rollout {
    /// All replicas have the newest template.
    Complete,
    /// Some replicas have an older template.
    Progressing,
    /// The same, for longer than `progressDeadlineSeconds`.
    DeadlineExceeded,
}

/// Checks an installation and its objects. `args_error` says why the arguments of its `serve` cannot be
/// read.
pub fn section(
    installation: &Installation,
    objects: &DeploymentObjects,
    args_error: Option<&ServeArgsError>,
) -> Section {
    let mut results = installation.results(args_error);
    results.push(replicas(installation, objects));
    results.extend(terminating_replicas(objects));
    results.push(failure_policy(installation, &objects.policy));
    results.push(service_account(installation, &objects.ca_bundle_policy));
    Section::new("installation", results)
}

fn replicas(installation: &Installation, objects: &DeploymentObjects) -> CheckResult {
    const NAME: &str = "replicas";
    let namespace = &installation.namespace;
    let deployment = match &objects.deployment {
        Ok(Some(deployment)) => deployment,
        Ok(None) => {
            let service = &installation.service;
            let message = format!(
                "no Deployment in the namespace `{namespace}` is behind the Service `{service}`, which API servers call"
            );
            return CheckResult::error(NAME, message).with_remedy(REINSTALL_REMEDY);
        }
        Err(error) => {
            return CheckResult::unknown_blocking(NAME, "how many replicas are ready", error);
        }
    };
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let subject = ObjectName::new("Deployment", Some(namespace), name);
    let desired = desired_replicas(deployment);
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
    if desired <= 0 {
        let message = format!("Deployment `{name}` is scaled to 0: the webhook is unavailable");
        let command =
            format!("kubectl scale deployment {name} --replicas 2 --namespace {namespace}");
        return CheckResult::error(NAME, message)
            .with_command(command)
            .with_subject(subject);
    }
    let verb = if desired == 1 { "is" } else { "are" };
    let message = format!("{ready} of {} {verb} ready", plural(desired, "replica"));
    let rollout = rollout(deployment);
    if ready >= desired && rollout == Rollout::Complete {
        return CheckResult::ok(NAME, message).with_subject(subject);
    }
    let release = installation.release();
    let unready = UnreadyPod::first(objects.pods.iter().flatten());
    let is_stuck = unready.as_ref().is_some_and(UnreadyPod::is_stuck);
    let rollout_status =
        format!("kubectl rollout status deployment {name} --namespace {namespace}");
    let rollback = installation.rollback_command();
    let (progress, next) = match rollout {
        Rollout::Complete => ("", None),
        Rollout::Progressing if !is_stuck => ("; a rollout is in progress", Some(rollout_status)),
        _ => ("; the rollout is stuck", Some(rollback)),
    };
    let reason = match (&unready, &objects.pods) {
        (Some(unready), _) => format!(": {unready}"),
        (None, Ok(_)) => String::new(),
        (None, Err(error)) => format!(": the reason is unknown: {error}"),
    };
    let logs = || {
        format!(
            "kubectl logs --namespace {namespace} --selector app.kubernetes.io/instance={release} --prefix --tail 10"
        )
    };
    let inspect = unready.map_or_else(logs, |unready| unready.command(namespace));
    let mut result = if ready == 0 {
        let effect = ", so the webhook is unavailable";
        CheckResult::error(NAME, format!("{message}{effect}{progress}{reason}"))
    } else {
        CheckResult::warning(NAME, format!("{message}{progress}{reason}"))
    };
    result.commands = [inspect].into_iter().chain(next).collect();
    result.with_subject(subject)
}

/// Reports replicas that are terminating: until the API server has closed its connections to them, they admit pods.
fn terminating_replicas(objects: &DeploymentObjects) -> Option<CheckResult> {
    let is_terminating = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
    let pods = objects.pods.iter().flatten();
    let count = pods.filter(is_terminating).count();
    let verb = match count {
        0 => return None,
        1 => "is terminating, and still admits pods, with its own values",
        _ => "are terminating, and still admit pods, with their own values",
    };
    let message = format!("{} {verb}", plural(count, "old replica"));
    let remedy = "after a change of values, wait until they are gone before you roll pods";
    Some(CheckResult::warning("terminating", message).with_remedy(remedy))
}

/// The number of replicas; 1 is the API's default.
fn desired_replicas(deployment: &Deployment) -> i32 {
    let spec = deployment.spec.as_ref();
    spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns true if the replicas may not all have the newest arguments.
pub fn is_rolling_out(deployment: &Deployment) -> bool {
    rollout(deployment) != Rollout::Complete
}

/// The state of a Deployment's rollout, as `kubectl rollout status` determines it.
/// <https://github.com/kubernetes/kubectl/blob/master/pkg/polymorphichelpers/rollout_status.go>
fn rollout(deployment: &Deployment) -> Rollout {
    let Some(status) = &deployment.status else {
        return Rollout::Complete;
    };
    let updated = status.updated_replicas.unwrap_or(0);
    let is_late = |condition: &DeploymentCondition| {
        condition.type_ == "Progressing"
            && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
    };
    if updated >= desired_replicas(deployment) && updated >= status.replicas.unwrap_or(0) {
        Rollout::Complete
    } else if status.conditions.iter().flatten().any(is_late) {
        Rollout::DeadlineExceeded
    } else {
        Rollout::Progressing
    }
}

/// Checks what would happen to pods if no replica were ready.
fn failure_policy(installation: &Installation, policy: &Result<bool, ReadError>) -> CheckResult {
    const NAME: &str = "failure-policy";
    // `Fail` is the API's default.
    if installation.pods_entry.failure_policy.as_deref() != Some("Ignore") {
        let message = "if no replica is ready, pods that request a drainer by annotation are rejected (failurePolicy `Fail`)";
        return CheckResult::ok(NAME, message);
    }
    let message = "if no replica is ready, pods that request a drainer are admitted without one (failurePolicy `Ignore`)";
    let name = installation.unseen_pods_policy_name();
    let exists = format!("{message}, and the policy `{name}` reports them");
    let missing = format!("{message}, and nothing reports them");
    let what = format!("{message}; whether the policy `{name}` reports them");
    policy_result(NAME, policy, exists, missing, &what)
}

fn policy_result(
    name: &'static str,
    policy: &Result<bool, ReadError>,
    exists: String,
    missing: String,
    what: &str,
) -> CheckResult {
    match policy {
        Ok(true) => CheckResult::ok(name, exists),
        Ok(false) => CheckResult::warning(name, missing).with_remedy(POLICY_REMEDY),
        Err(error) => CheckResult::unknown(name, what, error),
    }
}

/// Checks what the token of the webhook's service account allows.
fn service_account(installation: &Installation, policy: &Result<bool, ReadError>) -> CheckResult {
    let name = installation.ca_bundle_policy_name();
    let exists = format!(
        "the policy `{name}` lets the webhook change only the caBundle of its MutatingWebhookConfiguration"
    );
    let missing = format!(
        "the policy `{name}` does not exist: a holder of the webhook's token can redirect the admission requests of any object in the cluster, and so read and change it"
    );
    let what = format!("whether the policy `{name}` restricts the webhook's service account");
    policy_result("service-account", policy, exists, missing, &what)
}

#[cfg(test)]
mod tests {
    use kubernetes::api_call;
    use serde_json::{Value, json};

    use super::*;
    use crate::check::Severity;
    use crate::check::installation::find;
    use crate::check::installation::tests::configuration;

    fn installation(change: impl FnOnce(&mut Value)) -> Installation {
        find(vec![configuration("drainer", change)], None).expect("there is one")
    }

    fn deployment(desired: i32, ready: i32, updated: i32) -> Deployment {
        let deployment = json!({
            "metadata": {"name": "drainer"},
            "spec": {
                "replicas": desired,
                "selector": {},
                "template": {"spec": {"containers": []}},
            },
            "status": {"readyReplicas": ready, "updatedReplicas": updated},
        });
        serde_json::from_value(deployment).unwrap()
    }

    fn objects(deployment: Option<Deployment>) -> DeploymentObjects {
        DeploymentObjects {
            deployment: Ok(deployment),
            pods: Ok(Vec::new()),
            policy: Ok(true),
            ca_bundle_policy: Ok(true),
        }
    }

    /// The results for an installation by name, but for `found`.
    fn results(
        installation: &Installation,
        objects: &DeploymentObjects,
    ) -> Vec<(&'static str, Severity)> {
        let results = section(installation, objects, None).results.into_iter();
        let results = results.map(|result| (result.name, result.severity));
        results.filter(|(name, _)| *name != "found").collect()
    }

    fn forbidden() -> ReadError {
        ReadError::Forbidden(api_call("get", "services", None))
    }

    #[test]
    fn unready_replicas_are_reported() {
        let table = [
            (Some(deployment(2, 2, 2)), Severity::Ok),
            (Some(deployment(2, 1, 2)), Severity::Warning),
            (Some(deployment(2, 2, 1)), Severity::Warning),
            (Some(deployment(2, 0, 2)), Severity::Error),
            (Some(deployment(0, 0, 0)), Severity::Error),
            (Some(Deployment::default()), Severity::Error),
            (None, Severity::Error),
        ];
        for (deployment, severity) in table {
            let objects = objects(deployment);
            let found = results(&installation(|_| {}), &objects);
            assert_eq!(
                found,
                [
                    ("replicas", severity),
                    ("failure-policy", Severity::Ok),
                    ("service-account", Severity::Ok)
                ],
                "{objects:?}"
            );
        }
    }

    #[test]
    fn reason_of_unready_replica_is_reported() {
        let image = json!({"name": "webhook", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}});
        let pod = json!({"metadata": {}, "status": {"containerStatuses": [image]}});
        let mut objects = objects(Some(deployment(1, 0, 1)));
        objects.pods = Ok(vec![serde_json::from_value(pod).unwrap()]);
        let results = section(&installation(|_| {}), &objects, None).results;
        assert_eq!(
            results[1].message,
            "0 of 1 replica is ready, so the webhook is unavailable: ImagePullBackOff (no such image)"
        );
        objects.pods = Err(forbidden());
        let results = section(&installation(|_| {}), &objects, None).results;
        assert_eq!(
            results[1].message,
            "0 of 1 replica is ready, so the webhook is unavailable: the reason is unknown: forbidden: get services"
        );
    }

    #[test]
    fn stuck_rollout_differs_from_one_in_progress() {
        const LOGS: &str = "kubectl logs new --namespace infra";
        const DESCRIBE: &str = "kubectl describe pod new --namespace infra";
        const STATUS: &str = "kubectl rollout status deployment drainer --namespace infra";
        const ROLLBACK: &str = "helm rollback drainer --namespace infra";
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let running = json!({"running": {}});
        let late = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
        let table = [
            (
                waiting("CrashLoopBackOff"),
                json!([]),
                "the rollout is stuck: CrashLoopBackOff",
                [LOGS, ROLLBACK],
            ),
            (
                waiting("ErrImagePull"),
                json!([]),
                "the rollout is stuck: ErrImagePull",
                [DESCRIBE, ROLLBACK],
            ),
            (
                waiting("CreateContainerConfigError"),
                json!([]),
                "the rollout is stuck: CreateContainerConfigError",
                [DESCRIBE, ROLLBACK],
            ),
            (
                waiting("ContainerCreating"),
                json!([]),
                "a rollout is in progress: ContainerCreating",
                [DESCRIBE, STATUS],
            ),
            (
                running.clone(),
                json!([]),
                "a rollout is in progress: `new` is not ready",
                [LOGS, STATUS],
            ),
            (
                running,
                late,
                "the rollout is stuck: `new` is not ready",
                [LOGS, ROLLBACK],
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
            let terminating = json!({"metadata": {"name": "terminating", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
            let new =
                json!({"metadata": {"name": "new"}, "status": {"containerStatuses": [container]}});
            let mut objects = objects(Some(deployment));
            objects.pods = Ok(serde_json::from_value(json!([old, terminating, new])).unwrap());
            let result = section(&installation(|_| {}), &objects, None)
                .results
                .remove(1);
            assert_eq!(result.message, format!("2 of 2 replicas are ready; {want}"));
            assert_eq!(result.severity, Severity::Warning);
            assert_eq!(result.commands, commands);
        }
    }

    #[test]
    fn terminating_replicas_are_reported() {
        for (count, want) in [
            (0, None),
            (
                1,
                Some("1 old replica is terminating, and still admits pods, with its own values"),
            ),
            (
                2,
                Some("2 old replicas are terminating, and still admit pods, with their own values"),
            ),
        ] {
            let pod = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
            let mut objects = objects(Some(deployment(2, 2, 2)));
            objects.pods = Ok(vec![serde_json::from_value(pod).unwrap(); count]);
            let results = section(&installation(|_| {}), &objects, None).results;
            let found = results.iter().find(|result| result.name == "terminating");
            assert_eq!(found.map(|result| &*result.message), want);
        }
    }

    #[test]
    fn missing_policy_is_reported_where_failures_are_ignored() {
        let table = [
            ("Ignore", Ok(true), Severity::Ok),
            ("Ignore", Ok(false), Severity::Warning),
            ("Ignore", Err(forbidden()), Severity::Unknown),
            ("Fail", Ok(false), Severity::Ok),
            ("Fail", Err(forbidden()), Severity::Ok),
        ];
        for (failure_policy, policy, severity) in table {
            let installation =
                installation(|value| value["webhooks"][0]["failurePolicy"] = json!(failure_policy));
            let mut objects = objects(Some(deployment(2, 2, 2)));
            objects.policy = policy;
            let found = results(&installation, &objects);
            assert_eq!(
                found[1],
                ("failure-policy", severity),
                "{failure_policy} {objects:?}"
            );
        }
    }

    #[test]
    fn unrestricted_service_account_is_a_warning() {
        for (policy, severity) in [
            (Ok(true), Severity::Ok),
            (Ok(false), Severity::Warning),
            (Err(forbidden()), Severity::Unknown),
        ] {
            let mut objects = objects(Some(deployment(2, 2, 2)));
            objects.ca_bundle_policy = policy;
            let found = results(&installation(|_| {}), &objects);
            assert_eq!(
                found.last(),
                Some(&("service-account", severity)),
                "{objects:?}"
            );
        }
    }

    #[test]
    fn rollout_is_complete_when_all_replicas_are_updated() {
        let late = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
        let table = [
            (
                json!({"replicas": 2, "updatedReplicas": 2}),
                Rollout::Complete,
            ),
            (
                json!({"replicas": 2, "updatedReplicas": 1}),
                Rollout::Progressing,
            ),
            // A field that is 0 is left out.
            (json!({"replicas": 2}), Rollout::Progressing),
            // All updated replicas exist, and so does one that they are to replace.
            (
                json!({"replicas": 3, "updatedReplicas": 2}),
                Rollout::Progressing,
            ),
            (
                json!({"replicas": 3, "updatedReplicas": 1, "conditions": late}),
                Rollout::DeadlineExceeded,
            ),
            (
                json!({"replicas": 2, "updatedReplicas": 2, "conditions": late}),
                Rollout::Complete,
            ),
        ];
        for (status, want) in table {
            let spec = json!({"replicas": 2, "selector": {}, "template": {}});
            let deployment = json!({"spec": spec, "status": status});
            let deployment = serde_json::from_value(deployment).unwrap();
            assert_eq!(rollout(&deployment), want, "{status}");
        }
        assert_eq!(rollout(&Deployment::default()), Rollout::Complete);
    }
}
