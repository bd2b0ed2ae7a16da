//! Dry-run creation of a pod.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::core::Status;

use super::ClusterReader;
use super::list::{api_call, with_deadline};
use crate::kubernetes::read_error::ReadError;

/// Longer than an API server takes to create a pod while webhooks do not respond: 34 s.
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/rest.go>
const DRY_RUN_DEADLINE: Duration = Duration::from_secs(40);

/// The pod as it would be created, or the message of its rejection.
pub type DryRunResult = Result<Pod, String>;

// === impl ClusterReader ===

impl ClusterReader {
    /// Creates a pod as a dry run.
    ///
    /// # Errors
    /// When the user may not create pods, or there is no response.
    pub async fn dry_run_pod(&self, namespace: &str, pod: &Pod) -> Result<DryRunResult, ReadError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        // Without the namespace, so that one error of several namespaces is reported once.
        let call = api_call::<Pod>("create", None);
        let response = async {
            match api.create(&params, pod).await {
                Err(kube::Error::Api(status)) if is_pod_rejection(&status) => {
                    Ok(Err(status.message))
                }
                created => created.map(Ok),
            }
        };
        with_deadline(DRY_RUN_DEADLINE, call, response).await
    }
}

/// Returns true if the pod is rejected, and not the user.
fn is_pod_rejection(status: &Status) -> bool {
    match status.code {
        // RBAC names the user and the verb, policies name the pod.
        // <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/responsewriters/errors.go>
        403 => !status.message.contains("cannot create resource"),
        401 | 404 | 408 | 409 | 429 | 503 | 504 => false,
        code => code >= 400,
    }
}
