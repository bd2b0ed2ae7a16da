//! Which cluster is meant, in the words of kubectl.

use std::path::PathBuf;

use crate::kubernetes::ClientConfig;

/// The cluster, and who asks.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// The kubeconfig, if not that of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, if not its current one.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_CONTEXT")]
    context: Option<String>,
}

// === impl ClientConfig ===

impl From<ClusterArgs> for ClientConfig {
    fn from(
        ClusterArgs {
            kubeconfig,
            context,
        }: ClusterArgs,
    ) -> Self {
        Self {
            kubeconfig,
            context,
        }
    }
}
