//! What a person is told who writes a workload.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment};
use crate::eventually::eventually;

/// A Deployment with a bad annotation is applied: the person at `kubectl apply` is told, who would
/// never see what becomes of its pods.
///
/// # Errors
/// When nothing is said, or something of a good one.
pub(crate) async fn comes_with_kubectl_apply(stage: &ClusterFixture<'_>) -> Result<()> {
    let namespace = stage.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let good = deployment(0, upstream)?;
    let mut bad = good.clone();
    let annotations = &mut bad["spec"]["template"]["metadata"]["annotations"];
    annotations["envoy-drainer.dev/drain-timeout"] = json!("90");
    let told = namespace.apply(bad).await?.stderr;
    stage.add_row("told", told.trim());
    let wanted = "DRN020: its pods will be denied: `envoy-drainer.dev/drain-timeout`";
    ensure!(
        told.contains("Warning: ") && told.contains(wanted),
        "told: {told:?}"
    );
    let told = namespace.apply(good).await?.stderr;
    ensure!(told.is_empty(), "told of a good one: {told}");
    Ok(())
}

/// The pods of a Deployment are skipped: its ReplicaSet has an Event that says why, as nobody reads the
/// warnings of a pod that a controller made.
///
/// # Errors
/// When it has none.
pub(crate) async fn comes_by_event(stage: &ClusterFixture<'_>) -> Result<()> {
    let namespace = stage.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut astray = deployment(2, upstream)?;
    let annotations = &mut astray["spec"]["template"]["metadata"]["annotations"];
    annotations["envoy-drainer.dev/envoy-container"] = json!("nobody");
    let edge = EnvoyDeployment::apply(&namespace, &astray).await?;
    edge.ensure_drainers(false).await?;
    let selector = "--field-selector=reason=DrainerNotInjected";
    let get = ["get", "events.events.k8s.io", selector];
    eventually("there is an Event", || async {
        let events = namespace.json(&get).await?;
        let mut events = events["items"].as_array().into_iter().flatten();
        let event = events.find(|event| event["regarding"]["kind"] == "ReplicaSet");
        let note = event.and_then(|event| event["note"].as_str());
        let told = note.is_some_and(|note| {
            note.contains("DRN012") && note.contains("envoy-container: nobody")
        });
        if told {
            stage.add_row("told", note.unwrap_or_default());
        }
        Ok(told)
    })
    .await
}
