//! The Job that sends the load of a drill.

use k8s_openapi::api::batch::v1::Job;
use serde_json::json;

use load::job::LoadJob;

/// The label of a drill's Jobs and their pods.
pub(super) const LABEL: &str = "app.kubernetes.io/name";

/// Its value, and the beginning of the Job's name.
pub(super) const NAME: &str = "envoy-drainer-drill";

/// A Job that runs `envoy-drainer load` once, under the Pod Security Standard *restricted*, for so many seconds at
/// most.
///
/// # Panics
/// Never: the object is constant but for texts.
pub(super) fn job(image: &str, load: &LoadJob, max_seconds: u64) -> Job {
    let load = serde_json::to_string(load).expect("keys of maps are strings");
    let labels = json!({LABEL: NAME});
    let job = json!({
        "metadata": {"generateName": format!("{NAME}-"), "labels": labels},
        "spec": {
            "backoffLimit": 0,
            // If this process ends without its clean-up.
            "activeDeadlineSeconds": max_seconds,
            "ttlSecondsAfterFinished": 60,
            "template": {
                "metadata": {
                    "labels": labels,
                    // A mesh's proxy would retry requests, and keep the pod running.
                    "annotations": {"linkerd.io/inject": "disabled", "sidecar.istio.io/inject": "false"},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": "load",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "args": ["load", load],
                        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    });
    serde_json::from_value(job).expect("the object is a Job")
}
