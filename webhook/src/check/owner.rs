//! Whose pods these are, and how one has them made anew.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::report::{CheckResult, Subject};

/// Whom one would have to tell to make an object of this kind, a pod or a ReplicaSet, anew. A pod's
/// Deployment is known by the name of its ReplicaSet.
pub(super) fn owner(kind: &str, object: &ObjectMeta) -> Subject {
    let namespace = object.namespace.clone();
    let references = object.owner_references.iter().flatten();
    let mut controllers = references.filter(|reference| reference.controller == Some(true));
    let Some(owner) = controllers.next() else {
        let name = object.name.clone().unwrap_or_default();
        let kind = kind.to_owned();
        return Subject {
            kind,
            namespace,
            name,
        };
    };
    let labels = object.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get("pod-template-hash"));
    let deployment = hash.filter(|_| owner.kind == "ReplicaSet");
    let deployment =
        deployment.and_then(|hash| owner.name.strip_suffix(&**hash)?.strip_suffix('-'));
    let (kind, name) = match deployment {
        Some(deployment) => ("Deployment", deployment),
        None => (&*owner.kind, &*owner.name),
    };
    Subject {
        kind: kind.to_owned(),
        namespace,
        name: name.to_owned(),
    }
}

/// The same with what makes the pods of an owner anew.
pub(super) fn recreate_remedy(point: CheckResult, owner: &Subject) -> CheckResult {
    let Subject {
        kind,
        namespace,
        name,
    } = owner;
    let namespace = namespace.as_deref().unwrap_or_default();
    match &**kind {
        "Deployment" | "StatefulSet" | "DaemonSet" => point.command(format!(
            "kubectl rollout restart {} {name} --namespace {namespace}",
            kind.to_lowercase()
        )),
        "Pod" => point.remedy("delete the pod and make it anew"),
        _ => point.remedy(format!("have its {kind} make new pods")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
            {"apiVersion": "v1", "kind": "Other", "name": "no-controller", "uid": "2"},
            {"apiVersion": "v1", "kind": kind, "name": name, "uid": "1", "controller": true},
        ])
    }

    #[test]
    fn each_owner_has_its_way_to_new_pods() {
        let table = [
            (
                owned_by("ReplicaSet", "edge-5b49"),
                "Deployment shop/edge",
                "kubectl rollout restart deployment edge --namespace shop",
            ),
            (
                owned_by("ReplicaSet", "by-hand"),
                "ReplicaSet shop/by-hand",
                "have its ReplicaSet make new pods",
            ),
            (
                owned_by("StatefulSet", "db"),
                "StatefulSet shop/db",
                "kubectl rollout restart statefulset db --namespace shop",
            ),
            (
                owned_by("Job", "migrate"),
                "Job shop/migrate",
                "have its Job make new pods",
            ),
            (
                json!(null),
                "Pod shop/edge-5b49-2sv4r",
                "delete the pod and make it anew",
            ),
        ];
        for (owners, whose, how) in table {
            let owner = owner("Pod", &pod(&owners));
            assert_eq!(owner.to_string(), whose);
            let CheckResult {
                remedy, commands, ..
            } = recreate_remedy(CheckResult::warning("a", ""), &owner);
            assert_eq!(
                commands.into_iter().chain(remedy).collect::<Vec<_>>(),
                [how]
            );
        }
    }
}
