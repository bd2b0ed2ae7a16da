//! Why one pod has no drainer, or a drainer that does not run.

use admission::keys::{INJECT, STATUS, inject_requested};
use admission::{
    CONTAINER_NAME, Code, Decision, Defaults, Diagnostic, PodContext, PodView, RecordedSkip,
    decide, remove, token,
};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::check::namespaces::{Namespaces, opt_in_command};
use crate::check::report::CheckResult;
use crate::load_balancers::in_front;
use crate::object_name::ObjectName;
use crate::pod_status::{IMAGE_PULL_REASONS, drainer, drainer_waiting_reason};
use crate::restart::RESTARTABLE;
use crate::running_pod::RunningPod;
use crate::text::{has_or_have, plural};

/// Diagnoses pods by what is known of the installation.
#[derive(Debug, Clone, Copy)]
pub struct PodDiagnoser<'a> {
    /// The defaults of the webhook; the image of new drainers is empty if it is unknown.
    pub defaults: &'a Defaults,
    /// When the webhook was installed.
    pub installed_at: Option<&'a Time>,
    /// The namespaces, if they could be read.
    pub namespaces: Option<&'a Namespaces>,
    /// The Services of type LoadBalancer, as far as they could be read.
    pub load_balancers: &'a [Service],
}

/// What is wrong with a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Diagnosis {
    /// Its drainer is not running.
    NotRunning {
        image: String,
        reason: String,
    },
    /// It requests a drainer and has none, like those below, since its namespace has not opted in.
    NotOptedIn,
    /// It would be skipped or denied now, or API servers do not call the webhook for it.
    Skipped {
        reason: String,
        remedy: Option<&'static str>,
    },
    /// Its annotation `status` has this.
    Recorded(RecordedSkip),
    CreatedBeforeInstallation,
    WebhookNotCalled,
    /// It has a drainer, and this is to be known of it: annotations that are unknown, differ from what was injected, or
    /// would be denied now, a load balancer in front.
    Notes(Vec<String>),
    /// The same, and that new pods get another image or other settings.
    Outdated(Vec<String>),
}

/// Returns true for annotations that request a drainer, validly or not.
pub(in crate::check) fn is_requested(inject: Option<&String>) -> bool {
    inject.is_some_and(|inject| !matches!(inject_requested(inject), Ok(false)))
}

// === impl PodDiagnoser ===

