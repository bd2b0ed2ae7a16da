//! What would become of a pod. It is never made.
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run>

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::core::Status;
use tokio::time::timeout;

use super::ClusterReader;
use super::list::api_call;
use crate::kubernetes::read_error::ReadError;

/// Longer than an API server takes to make a pod, with webhooks that do not answer: 34 s.
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/rest.go>
const DRY_RUN_DEADLINE: Duration = Duration::from_secs(40);

/// The API server's answer to a pod: as it would be, or why it is refused.
pub type DryRunResult = Result<Pod, String>;

// === impl ClusterReader ===

impl ClusterReader {
    /// Asks what would become of a pod, without making it.
    ///
    /// # Errors
    /// When whoever calls may not ask, or there is no answer.
    pub async fn dry_run_pod(&self, namespace: &str, pod: &Pod) -> Result<DryRunResult, ReadError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let call = api_call::<Pod>("create", Some(namespace));
        match timeout(DRY_RUN_DEADLINE, api.create(&params, pod)).await {
            Ok(Err(kube::Error::Api(status))) if is_pod_rejection(&status) => {
                Ok(Err(status.message))
            }
            Ok(answer) => answer
                .map(Ok)
                .map_err(|error| ReadError::from_kube(call, error)),
            Err(_) => Err(ReadError::Timeout(call)),
        }
    }
}

/// Returns true if a pod is refused for what it is, and not whoever asks for who they are.
fn is_pod_rejection(status: &Status) -> bool {
    match status.code {
        // Access rules speak of users and verbs, everyone else of the pod.
        // <https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/responsewriters/errors.go>
        403 => !status.message.contains("cannot create resource"),
        401 | 404 | 408 | 409 | 429 | 503 | 504 => false,
        code => code >= 400,
    }
}
