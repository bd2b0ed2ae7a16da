//! The admission webhook, and the API server's part in asking it.

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

/// The drainer's image, which its program stands in for.
const IMAGE: &str = "ghcr.io/envoy-drainer/drainer:0.1.0";

/// How long the webhook may take to start, or to answer.
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
    /// Starts the webhook with a certificate of its own making, and waits until it is ready.
    pub(crate) async fn start() -> Result<Self> {
        let dir = TempDir::with_prefix("webhook-")?;
        let ports = [Port::free()?, Port::free()?];
        let on_port = |port: &Port| SocketAddr::from(([127, 0, 0, 1], port.number()));
        let [listen, health] = ports.each_ref().map(on_port);
        let authority = dir.path().join("ca.pem");
        let mut command = Command::new(binaries::envoy_drainer()?);
        command
            .arg("serve")
            .arg(format!("--listen={listen}"))
            .arg(format!("--health-listen={health}"))
            .arg("--metrics-listen=127.0.0.1:0")
            .arg("--tls-name=localhost")
            .arg("--tls-ca-out")
            .arg(&authority)
            .arg(format!("--image={IMAGE}"));
        let process = Process::start("envoy-drainer", command, &dir.path().join("log"))?;
        let health = Client::from(health);
        wait_until("the webhook is ready", WEBHOOK_TIMEOUT, || async {
            ensure!(process.is_running(), "it ended as it started");
            let answer = health.get("/readyz").await;
            Ok(answer.is_ok_and(|answer| answer.status == 200))
        })
        .await
        .with_context(|| process.log())?;
        Ok(Self {
            https: HttpsClient::new(listen, &fs::read_to_string(authority)?)?,
            _process: process,
            _ports: ports,
            _dir: dir,
        })
    }

    /// Has a pod admitted, with the webhook's certificate verified. Returns the pod as the patch in
    /// the answer leaves it.
    pub(crate) async fn admit(&self, review: &Value) -> Result<Value> {
        let request = inject_request(serde_json::to_vec(review)?);
        let answer = timeout(WEBHOOK_TIMEOUT, self.https.send(request)).await;
        let answer = answer.map_err(|_| anyhow!("no answer in {WEBHOOK_TIMEOUT:?}"));
        let answer = answer.flatten().context("asking the webhook")?;
        let answer: Value = serde_json::from_slice(answer.body())?;
        let response = &answer["response"];
        ensure!(response["uid"] == review["request"]["uid"], "{answer}");
        ensure!(response["allowed"] == true, "{answer}");
        let patch = response["patch"].as_str();
        let patch = patch.with_context(|| format!("no patch: {answer}"))?;
        let patch: Patch = serde_json::from_slice(&STANDARD.decode(patch)?)?;
        let mut pod = review["request"]["object"].clone();
        json_patch::patch(&mut pod, &patch)?;
        Ok(pod)
    }
}
