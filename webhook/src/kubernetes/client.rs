//! Which cluster is talked to, and as whom.

use std::path::PathBuf;

use kube::Config;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Why there is no cluster to talk to. kube's errors tell their sources themselves.
#[derive(Debug, thiserror::Error)]
pub enum ClientConfigError {
    /// There is neither a service account nor a kubeconfig.
    #[error("cannot find the cluster, neither as a pod nor by a kubeconfig: {0}")]
    Config(InferConfigError),
    /// The kubeconfig that was named cannot be used, or has no such context.
    #[error("cannot use the kubeconfig: {0}")]
    Kubeconfig(KubeconfigError),
    /// What tells of the cluster cannot be used.
    #[error("cannot make a client of the cluster: {0}")]
    Client(kube::Error),
}

/// The cluster that is meant: by default that of `KUBECONFIG`, of `~/.kube/config`, or the one that
/// this process runs in.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// Another kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Another context of the kubeconfig than its current one.
    pub context: Option<String>,
}

// === impl ClientConfig ===

impl ClientConfig {
    /// Where that cluster is, and who asks.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn config(self) -> Result<Config, ClientConfigError> {
        let options = KubeConfigOptions {
            context: self.context,
            ..KubeConfigOptions::default()
        };
        match self.kubeconfig {
            Some(path) => {
                let kubeconfig =
                    Kubeconfig::read_from(path).map_err(ClientConfigError::Kubeconfig)?;
                let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
                config.map_err(ClientConfigError::Kubeconfig)
            }
            None if options.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(ClientConfigError::Kubeconfig),
            None => Config::infer().await.map_err(ClientConfigError::Config),
        }
    }
}
