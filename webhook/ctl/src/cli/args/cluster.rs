//! The flags that choose a cluster and a namespace.

use std::path::PathBuf;

use kube::Config;

use crate::kubernetes::load_config;

/// The cluster.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// Kubeconfig, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A namespace of the cluster.
#[derive(Debug, clap::Args)]
pub struct NamespaceArgs {
    /// Namespace, instead of the context's.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

// === impl ClusterArgs ===

impl ClusterArgs {
    /// Loads the cluster's URL and the credentials.
    ///
    /// # Errors
    /// When there are none.
    pub async fn load_config(self) -> anyhow::Result<Config> {
        load_config(self.kubeconfig, self.context).await
    }
}

// === impl NamespaceArgs ===

impl NamespaceArgs {
    /// The chosen namespace, or that of the context.
    pub fn or_default(self, config: &Config) -> String {
        let default = || config.default_namespace.clone();
        self.namespace.unwrap_or_else(default)
    }
}
