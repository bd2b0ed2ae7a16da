//! Which cluster is talked to, and as whom.

use std::path::PathBuf;

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// Why there is no cluster to talk to.
#[derive(Debug, thiserror::Error)]
pub enum NoCluster {
    /// There is neither a service account nor a kubeconfig.
    #[error("cannot find the cluster: run in a pod, or set KUBECONFIG")]
    Config(#[source] InferConfigError),
    /// The kubeconfig that was named cannot be used, or has no such context.
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[source] KubeconfigError),
    /// What tells of the cluster cannot be used.
    #[error("cannot make a client of the cluster")]
    Client(#[source] kube::Error),
}

/// The cluster that is meant: by default that of `KUBECONFIG`, of `~/.kube/config`, or the one that
/// this process runs in.
#[derive(Debug, Clone, Default)]
pub struct Which {
    /// Another kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Another context of the kubeconfig than its current one.
    pub context: Option<String>,
}

// === impl Which ===

impl Which {
    /// A client of that cluster; whether it answers is another question.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn client(self) -> Result<Client, NoCluster> {
        let options = KubeConfigOptions {
            context: self.context,
            ..KubeConfigOptions::default()
        };
        let config = match self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).map_err(NoCluster::Kubeconfig)?;
                let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
                config.map_err(NoCluster::Kubeconfig)?
            }
            None if options.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(NoCluster::Kubeconfig)?,
            None => Config::infer().await.map_err(NoCluster::Config)?,
        };
        Client::try_from(config).map_err(NoCluster::Client)
    }
}
