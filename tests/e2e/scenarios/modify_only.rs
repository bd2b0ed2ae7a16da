//! Rollouts of Envoys whose listener has `drain_type: MODIFY_ONLY`, as listeners for egress and for QUIC often have. It
//! ignores failed health, so that only Envoy's drain strategy decides when clients are told to reconnect.

use anyhow::{Result, ensure};
use serde_json::json;
use tests::load::Report;

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment, reconfigure};
use crate::traffic::Traffic;

const ROLLOUTS: usize = 2;

/// Clients that keep their connections as long as Envoy does.
const KEEP_ALIVE: &str = "--keep-alive 200 --http2 100";

/// Rollouts with the annotation fail no request.
pub(crate) async fn immediate_strategy_loses_no_request(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let report = run_rollouts(fixture, Some("immediate")).await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Rollouts without the annotation fail requests: otherwise [`immediate_strategy_loses_no_request`] would prove
/// nothing.
pub(crate) async fn default_strategy_loses_requests(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run_rollouts(fixture, None).await?;
    ensure!(report.failed() > 0, "no request failed:\n{report}");
    Ok(())
}

async fn run_rollouts(fixture: &ClusterFixture<'_>, strategy: Option<&str>) -> Result<Report> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let mut deployment = deployment(2, upstream)?;
    let template = &mut deployment["spec"]["template"];
    reconfigure(template, |bootstrap| {
        bootstrap["static_resources"]["listeners"][0]["drain_type"] = json!("MODIFY_ONLY");
    })?;
    let annotations = &mut template["metadata"]["annotations"];
    // Long enough for clients that are told to reconnect.
    annotations["envoy-drainer.dev/drain-timeout"] = json!("20s");
    if let Some(strategy) = strategy {
        annotations["envoy-drainer.dev/drain-strategy"] = json!(strategy);
    }
    let edge = EnvoyDeployment::deploy(&namespace, &deployment).await?;
    let traffic = Traffic::start(&namespace, "load", edge.address, KEEP_ALIVE).await?;
    for _ in 0..ROLLOUTS {
        edge.rollout_restart().await?;
    }
    let report = traffic.stop().await?;
    fixture.report_load(&report);
    fixture.report_drains(&namespace)?;
    Ok(report)
}
