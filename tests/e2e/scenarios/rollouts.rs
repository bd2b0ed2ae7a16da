//! Rollouts of an Envoy Deployment with two replicas, under load.

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::load::Report;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment, without_inject};
use crate::traffic::{MIXED, SPARSE, Traffic};

const ROLLOUTS: usize = 5;

/// Fewer than [`ROLLOUTS`], since each takes longer.
const SPARSE_ROLLOUTS: usize = 2;

/// Rollouts with drainers fail no request.
pub(crate) async fn mixed_traffic_survives(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run_rollouts(fixture, Ok, MIXED, ROLLOUTS).await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Rollouts without drainers fail requests of each kind of client: otherwise [`mixed_traffic_survives`] would prove
/// nothing.
pub(crate) async fn baseline_loses_requests_of_each_kind(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let report = run_rollouts(fixture, |it| Ok(without_inject(it)), MIXED, ROLLOUTS).await?;
    let without_failures = report.kinds.iter().find(|kind| kind.failed.is_empty());
    ensure!(
        without_failures.is_none(),
        "a kind of client had no failure:\n{report}"
    );
    Ok(())
}

/// Rollouts fail no request of sparse traffic, which often has no open connection: only then does a slow kube-proxy,
/// as in large clusters, cause failures.
pub(crate) async fn sparse_traffic_survives(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run_rollouts(fixture, Ok, SPARSE, SPARSE_ROLLOUTS).await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Restarts a Deployment with two replicas, changed by `change`, `count` times under a load of `kind`.
pub(super) async fn run_rollouts(
    fixture: &ClusterFixture<'_>,
    change: impl FnOnce(Value) -> Result<Value>,
    kind: &str,
    count: usize,
) -> Result<Report> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let deployment = change(deployment(2, upstream)?)?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment).await?;
    let traffic = Traffic::start(&namespace, "load", edge.address, kind).await?;
    for _ in 0..count {
        edge.rollout_restart().await?;
    }
    let report = traffic.stop().await?;
    fixture.report_load(&report);
    fixture.report_drains(&namespace)?;
    Ok(report)
}
