//! What a run needs from outside. All of it is looked for before anything starts.

use std::env;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::PREFIX;
use crate::helm::{self, Helm};
use crate::images;
use crate::kubectl::{self, kubectl};

/// Finds it, and Helm among it.
///
/// # Errors
/// When something is missing: all that is.
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

/// A default would be somebody's cluster that was not meant.
async fn check_cluster() -> Result<()> {
    let named = env::var_os("KUBECONFIG").filter(|name| !name.is_empty());
    named.context("KUBECONFIG is not set: the cluster, in which there may be load and failures")?;
    let reached = kubectl(&["get", "--raw", "/readyz"]).await;
    reached
        .context("no cluster is reached by kubectl")
        .map(drop)
}

/// Makes sure that nothing in the cluster stands in the way.
///
/// # Errors
/// When there is a release or a namespace as this run would make one.
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
    let left = releases.map(|release| {
        let (name, namespace) = (&release["name"], &release["namespace"]);
        format!("release {name}: helm uninstall {name} --namespace {namespace}")
    });
    let mut left: Vec<_> = left.collect();
    let namespaces = kubectl(&["get", "namespaces", "--output", "name"]).await?;
    let names = namespaces.lines().filter_map(|line| line.split_once('/'));
    let ours = names.filter(|(_, name)| name.starts_with(PREFIX));
    left.extend(ours.map(|(_, name)| format!("namespace {name}: kubectl delete namespace {name}")));
    ensure!(
        left.is_empty(),
        "another run is under way, or one was killed and left:\n  {}",
        left.join("\n  ")
    );
    report_other_installations().await
}

/// Tells of other installations, whose webhooks see this run's pods as well.
async fn report_other_installations() -> Result<()> {
    let all = kubectl::json(&["get", "mutatingwebhookconfigurations"]).await?;
    for configuration in all["items"].as_array().into_iter().flatten() {
        let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
        if webhooks
            .into_iter()
            .any(|webhook| webhook["name"] == "pods.envoy-drainer.dev")
        {
            let name = &configuration["metadata"]["name"];
            println!("note: {name} is installed already, and may do what is to be seen here");
        }
    }
    Ok(())
}
