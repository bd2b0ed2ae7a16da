//! Finds the cluster and the credentials, from a kubeconfig or the service account.

use std::path::PathBuf;

use kube::Config;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Why there is no client. kube's errors print their sources themselves.
#[derive(Debug, thiserror::Error)]
pub enum ClientConfigError {
    /// There is neither a service account nor a kubeconfig.
    #[error("found neither a service account nor a kubeconfig: {0}")]
    Config(InferConfigError),
    /// The kubeconfig is invalid, or has no such context.
    #[error("cannot use the kubeconfig: {0}")]
    Kubeconfig(KubeconfigError),
    /// The configuration is unusable, such as an invalid certificate.
    #[error("cannot create a client of the cluster: {0}")]
    Client(kube::Error),
}

/// Where to find the cluster: by default `KUBECONFIG`, `~/.kube/config`, or the cluster that this
/// process runs in.
#[derive(Debug, Clone, Default)]
pub struct ClientConfig {
    /// The kubeconfig instead of the default one.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig instead of its current one.
    pub context: Option<String>,
}

// === impl ClientConfig ===

impl ClientConfig {
    /// Loads the URL and the credentials.
    ///
    /// # Errors
    /// When there are none.
    pub(super) async fn load(self) -> Result<Config, ClientConfigError> {
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
