//! Calls the admission webhook as an API server does, and prints its patch.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tests::binaries;
use tests::webhook_process::WebhookProcess;
use tokio::time::timeout;

/// The drainer's image in the patch; the demo runs the drainer's binary in its place.
const IMAGE: &str = "localhost/drainer:0.1.0";

/// How long the webhook may take to respond.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a line, in characters.
const WIDTH: usize = 99;

/// Starts `envoy-drainer serve`, and sends it an AdmissionReview, with its certificate verified. Returns the JSON patch
/// of the response.
pub(crate) async fn admit(review: &Value) -> Result<Value> {
    let program = binaries::envoy_drainer()?;
    let webhook = WebhookProcess::run(None, |addresses| addresses.serve(&program, IMAGE)).await?;
    let response = timeout(TIMEOUT, webhook.https.inject(serde_json::to_vec(review)?))
        .await
        .context("the webhook did not respond in time")?
        .context("calling the webhook")?;
    let body: Value = serde_json::from_slice(response.body())?;
    let response = &body["response"];
    ensure!(
        response["uid"] == review["request"]["uid"],
        "another uid: {body}"
    );
    ensure!(response["allowed"] == true, "not allowed: {body}");
    let patch = response["patch"].as_str();
    let patch = patch.with_context(|| format!("no patch: {body}"))?;
    Ok(serde_json::from_slice(&STANDARD.decode(patch)?)?)
}

/// Renders an operation of a patch in one line, which may end before the value.
pub(crate) fn render(operation: &str, path: &str, value: &Value) -> String {
    let line = format!("   {operation} {path} {value}");
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
