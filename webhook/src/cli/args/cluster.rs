//! The flags `--kubeconfig` and `--context`, as kubectl has them.

use std::path::PathBuf;

/// The cluster and the credentials.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// Kubeconfig, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE", env = "ENVOY_DRAINER_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of its current one.
    #[arg(long, value_name = "NAME", env = "ENVOY_DRAINER_CONTEXT")]
    pub context: Option<String>,
}
