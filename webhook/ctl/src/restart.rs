//! Restarts a workload, with the rights of the user.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kubernetes::{ClusterReader, DEADLINE, ReadError, api_call, now, patch, with_deadline};
use serde_json::json;

/// The kinds of Kubernetes whose pods are replaced when their template changes.
pub const RESTARTABLE: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];

/// The annotation of `kubectl rollout restart`.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// The API group of Argo Rollouts.
pub(crate) const ARGO: &str = "argoproj.io";

/// Restarts a workload as `kubectl rollout restart` does, and an Argo Rollout by `restartAt`, at which its controller
/// replaces the pods that are older: <https://argo-rollouts.readthedocs.io/en/stable/features/restart/>.
///
/// # Errors
/// If the user lacks the right to patch it, it does not exist, or there is no response.
pub async fn restart(
    reader: &ClusterReader,
    kind: &GroupVersionKind,
    namespace: &str,
    name: &str,
) -> Result<(), ReadError> {
    let now = now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let spec = match &*kind.group {
        ARGO => json!({"restartAt": now}),
        _ => json!({"template": {"metadata": {"annotations": {RESTARTED_AT: now}}}}),
    };
    let resource = ApiResource::from_gvk(kind);
    let api = Api::<DynamicObject>::namespaced_with(reader.client(), namespace, &resource);
    let call = api_call("patch", &resource.plural, Some(namespace));
    let (params, body) = (PatchParams::default(), Patch::Merge(json!({"spec": spec})));
    with_deadline(DEADLINE, call, patch(&api, name, &params, &body)).await
}
