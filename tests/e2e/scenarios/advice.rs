//! What a person is told who writes a workload.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::echo;
use crate::edge::deployment;
use crate::stage::Stage;

/// A Deployment with a bad annotation is applied: the person at `kubectl apply` is told, who would
/// never see what becomes of its pods.
///
/// # Errors
/// When nothing is said, or something of a good one.
pub(crate) async fn comes_with_kubectl_apply(stage: &Stage<'_>) -> Result<()> {
    let namespace = stage.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let good = deployment(0, upstream)?;
    let mut bad = good.clone();
    let annotations = &mut bad["spec"]["template"]["metadata"]["annotations"];
    annotations["envoy-drainer.dev/drain-timeout"] = json!("90");
    let told = namespace.apply(bad).await?.warnings;
    stage.row("told", told.trim());
    let wanted = "DRN020: its pods will be refused: `envoy-drainer.dev/drain-timeout`";
    ensure!(
        told.contains("Warning: ") && told.contains(wanted),
        "told: {told:?}"
    );
    let told = namespace.apply(good).await?.warnings;
    ensure!(told.is_empty(), "told of a good one: {told}");
    Ok(())
}
