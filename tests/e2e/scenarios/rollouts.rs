//! Rollouts of two Envoys under all kinds of load.

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::load::Report;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment, without_inject};
use crate::traffic::{MIXED, SPARSE, Traffic};

const ROLLOUTS: usize = 5;

/// Fewer, since each waits for what comes late.
const SPARSE_ROLLOUTS: usize = 2;

/// With drainers, no request fails.
pub(crate) async fn lose_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = observe(fixture, |deployment| deployment, MIXED, ROLLOUTS).await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Without them, some of each kind of clients do: else the other scenario shows nothing.
pub(crate) async fn without_drainer_lose_requests_of_each_kind(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let report = observe(fixture, without_inject, MIXED, ROLLOUTS).await?;
    let unharmed = report.kinds.iter().find(|kind| kind.failed.is_empty());
    ensure!(unharmed.is_none(), "no harm was done to some:\n{report}");
    Ok(())
}

/// Where kube-proxy is late, as in a large cluster, only what leaves pauses in which
/// nothing is open shows it: no request fails.
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
