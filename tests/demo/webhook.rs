//! Runs the admission webhook and calls it as an API server does.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde_json::Value;
use tempfile::TempDir;
use tests::binaries;
use tests::http::Client;
use tests::https::{HttpsClient, inject_request};
use tests::port::Port;
use tests::process::Process;
use tests::until::wait_until;
use tokio::process::Command;
use tokio::time::timeout;

/// The drainer's image in the patch; the demo runs the drainer's binary in its place.
const IMAGE: &str = "ghcr.io/envoy-drainer/drainer:0.1.0";

/// How long the webhook may take to start, or to respond.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// A running `envoy-drainer serve`.
pub(crate) struct Webhook {
    https: HttpsClient,
    _process: Process,
    _ports: [Port; 2],
    _dir: TempDir,
}

// === impl Webhook ===

impl Webhook {
    /// Starts the webhook with an in-memory CA, and waits until it is ready.
    pub(crate) async fn start() -> Result<Self> {
        let dir = TempDir::with_prefix("webhook-")?;
        let ports = [Port::free()?, Port::free()?];
        let address = |port: &Port| SocketAddr::from(([127, 0, 0, 1], port.number()));
        let [listen, health] = ports.each_ref().map(address);
        let ca_file = dir.path().join("ca.pem");
        let mut command = Command::new(binaries::envoy_drainer()?);
        command
            .arg("serve")
            .arg(format!("--listen={listen}"))
            .arg(format!("--health-listen={health}"))
            .arg("--metrics-listen=127.0.0.1:0")
            .arg("--tls-name=localhost")
            .arg("--tls-ca-out")
            .arg(&ca_file)
            .arg(format!("--image={IMAGE}"));
        let process = Process::start("envoy-drainer", command, &dir.path().join("log"))?;
        let health = Client::from(health);
        wait_until("the webhook is ready", WEBHOOK_TIMEOUT, || async {
            ensure!(process.is_running(), "the webhook exited during startup");
            let response = health.get("/readyz").await;
            Ok(response.is_ok_and(|response| response.status == 200))
        })
        .await
        .with_context(|| process.log())?;
        Ok(Self {
            https: HttpsClient::new(listen, &fs::read_to_string(ca_file)?)?,
            _process: process,
            _ports: ports,
            _dir: dir,
        })
    }

    /// Sends an AdmissionReview, with the webhook's certificate verified. Returns the pod with the
    /// response's patch applied.
    pub(crate) async fn admit(&self, review: &Value) -> Result<Value> {
        let request = inject_request(serde_json::to_vec(review)?);
        let response = timeout(WEBHOOK_TIMEOUT, self.https.send(request)).await;
        let response = response.map_err(|_| anyhow!("no response within {WEBHOOK_TIMEOUT:?}"));
        let response = response.flatten().context("calling the webhook")?;
        let body: Value = serde_json::from_slice(response.body())?;
        let response = &body["response"];
        ensure!(
            response["uid"] == review["request"]["uid"],
            "another uid: {body}"
        );
        ensure!(response["allowed"] == true, "not allowed: {body}");
        let patch = response["patch"].as_str();
        let patch = patch.with_context(|| format!("no patch: {body}"))?;
        let patch: Patch = serde_json::from_slice(&STANDARD.decode(patch)?)?;
        let mut pod = review["request"]["object"].clone();
        json_patch::patch(&mut pod, &patch)?;
        Ok(pod)
    }
}
