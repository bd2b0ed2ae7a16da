//! Pods are evicted, as by `kubectl drain`.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{APP, EnvoyDeployment};
use crate::eventually::eventually;
use crate::traffic::{Requests, disrupt_under_load, mixed};

/// Evictions of all Envoys, as their PodDisruptionBudget allows, fail no request.
pub(crate) async fn evicted_envoys_lose_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": APP },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": APP } } },
    });
    namespace.apply(budget).await?;
    let edge = EnvoyDeployment::start(&namespace, 2, |_| Ok(())).await?;
    let report = disrupt_under_load(fixture, &edge, mixed(), async || {
        for pod in edge.pods().await? {
            eventually("the budget allows it", || namespace.evict(&pod)).await?;
        }
        edge.wait_until_stable().await
    })
    .await?;
    Requests::Survive.ensure(&report)
}

/// `kubectl drain` takes injected pods as it takes them without a drainer. A server-side dry run shows that, without a
/// cordon that would disturb the other scenarios.
pub(crate) async fn kubectl_drain_needs_no_flag(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let edge = EnvoyDeployment::start(&namespace, 1, |template| {
        // As most pods have it; without it there is no volume at all.
        template["spec"]["automountServiceAccountToken"] = json!(true);
        template["metadata"]["labels"]["drained"] = json!(namespace.name());
        Ok(())
    })
    .await?;
    let get = ["get", "pod", &edge.only_pod().await?];
    let pod = namespace.json(&get).await?;
    fixture.add_row("volumes", pod["spec"]["volumes"].to_string());
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let flags = "--dry-run=server --ignore-daemonsets";
    let selector = format!("--pod-selector=drained={}", namespace.name());
    let drain = format!("drain {node} {selector} {flags}");
    let output = namespace.run(&drain).await?;
    ensure!(output.contains("evicting pod"), "{output}");
    Ok(())
}
