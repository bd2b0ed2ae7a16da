//! The progress of a drain, from the drainer's own command in the pod.

use std::time::Duration;

use admission::CONTAINER_NAME;
use anyhow::Context;
use drainer::Progress;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::cluster_reader::ClusterReader;

/// For the whole call.
const DEADLINE: Duration = Duration::from_secs(5);

/// The longest status that is read, in bytes.
const MAX_STATUS: u64 = 64 << 10;

impl ClusterReader {
    /// Asks the drainer of a pod for the progress of its drain; `None` if it has just exited.
    ///
    /// # Errors
    /// If the user may not run commands in the pod, or the drainer does not answer in time.
    pub async fn drain_progress(
        &self,
        namespace: &str,
        pod: &str,
    ) -> anyhow::Result<Option<Progress>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let read = async {
            let params = AttachParams::default()
                .container(CONTAINER_NAME)
                .stderr(false);
            let command = ["/drainer", "status", "--output=json"];
            let mut process = api.exec(pod, command, &params).await?;
            let mut json = Vec::new();
            let stdout = process.stdout().context("no output")?;
            stdout.take(MAX_STATUS).read_to_end(&mut json).await?;
            Ok(serde_json::from_slice(&json).ok())
        };
        timeout(DEADLINE, read).await.context("no response")?
    }
}
