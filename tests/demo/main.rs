//! `make demo`: injects a drainer into a pod's manifest and drains a real Envoy under load, without a cluster.

mod diff;
mod monitor;
mod outcome;
mod screen;
mod shop;
mod webhook;
mod yaml;

use std::process::ExitCode;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use outcome::Comparison;
use screen::Screen;
use shop::DemoCluster;
use webhook::Webhook;

/// Runs on one thread, so that no state changes between two reads within one poll.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = tokio::select! {
        result = run_demo() => result,
        // Dropping the demo's future kills the processes that it started.
        result = wait_for_interrupt() => result,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("\ndemo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all steps. Returns true if every expectation was met.
async fn run_demo() -> Result<bool> {
    let screen = Screen::of_stdout();
    let cluster = DemoCluster::start().await?;
    screen.print_introduction();

    let review = cluster.review()?;
    let before = &review["request"]["object"];
    let after = Webhook::start().await?.admit(&review).await?;
    screen.heading(
        "1  Admission: the webhook receives this pod as from an API server and patches it:",
    );
    screen.print(&diff::render(before, &after, &screen));

    screen.heading(
        "2  With the drainer: the pod is deleted under load and terminated as the kubelet does it:",
    );
    screen.note(&cluster.describe_traffic());
    let with = cluster
        .delete_pod(parse_pod(&after)?, None, &screen)
        .await?;
    screen.note(&format!(
        "   The drainer's termination message: {}",
        with.termination_message
    ));

    screen.heading("3  Without the drainer: the unpatched pod is deleted under the same load:");
    let without = cluster
        .delete_pod(parse_pod(before)?, Some(with.load_duration()), &screen)
        .await?;

    let comparison = Comparison { with, without };
    let failures = comparison.failed_expectations();
    screen.heading(if failures.is_empty() {
        "4  Result: no request failed with the drainer."
    } else {
        "4  Result: not as expected."
    });
    comparison.print(&screen);
    for failure in &failures {
        screen.print_failure(failure);
    }
    Ok(failures.is_empty())
}

async fn wait_for_interrupt() -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    anyhow::bail!("interrupted")
}

fn parse_pod(pod: &Value) -> Result<Pod> {
    serde_json::from_value(pod.clone()).context("parsing the pod")
}