impl PodDiagnoser<'_> {
    /// `None` for a pod that is as it should be, and as new pods are.
    pub(super) fn diagnose(&self, pod: &Pod) -> Option<Diagnosis> {
        let Some(drainer) = drainer(pod) else {
            return self.cause(pod);
        };
        let image = drainer.image.clone().unwrap_or_default();
        if let Some(reason) = drainer_waiting_reason(pod) {
            let reason = reason.to_owned();
            return Some(Diagnosis::NotRunning { image, reason });
        }
        let running = RunningPod::new(pod);
        let mut notes = running.annotation_notes;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let config = running.drainer.as_ref().map(|it| &it.config);
        if config.is_some_and(|it| it.settings.timing.drain_delay.is_zero()) {
            let warning = in_front(self.load_balancers, namespace, pod.labels());
            notes.extend(warning.map(|warning| format!("{warning:#}")));
        }
        let own = notes.len();
        let new = &self.defaults.image;
        if !new.is_empty() && image != *new {
            notes.push(format!(
                "its image is {image}, which keeps working; new pods get {new}"
            ));
        }
        let is_admitted = !new.is_empty() && self.selection_cause(Some(namespace)).is_none();
        let next = is_admitted.then(|| self.decide(pod)).flatten();
        // Other reasons may be due to what later webhooks added to the pod.
        if let Some(Decision::Deny { reasons, .. }) = &next
            && let Some(reason) = reasons.iter().find(|it| it.code == Code::BadValue)
        {
            notes.push(format!("new pods are denied: {reason}"));
            return Some(Diagnosis::Notes(notes));
        }
        if let (Some(Decision::Inject { plan, .. }), Some(drainer)) = (&next, &running.drainer) {
            notes.extend(drainer.other_values(plan));
        }
        if notes.len() > own {
            return Some(Diagnosis::Outdated(notes));
        }
        (!notes.is_empty()).then_some(Diagnosis::Notes(notes))
    }

    /// Decides on a pod, without its drainer if it has one; `None` if it is not recorded what it was like before.
    fn decide(&self, pod: &Pod) -> Option<Decision> {
        let namespace = pod.metadata.namespace.as_deref();
        let mut pod = serde_json::to_value(pod).ok()?;
        if let Some(removal) = remove(&PodView::decode(&pod.to_string()).ok()?).ok()? {
            json_patch::patch(&mut pod, &removal.operations()).ok()?;
        }
        let json = pod.to_string();
        let view = PodView::decode(&json).ok()?;
        let context = PodContext {
            injects_all: Namespaces::injects_all(self.namespaces, namespace),
            ..PodContext::new(namespace, token(&[]))
        };
        Some(decide(&view, &context, self.defaults))
    }

    /// Why a pod has no drainer; `None` if it does not request one. What is recorded comes first, then what the
    /// pod's namespace and age explain, and last what the webhook would decide now.
    fn cause(&self, pod: &Pod) -> Option<Diagnosis> {
        let namespace = pod.metadata.namespace.as_deref();
        let injects_all = Namespaces::injects_all(self.namespaces, namespace);
        if !injects_all && !is_requested(pod.annotations().get(INJECT)) {
            return None;
        }
        let cause = match pod.annotations().get(STATUS) {
            Some(status) => RecordedSkip::read(status).map(Diagnosis::Recorded),
            // In such a namespace, only the decision tells whether the pod gets a drainer.
            None if injects_all => None,
            None => self
                .selection_cause(namespace)
                .or_else(|| self.age_cause(pod)),
        };
        cause.or_else(|| self.decision_cause(pod))
    }

    /// The cause if the webhook configuration does not match the namespace.
    fn selection_cause(&self, namespace: Option<&str>) -> Option<Diagnosis> {
        let (namespaces, namespace) = self.namespaces.zip(namespace)?;
        if namespaces.selected.contains(namespace) {
            return None;
        }
        let Some((unmet, remedy)) = namespaces.exclusion(namespace) else {
            return Some(Diagnosis::NotOptedIn);
        };
        let remedy = Some(remedy);
        let reason =
            format!("the webhook configuration excludes its namespace: it requires `{unmet}`");
        Some(Diagnosis::Skipped { reason, remedy })
    }

    fn age_cause(&self, pod: &Pod) -> Option<Diagnosis> {
        let created = pod.metadata.creation_timestamp.as_ref()?;
        let is_older = created.0 < self.installed_at?.0;
        is_older.then_some(Diagnosis::CreatedBeforeInstallation)
    }

    /// The cause by what the webhook would decide now.
    fn decision_cause(&self, pod: &Pod) -> Option<Diagnosis> {
        let skipped = |diagnostic: &Diagnostic| Diagnosis::Skipped {
            reason: diagnostic.to_string(),
            remedy: diagnostic.remedy(),
        };
        match self.decide(pod)? {
            Decision::NotRequested | Decision::Repair { .. } => None,
            Decision::Skip { reason, .. } => Some(skipped(&reason)),
            Decision::Deny { reasons, .. } => reasons.first().map(skipped),
            Decision::Inject { .. } => Some(Diagnosis::WebhookNotCalled),
        }
    }
}

// === impl Diagnosis ===

