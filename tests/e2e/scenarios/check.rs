//! `envoy-drainer check` of a release that works, and of one that does not.

use anyhow::{Result, ensure};
use serde_json::json;
use tests::binaries;

use crate::cluster_fixture::ClusterFixture;
use crate::command;

/// The report and the exit code say that a release works, and that it does not without replicas.
pub(crate) async fn reports_whether_a_release_works(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (_, release) = fixture.release(json!({})).await?;
    let program = binaries::envoy_drainer()?;
    let configuration = release.configuration_name();
    let args = ["check", "--webhook-configuration", &configuration];
    for (replicas, code, verdict) in [
        (2, 0, "envoy-drainer works"),
        (0, 1, "envoy-drainer does not work"),
    ] {
        release.scale(replicas).await?;
        let output = command::run_unchecked(program.as_os_str(), &args, None).await?;
        let last = output.stdout.lines().last().unwrap_or_default();
        fixture.add_row(&format!("with {replicas} replicas"), last);
        let is_told = last.starts_with(verdict) && output.status.code() == Some(code);
        ensure!(is_told, "{}{}", output.stdout, output.stderr);
    }
    Ok(())
}
