//! Rollouts, scalings and deletions of two Envoys under load. Those whose listener has `drain_type: MODIFY_ONLY`, as
//! listeners for egress and for QUIC often have, ignore failed health, so that only Envoy's drain strategy decides when
//! clients are told to reconnect.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::load::{EchoLoad, Report, load};

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{EnvoyDeployment, annotate, reconfigure, remove_inject};
use crate::traffic::{Requests, disrupt_under_load, mixed, roll_under_load};

const ROLLOUTS: usize = 5;

const MODIFY_ONLY_ROLLOUTS: usize = 2;

const SCALINGS: usize = 10;

/// Clients that keep their connections as long as Envoy does. Those with few, slow responses are rarely told by the
/// gradual strategy, and always have a request in flight.
fn keep_alive() -> EchoLoad {
    load()
        .keep_alive(200.0)
        .http2(100.0)
        .slow_http2(2.0, Duration::from_secs(3))
}

/// Rollouts with drainers fail no request.
pub(crate) async fn mixed_traffic_survives(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run_rollouts(fixture, |_| Ok(()), mixed(), ROLLOUTS).await?;
    Requests::Survive.ensure(&report)
}

/// Rollouts without drainers fail requests of each kind of client: otherwise [`mixed_traffic_survives`] would prove
/// nothing.
pub(crate) async fn baseline_loses_requests_of_each_kind(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let report = run_rollouts(fixture, remove_inject, mixed(), ROLLOUTS).await?;
    let without_failures = report.kinds.iter().find(|kind| kind.failed.is_empty());
    ensure!(
        without_failures.is_none(),
        "a kind of client had no failure:\n{report}"
    );
    Ok(())
}

/// Rollouts of MODIFY_ONLY listeners with this drain strategy, or Envoy's own.
pub(crate) async fn of_modify_only_listeners(
    fixture: &ClusterFixture<'_>,
    strategy: Option<&str>,
    requests: Requests,
) -> Result<()> {
    let modify_only = |template: &mut Value| {
        // Long enough for clients that are told to reconnect.
        annotate(template, "drain-timeout", "20s");
        if let Some(strategy) = strategy {
            annotate(template, "drain-strategy", strategy);
        }
        reconfigure(template, |bootstrap| {
            bootstrap["static_resources"]["listeners"][0]["drain_type"] = json!("MODIFY_ONLY");
        })
    };
    let report = run_rollouts(fixture, modify_only, keep_alive(), MODIFY_ONLY_ROLLOUTS).await?;
    requests.ensure(&report)
}

/// Scaling down and up ten times, with a request every 50 ms, fails none.
pub(crate) async fn scaling_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let clients = load().connection_per_request(20.0);
    let edge = start(fixture, |_| Ok(())).await?;
    let report = disrupt_under_load(fixture, &edge, clients, async || {
        for _ in 0..SCALINGS {
            edge.scale(1).await?;
            edge.scale(2).await?;
        }
        Ok(())
    })
    .await?;
    Requests::Survive.ensure(&report)
}

/// `kubectl delete --grace-period=8`, a shorter one than that of the pods, fails no request of up to 5 s.
pub(crate) async fn short_deletions_lose_no_request_of_5_s(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let clients = load()
        .slow(8.0, Duration::from_secs(5))
        .connection_per_request(20.0);
    let clients = clients.request_timeout(Duration::from_secs(15));
    let edge = start(fixture, |_| Ok(())).await?;
    let report = disrupt_under_load(fixture, &edge, clients, async || {
        for pod in edge.pods().await? {
            let delete = ["delete", "pod", &pod, "--grace-period=8"];
            edge.namespace.kubectl(&delete).await?;
            edge.wait_until_stable().await?;
        }
        Ok(())
    })
    .await?;
    Requests::Survive.ensure(&report)
}

/// Restarts a Deployment, whose pod template is changed by `change`, `count` times under a load.
async fn run_rollouts(
    fixture: &ClusterFixture<'_>,
    change: impl FnOnce(&mut Value) -> Result<()>,
    load: EchoLoad,
    count: usize,
) -> Result<Report> {
    let edge = start(fixture, change).await?;
    roll_under_load(fixture, &edge, load, count).await
}

/// Deploys two replicas into the scenario's namespace.
async fn start(
    fixture: &ClusterFixture<'_>,
    change: impl FnOnce(&mut Value) -> Result<()>,
) -> Result<EnvoyDeployment> {
    EnvoyDeployment::start(&fixture.namespace().await?, 2, change).await
}
