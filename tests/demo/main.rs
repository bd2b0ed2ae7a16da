//! `make demo`: from a pod's manifest to a drained Envoy, before your eyes and without a cluster.

mod diff;
mod outcome;
mod screen;
mod shop;
mod timeline;
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

/// On one thread, so that nothing happens between two looks at the same thing.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = tokio::select! {
        result = run_demo() => result,
        // Dropped, the demonstration leaves no process behind.
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

/// Shows everything. True if all went as promised.
async fn run_demo() -> Result<bool> {
    let screen = Screen::of_stdout();
    let shop = DemoCluster::start().await?;
    screen.print_introduction();

    let review = shop.review()?;
    let before = &review["request"]["object"];
    let after = Webhook::start().await?.admit(&review).await?;
    screen.heading(
        "1  The webhook is asked about such a pod, as the API server would ask, and changes it:",
    );
    screen.print(&diff::of(before, &after, &screen));

    screen.heading(
        "2  This pod is deleted in the midst of traffic, and ended as the kubelet does it:",
    );
    screen.note(&shop.describe_traffic());
    let with = shop.delete_pod(parse_pod(&after)?, None, &screen).await?;
    screen.note(&format!("   Its last words: {}", with.termination_message));

    screen.heading("3  The pod as it was, in the same traffic:");
    let without = shop
        .delete_pod(parse_pod(before)?, Some(with.length()), &screen)
        .await?;

    let outcome = Comparison { with, without };
    let broken = outcome.failed_expectations();
    screen.heading(if broken.is_empty() {
        "4  What the clients saw: with the drainer no request was lost."
    } else {
        "4  What the clients saw is not what was promised:"
    });
    outcome.print(&screen);
    for broken in &broken {
        screen.print_failure(broken);
    }
    Ok(broken.is_empty())
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
    serde_json::from_value(pod.clone()).context("the pod is not as Kubernetes has it")
}
