//! How to create the pods of a workload again.

use super::report::CheckResult;
use crate::object_name::ObjectName;

/// Adds to a result how to create a workload's pods again, after the remedy that it has already.
pub(super) fn with_recreation(result: CheckResult, workload: &ObjectName) -> CheckResult {
    let ObjectName {
        kind,
        namespace,
        name,
    } = workload;
    let recreate = match &**kind {
        "Deployment" | "StatefulSet" | "DaemonSet" => {
            return result.with_command(format!(
                "kubectl rollout restart {} {name} --namespace {}",
                kind.to_lowercase(),
                namespace.as_deref().unwrap_or_default()
            ));
        }
        "Pod" => "delete the pod and create it again".to_owned(),
        "Job" => "delete the Job and create it again".to_owned(),
        "ReplicaSet" | "ReplicationController" => {
            format!("delete the pods, which the {kind} then creates again")
        }
        _ => format!("recreate the pods of this {kind}"),
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
