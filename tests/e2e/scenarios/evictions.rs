//! Pods are evicted, as by `kubectl drain`.

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::try_join;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{APP, EnvoyDeployment, deployment};
use crate::eventually::eventually;
use crate::namespace::Namespace;
use crate::release::Release;
use crate::traffic::{MIXED, Traffic};

/// Evictions of all Envoys, as their PodDisruptionBudget allows, fail no request.
pub(crate) async fn evicted_envoys_lose_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": APP },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": APP } } },
    });
    namespace.apply(budget).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment(2, upstream)?).await?;
    let traffic = Traffic::start(&namespace, "load", edge.address, MIXED).await?;
    for pod in edge.pods().await? {
        evict(&namespace, &pod).await?;
    }
    edge.wait_until_stable().await?;
    let report = traffic.stop().await?;
    fixture.report_load(&report);
    fixture.report_drains(&namespace)?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Evictions of all of the webhook's pods during rollouts of Envoys fail no request, and every new pod gets a
/// drainer.
pub(crate) async fn evicted_webhook_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(json!({})).await?;
    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment(2, upstream)?).await?;
    let traffic = Traffic::start(&namespace, "load", edge.address, MIXED).await?;
    let rollouts = async {
        for _ in 0..2 {
            edge.rollout_restart().await?;
            edge.ensure_drainers(true).await?;
        }
        Ok(())
    };
    try_join!(rollouts, evict_each(&release))?;
    let report = traffic.stop().await?;
    fixture.report_load(&report);
    fixture.report_drains(&namespace)?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

async fn evict_each(release: &Release) -> Result<()> {
    for pod in release.pods().await? {
        evict(&release.namespace, &pod).await?;
        release.wait_until_ready().await?;
    }
    Ok(())
}

async fn evict(namespace: &Namespace, pod: &str) -> Result<()> {
    eventually("the budget allows an eviction", || namespace.evict(pod)).await
}
