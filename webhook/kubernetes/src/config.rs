//! Where a cluster is, and the credentials for it: from a kubeconfig or the service account.

use std::env;
use std::error::Error as _;
use std::path::PathBuf;

use anyhow::anyhow;
use k8s_openapi::jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use pki::clock::wall_clock;

/// Kubernetes sets it in each container.
/// <https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// The time, as the API's objects state it.
pub fn now() -> Timestamp {
    Timestamp::try_from(wall_clock()).unwrap_or_default()
}

/// Loads the URL of the cluster and the credentials: from this kubeconfig and context, where they are given, instead of
/// `KUBECONFIG`, `~/.kube/config`, or the cluster that this process runs in.
///
/// # Errors
/// When there are none. kube's errors print their sources themselves.
pub async fn load_config(
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
) -> anyhow::Result<Config> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let invalid = |error: KubeconfigError| anyhow!("cannot use the kubeconfig: {error}");
    if let Some(path) = kubeconfig {
        let kubeconfig = Kubeconfig::read_from(path).map_err(invalid)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        return config.map_err(invalid);
    }
    if options.context.is_some() {
        return Config::from_kubeconfig(&options).await.map_err(invalid);
    }
    let config = Config::infer().await;
    config.map_err(|error| match error.source() {
        // Outside of a cluster the error of the service account says nothing.
        Some(kubeconfig) if env::var_os(SERVICE_HOST).is_none() => {
            anyhow!("{kubeconfig}; name a kubeconfig with --kubeconfig or KUBECONFIG")
        }
        _ => anyhow!("found neither a service account nor a kubeconfig: {error}"),
    })
}

/// Creates a client. It does not connect yet.
///
/// # Errors
/// When the configuration is unusable, such as an invalid certificate.
pub fn connect(config: Config) -> anyhow::Result<Client> {
    Client::try_from(config)
        .map_err(|error| anyhow!("cannot create a client of the cluster: {error}"))
}
