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

use outcome::Outcome;
use screen::Screen;
use shop::Shop;
use webhook::Webhook;

/// One thread, on which nothing happens between two looks at the same thing.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match demonstrate().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("\ndemo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Shows everything; true if it went as promised.
async fn demonstrate() -> Result<bool> {
    let screen = Screen::of_stdout();
    let shop = Shop::open().await?;
    screen.introduce();

    let review = shop.review()?;
    let pod = &review["request"]["object"];
    let webhook = Webhook::start().await?;
    let admitted = webhook.admit(&review).await?;
    screen.heading(&format!(
        "1  The pod carries the annotation. The webhook answers over TLS in {} ms with this change:",
        admitted.took.as_millis(),
    ));
    screen.print(&diff::of(pod, &admitted.pod, &screen));

    screen
        .heading("2  The pod is deleted while clients use it, with the drainer that was injected:");
    let with = shop.end(typed(&admitted.pod)?, None, &screen).await?;
    screen.heading("3  The same pod is deleted as it was before:");
    let without = shop.end(typed(pod)?, Some(with.length()), &screen).await?;

    let outcome = Outcome { with, without };
    screen.heading("4  What the clients saw:");
    screen.print(&outcome.to_string());
    let broken = outcome.broken_promises();
    screen.conclude(&broken);
    Ok(broken.is_empty())
}

fn typed(pod: &Value) -> Result<Pod> {
    serde_json::from_value(pod.clone()).context("the pod is not as Kubernetes has it")
}
