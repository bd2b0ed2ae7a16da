//! `envoy-drainer check`, asked about a release that works and about one that does not.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::binaries;

use crate::cluster_fixture::ClusterFixture;
use crate::command;
use crate::release::Release;

/// It says that a release works until that has no replica left, and so does its exit code.
pub(crate) async fn reports_whether_a_release_works(fixture: &ClusterFixture<'_>) -> Result<()> {
    let (_, release) = fixture.release(json!({})).await?;
    let well = run_check(&release).await?;
    ensure!(well.code == Some(0), "of one that works: {well:#?}");
    fixture.add_row("of a release that works", "0");
    release.scale(0).await?;
    let ill = run_check(&release).await?;
    ensure!(ill.code == Some(1), "without replicas: {ill:#?}");
    ensure!(!ill.errors.is_empty(), "nothing is wrong without replicas");
    fixture.add_row(
        "of one without replicas",
        format!("1: {}", ill.errors.join("; ")),
    );
    Ok(())
}

/// What it said.
#[derive(Debug)]
struct CheckOutput {
    code: Option<i32>,
    /// Of all points, those that are errors.
    errors: Vec<String>,
}

async fn run_check(release: &Release) -> Result<CheckOutput> {
    let program = binaries::envoy_drainer()?;
    let asked = [
        "check",
        "--output=json",
        "--webhook-configuration",
        release.name(),
    ];
    let told = command::run_unchecked(program.as_os_str(), &asked, None).await?;
    let report: Value = serde_json::from_str(&told.stdout).context(told.stderr)?;
    let sections = report["sections"].as_array().into_iter().flatten();
    let points = sections
        .filter_map(|section| section["points"].as_array())
        .flatten();
    let errors = points.filter(|point| point["mark"] == "error");
    Ok(CheckOutput {
        code: told.status.code(),
        errors: errors
            .map(|point| point["message"].as_str().unwrap_or_default().to_owned())
            .collect(),
    })
}
