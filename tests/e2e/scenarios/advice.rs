//! Diagnostics for the author of a workload.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment};
use crate::eventually::eventually;
use crate::namespace::Namespace;

/// `kubectl apply` of a Deployment with an invalid annotation prints a warning, since its author does not
/// see the rejection of its pods, which a controller creates.
pub(crate) async fn is_shown_by_kubectl_apply(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let good = deployment(0, upstream)?;
    let mut bad = good.clone();
    let annotations = &mut bad["spec"]["template"]["metadata"]["annotations"];
    annotations["envoy-drainer.dev/drain-timeout"] = json!("90");
    let warnings = namespace.apply(bad).await?.stderr;
    fixture.add_row("warning", warnings.trim());
    let expected = "DRN020: its pods will be denied: `envoy-drainer.dev/drain-timeout`";
    ensure!(
        warnings.contains("Warning: ") && warnings.contains(expected),
        "expected {expected:?}, not {warnings:?}"
    );
    let warnings = namespace.apply(good).await?.stderr;
    ensure!(
        warnings.is_empty(),
        "warnings about a valid workload: {warnings}"
    );
    Ok(())
}

/// If the pods of a Deployment are skipped, its ReplicaSet has an Event with the reason, since no one sees
/// the warnings about a pod that a controller creates.
pub(crate) async fn is_published_as_event(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut workload = deployment(2, upstream)?;
    let annotations = &mut workload["spec"]["template"]["metadata"]["annotations"];
    annotations["envoy-drainer.dev/envoy-container"] = json!("missing");
    let edge = EnvoyDeployment::apply(&namespace, &workload).await?;
    edge.ensure_drainers(false).await?;
    let words = ["DRN012", "envoy-container: missing"];
    wait_for_event(fixture, &namespace, "DrainerNotInjected", &words).await
}

/// Waits for an Event on a ReplicaSet whose note has these words.
pub(super) async fn wait_for_event(
    fixture: &ClusterFixture<'_>,
    namespace: &Namespace,
    reason: &str,
    words: &[&str],
) -> Result<()> {
    let selector = format!("--field-selector=reason={reason}");
    let get = ["get", "events.events.k8s.io", &selector];
    eventually("the ReplicaSet has an Event", || async {
        let events = namespace.json(&get).await?;
        let mut events = events["items"].as_array().into_iter().flatten();
        let event = events.find(|event| event["regarding"]["kind"] == "ReplicaSet");
        let note = event.and_then(|event| event["note"].as_str());
        let note = note.filter(|note| words.iter().all(|word| note.contains(word)));
        if let Some(note) = note {
            fixture.add_row("Event", note);
        }
        Ok(note.is_some())
    })
    .await
}
