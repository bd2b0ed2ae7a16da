//! Rollouts of Envoys whose listener has `drain_type: MODIFY_ONLY`, as listeners for egress and for QUIC often have. It
//! ignores failed health, so that only Envoy's drain strategy decides when clients are told to reconnect.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::load::Report;

use super::rollouts::run_rollouts;
use crate::cluster_fixture::ClusterFixture;
use crate::edge::reconfigure;

const ROLLOUTS: usize = 2;

/// Clients that keep their connections as long as Envoy does. Those with few, slow responses are rarely told by the
/// gradual strategy, and always have a request in flight.
const KEEP_ALIVE: &str = "--keep-alive 200 --http2 100 --slow-http2 2 --slow-takes 3s";

/// Rollouts with the annotation fail no request.
pub(crate) async fn immediate_strategy_loses_no_request(
    fixture: &ClusterFixture<'_>,
) -> Result<()> {
    let report = run_with_strategy(fixture, Some("immediate")).await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}

/// Rollouts without the annotation fail requests: otherwise [`immediate_strategy_loses_no_request`] would prove
/// nothing.
pub(crate) async fn default_strategy_loses_requests(fixture: &ClusterFixture<'_>) -> Result<()> {
    let report = run_with_strategy(fixture, None).await?;
    ensure!(report.failed() > 0, "no request failed:\n{report}");
    Ok(())
}

async fn run_with_strategy(fixture: &ClusterFixture<'_>, strategy: Option<&str>) -> Result<Report> {
    let modify_only = |mut deployment: Value| {
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
        Ok(deployment)
    };
    run_rollouts(fixture, modify_only, KEEP_ALIVE, ROLLOUTS).await
}
