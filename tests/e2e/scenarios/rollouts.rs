//! Rollouts of two Envoys under load.

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::load::Report;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment, without_inject};
use crate::traffic::{MIXED, SPARSE, Traffic};

const ROLLOUTS: usize = 5;

/// Fewer, since each takes longer.
const SPARSE_ROLLOUTS: usize = 2;

/// Rollouts with drainers fail no request.
pub(crate) async fn lose_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = observe(fixture, |deployment| deployment, MIXED, ROLLOUTS).await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Rollouts without drainers fail requests of each kind of client: otherwise [`lose_no_request`] would prove
/// nothing.
pub(crate) async fn without_drainer_lose_requests_of_each_kind(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let report = observe(fixture, without_inject, MIXED, ROLLOUTS).await?;
    let without_failures = report.kinds.iter().find(|kind| kind.failed.is_empty());
    ensure!(
        without_failures.is_none(),
        "a kind of client had no failure:\n{report}"
    );
    Ok(())
}

/// Rollouts fail no request of sparse traffic. Only with such traffic, which leaves moments without any open
/// connection, does a slow kube-proxy, as in a large cluster, show as failures.
pub(crate) async fn of_sparse_traffic_lose_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = observe(fixture, |deployment| deployment, SPARSE, SPARSE_ROLLOUTS).await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

async fn observe(
    fixture: &ClusterFixture<'_>,
    workload: impl FnOnce(Value) -> Value,
    traffic: &str,
    rollouts: usize,
) -> Result<Report> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &workload(deployment(2, upstream)?)).await?;
    let traffic = Traffic::start(&namespace, "load", edge.address, traffic).await?;
    for _ in 0..rollouts {
        edge.rollout_restart().await?;
    }
    let report = traffic.stop().await?;
    fixture.add_load(&report);
    fixture.add_drains(&namespace)?;
    Ok(report)
}
