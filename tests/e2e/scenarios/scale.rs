//! Two Envoys that are scaled to one and back, with a request every 50 ms.

use anyhow::{Result, ensure};

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment};
use crate::traffic::Traffic;

const REPETITIONS: usize = 10;

/// Scaling down and up ten times fails no request.
pub(crate) async fn down_and_up_loses_no_request(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment(2, upstream)?).await?;
    let each_50_ms = "--connection-each 20";
    let traffic = Traffic::start(&namespace, "load", edge.address, each_50_ms).await?;
    for _ in 0..REPETITIONS {
        edge.scale(1).await?;
        edge.scale(2).await?;
    }
    let report = traffic.stop().await?;
    fixture.report_load(&report);
    fixture.report_drains(&namespace)?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}
