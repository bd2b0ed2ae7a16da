//! The flags `--kubeconfig` and `--context`, as kubectl has them.

use std::path::PathBuf;

use crate::kubernetes::ClientConfig;

/// The cluster and the credentials.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// Kubeconfig, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of its current one.
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
