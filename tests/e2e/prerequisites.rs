//! The prerequisites of a run, all of which are checked before anything starts.

use std::env;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::helm::{self, Helm};
use crate::images;
use crate::kubectl::kubectl;
use crate::namespace::PREFIX;

/// Checks cluster, tools and images, and returns Helm.
///
/// # Errors
/// If something is missing: with all that is.
pub(crate) async fn check_all() -> Result<Helm> {
    let helm = helm::find_helm().await;
    let mut missing: Vec<_> = [
        check_cluster().await,
        helm::other_version().await.map(drop),
        images::load_command().map(drop),
        images::envoys().map(drop),
        images::backend().map(drop),
    ]
    .into_iter()
    .filter_map(Result::err)
    .collect();
    match helm {
        Ok(helm) if missing.is_empty() => return Ok(helm),
        Ok(_) => {}
        Err(error) => missing.push(error),
    }
    let lines = missing.iter().map(|error| format!("  {error:#}\n"));
    Err(anyhow!("cannot start:\n{}", lines.collect::<String>()))
}

/// Checks the cluster. `KUBECONFIG` has no default here, since the current context may be another cluster.
async fn check_cluster() -> Result<()> {
    let kubeconfig = env::var_os("KUBECONFIG").filter(|path| !path.is_empty());
    kubeconfig.context("KUBECONFIG is not set: a cluster for tests with load and failures")?;
    let readiness = kubectl(&["get", "--raw", "/readyz"]).await;
    readiness
        .context("kubectl cannot reach the cluster")
        .map(drop)
}

/// Returns an error if the cluster has objects of another run.
///
/// # Errors
/// If there is a release or a namespace with the prefix of a run.
pub(crate) async fn ensure_no_leftovers(helm: &Helm) -> Result<()> {
    let filter = format!("^{PREFIX}");
    let list = [
        "list",
        "--all-namespaces",
        "--output",
        "json",
        "--filter",
        &filter,
    ];
    let releases: Value = serde_json::from_str(&helm.run(&list, None).await?)?;
    let releases = releases.as_array().into_iter().flatten();
    let leftovers = releases.map(|release| {
        let (name, namespace) = (&release["name"], &release["namespace"]);
        format!("release {name}: helm uninstall {name} --namespace {namespace}")
    });
    let mut leftovers: Vec<_> = leftovers.collect();
    let namespaces = kubectl(&["get", "namespaces", "--output", "name"]).await?;
    let names = namespaces.lines().filter_map(|line| line.split_once('/'));
    let ours = names.filter(|(_, name)| name.starts_with(PREFIX));
    leftovers
        .extend(ours.map(|(_, name)| format!("namespace {name}: kubectl delete namespace {name}")));
    ensure!(
        leftovers.is_empty(),
        "another run is in progress, or one was killed and left:\n  {}",
        leftovers.join("\n  ")
    );
    Ok(())
}
