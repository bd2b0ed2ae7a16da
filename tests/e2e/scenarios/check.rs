//! `envoy-drainer check` of a release that works, and of one that does not.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::binaries;

use crate::cluster_fixture::ClusterFixture;
use crate::command;
use crate::release::Release;

/// The report and the exit code say that a release works, and that it does not without replicas.
pub(crate) async fn reports_whether_a_release_works(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (_, release) = fixture.release(json!({})).await?;
    let healthy = run_check(&release).await?;
    ensure!(healthy.code == Some(0), "with replicas: {healthy:#?}");
    fixture.add_row("exit code with replicas", "0");
    release.scale(0).await?;
    let unhealthy = run_check(&release).await?;
    ensure!(
        unhealthy.code == Some(1),
        "without replicas: {unhealthy:#?}"
    );
    ensure!(!unhealthy.errors.is_empty(), "no errors without replicas");
    fixture.add_row(
        "exit code without replicas",
        format!("1: {}", unhealthy.errors.join("; ")),
    );
    Ok(())
}

/// The exit code and the report of `check`.
#[derive(Debug)]
struct CheckOutput {
    code: Option<i32>,
    /// The messages of all results with severity error.
    errors: Vec<String>,
}

async fn run_check(release: &Release) -> Result<CheckOutput> {
    let program = binaries::envoy_drainer()?;
    let args = [
        "check",
        "--output=json",
        "--webhook-configuration",
        release.name(),
    ];
    let output = command::run_unchecked(program.as_os_str(), &args, None).await?;
    let report: Value = serde_json::from_str(&output.stdout).context(output.stderr)?;
    let sections = report["sections"].as_array().into_iter().flatten();
    let results = sections
        .filter_map(|section| section["results"].as_array())
        .flatten();
    let errors = results.filter(|result| result["severity"] == "error");
    Ok(CheckOutput {
        code: output.status.code(),
        errors: errors
            .map(|result| result["message"].as_str().unwrap_or_default().to_owned())
            .collect(),
    })
}