impl Diagnosis {
    /// The result for pods of one owner, by their names, of which there is at least one.
    pub(super) fn check_result(&self, owner: &ObjectName, names: &[String]) -> CheckResult {
        let (count, first) = (names.len(), &names[0]);
        let pods = match &*owner.kind {
            "Pod" => format!("{owner} has"),
            _ => format!("{} of {owner} {}", plural(count, "pod"), has_or_have(count)),
        };
        let namespace = owner.namespace.as_deref().unwrap_or_default();
        let without_drainer = |cause: &str| {
            CheckResult::warning("without-drainer", format!("{pods} no drainer: {cause}"))
        };
        let result = match self {
            Self::NotRunning { image, reason } => {
                let message = format!("{pods} a drainer that is not running: {reason}");
                let result = CheckResult::error("not-running", message);
                if IMAGE_PULL_REASONS.contains(&&**reason) {
                    let command = format!("kubectl describe pod {first} --namespace {namespace}");
                    result.with_command(command).with_remedy(format!(
                        "the node cannot pull {image}: check `image` in the chart's values; pods need their own pull secrets"
                    ))
                } else {
                    result.with_command(format!(
                        "kubectl logs {first} --container {CONTAINER_NAME} --namespace {namespace}"
                    ))
                }
            }
            Self::Notes(notes) | Self::Outdated(notes) => {
                CheckResult::warning("drainer", format!("{pods} a drainer: {}", notes.join("; ")))
            }
            Self::NotOptedIn => without_drainer("the namespace has not opted in")
                .with_remedy("label the namespace")
                .with_command(opt_in_command(namespace)),
            Self::Skipped { reason, remedy } => {
                without_drainer(reason).with_optional_remedy(*remedy)
            }
            Self::Recorded(skip) => {
                without_drainer(&skip.to_string()).with_remedy(skip.code.remedy())
            }
            Self::CreatedBeforeInstallation => without_drainer("created before the installation"),
            Self::WebhookNotCalled => without_drainer(
                "created while the webhook was unavailable, or before the namespace was labeled",
            ),
        };
        let result = result.with_subject(owner.clone());
        let needs_recreation = match self {
            Self::NotRunning { .. } | Self::Skipped { .. } | Self::Notes(_) => false,
            // Other pods keep a drainer that works.
            Self::Outdated(_) => RESTARTABLE.contains(&&*owner.kind),
            Self::NotOptedIn | Self::Recorded(_) => true,
            Self::CreatedBeforeInstallation | Self::WebhookNotCalled => true,
        };
        if needs_recreation {
            with_recreation(result, owner)
        } else {
            result
        }
    }
}

/// Adds to a result how to create a workload's pods again, after the remedy that it has already.
fn with_recreation(mut result: CheckResult, workload: &ObjectName) -> CheckResult {
    let recreate = match &*workload.kind {
        kind if RESTARTABLE.contains(&kind) => {
            result.restart = result.remedy.is_none().then(|| workload.clone());
            let namespace = workload.namespace.as_deref().unwrap_or_default();
            let (kind, name) = (kind.to_lowercase(), &workload.name);
            return result.with_command(format!(
                "kubectl rollout restart {kind} {name} --namespace {namespace}"
            ));
        }
        "Pod" => "delete the pod and create it again".to_owned(),
        "Job" => "delete the Job and create it again".to_owned(),
        kind @ ("ReplicaSet" | "ReplicationController") => {
            format!("delete the pods, which the {kind} then creates again")
        }
        kind => format!("recreate the pods of this {kind}"),
    };
    let remedy = match &result.remedy {
        Some(first) => format!("{first}, then {recreate}"),
        None => recreate,
    };
    result.with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::object_name::owner_name;

    fn pod(owners: &Value) -> ObjectMeta {
        let pod = json!({
            "name": "edge-5b49-2sv4r",
            "namespace": "shop",
            "labels": {"pod-template-hash": "5b49"},
            "ownerReferences": owners,
        });
        serde_json::from_value(pod).unwrap()
    }

    fn owned_by(kind: &str, name: &str) -> Value {
        json!([
            {"apiVersion": "v1", "kind": "Other", "name": "not-controller", "uid": "2"},
            {"apiVersion": "v1", "kind": kind, "name": name, "uid": "1", "controller": true},
        ])
    }

    #[test]
    fn pods_are_recreated_by_kind_of_workload() {
        let table = [
            (
                owned_by("ReplicaSet", "edge-5b49"),
                "Deployment shop/edge",
                "kubectl rollout restart deployment edge --namespace shop",
            ),
            (
                owned_by("ReplicaSet", "by-hand"),
                "ReplicaSet shop/by-hand",
                "delete the pods, which the ReplicaSet then creates again",
            ),
            (
                owned_by("StatefulSet", "db"),
                "StatefulSet shop/db",
                "kubectl rollout restart statefulset db --namespace shop",
            ),
            (
                owned_by("Job", "migrate"),
                "Job shop/migrate",
                "delete the Job and create it again",
            ),
            (
                json!(null),
                "Pod shop/edge-5b49-2sv4r",
                "delete the pod and create it again",
            ),
        ];
        for (owners, name, remedy_or_command) in table {
            let workload = owner_name("Pod", &pod(&owners));
            assert_eq!(workload.to_string(), name);
            let CheckResult {
                remedy, commands, ..
            } = with_recreation(CheckResult::warning("a", ""), &workload);
            assert_eq!(
                commands.into_iter().chain(remedy).collect::<Vec<_>>(),
                [remedy_or_command]
            );
        }
    }
}
