//! Pods with `wait-for-replacement`, whose successors take 20 s to become ready. [`super::drill`] drills an only one.

use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use drainer::ReplacementOutcome;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tests::load::{EchoLoad, load};

use crate::cluster_fixture::ClusterFixture;
use crate::edge::{EnvoyDeployment, annotate};
use crate::namespace::Namespace;
use crate::traffic::{Requests, disrupt_under_load};

/// How long a pod takes to become ready, in seconds.
const STARTUP: u64 = 20;

/// A request on a connection of its own every 50 ms, and one every 50 ms on kept connections.
fn clients() -> EchoLoad {
    load().connection_per_request(20.0).keep_alive(20.0)
}

/// The chart's values with the drainer API.
fn with_drainer_api() -> Value {
    json!({ "drainerAPI": { "enabled": true } })
}

/// Deploys Envoys that become ready after [`STARTUP`], with this wait.
async fn start_slow(
    namespace: &Rc<Namespace>,
    replicas: u32,
    wait: &str,
) -> Result<EnvoyDeployment> {
    EnvoyDeployment::start(namespace, replicas, |template| {
        template["spec"]["containers"][0]["readinessProbe"]["initialDelaySeconds"] = json!(STARTUP);
        annotate(template, "wait-for-replacement", wait);
        Ok(())
    })
    .await
}

/// Evicts all pods at the same moment, under load: no request fails.
async fn evict_all(fixture: &ClusterFixture<'_>, edge: &EnvoyDeployment) -> Result<()> {
    let report = disrupt_under_load(fixture, edge, clients(), async || {
        let pods = edge.pods().await?;
        try_join_all(pods.iter().map(|pod| edge.namespace.evict(pod))).await?;
        edge.wait_until_stable().await
    });
    Requests::Survive.ensure(&report.await?)
}

/// The evictions of all pods of a node at the same moment, as by `kubectl drain`, fail no request: none of them takes
/// another for its replacement.
pub(crate) async fn pods_evicted_together_lose_no_request(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let (namespace, _release) = fixture.release(with_drainer_api()).await?;
    let edge = start_slow(&namespace, 3, "60s").await?;
    evict_all(fixture, &edge).await
}

/// Without the webhook the wait lasts to its limit, which is longer than the successor takes: no request fails.
pub(crate) async fn absent_webhook_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (namespace, release) = fixture.release(with_drainer_api()).await?;
    let edge = start_slow(&namespace, 1, "30s").await?;
    release.scale(0).await?;
    evict_all(fixture, &edge).await?;
    let wait = namespace.first_summary().await?.replacement;
    let wait = wait.context("the drain has not waited")?;
    let seconds = wait.seconds;
    fixture.add_row("wait", format!("{} after {seconds} s", wait.outcome));
    ensure!(wait.outcome == ReplacementOutcome::Timeout, "{wait:?}");
    ensure!((30.0..33.0).contains(&seconds), "{seconds}");
    Ok(())
}
