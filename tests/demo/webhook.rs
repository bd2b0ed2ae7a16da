//! The admission webhook, and the API server's part in asking it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Request;
use json_patch::Patch;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tempfile::TempDir;
use tests::built;
use tests::http::{Client, exchange_on};
use tests::port::Port;
use tests::process::Process;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

/// The name in the webhook's certificate.
const NAME: &str = "localhost";

/// The drainer's image; here its program stands in for it.
const IMAGE: &str = "ghcr.io/envoy-drainer/drainer:0.1.0";

/// How long the webhook may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running `envoy-drainer serve`.
pub struct Webhook {
    _process: Process,
    port: Port,
    authority: PathBuf,
    _dir: TempDir,
}

/// A pod after its admission.
pub struct Admitted {
    /// The pod as the patch leaves it.
    pub pod: Value,
    /// From the connection to the whole answer.
    pub took: Duration,
}

// === impl Webhook ===

impl Webhook {
    /// Starts the webhook with a certificate of its own making, and waits until it is ready.
    pub async fn start() -> Result<Self> {
        let dir = TempDir::with_prefix("webhook-")?;
        let (port, health) = (Port::free()?, Port::free()?);
        let authority = dir.path().join("ca.pem");
        let mut command = Command::new(built::envoy_drainer()?);
        command
            .arg("serve")
            .arg(format!("--listen=127.0.0.1:{}", port.number()))
            .arg(format!("--health-listen=127.0.0.1:{}", health.number()))
            .arg(format!("--tls-name={NAME}"))
            .arg("--tls-ca-out")
            .arg(&authority)
            .arg(format!("--image={IMAGE}"));
        let process = Process::start("envoy-drainer", command, &dir.path().join("log"))?;
        let health = Client::from(SocketAddr::from(([127, 0, 0, 1], health.number())));
        let ready = async {
            loop {
                match health.get("/readyz").await {
                    Ok(answer) if answer.status == 200 => break,
                    _ if !process.is_running() => break,
                    _ => sleep(Duration::from_millis(20)).await,
                }
            }
        };
        let waited = timeout(PATIENCE, ready).await;
        ensure!(
            waited.is_ok() && process.is_running(),
            "the webhook is not ready:\n{}",
            process.log()
        );
        Ok(Self {
            _process: process,
            port,
            authority,
            _dir: dir,
        })
    }

    /// Has a pod admitted, as the API server does it: with the webhook's certificate verified, and
    /// the patch of its answer applied.
    pub async fn admit(&self, review: &Value) -> Result<Admitted> {
        let start = Instant::now();
        let answer = timeout(PATIENCE, self.ask(review)).await;
        let answer = answer.map_err(|_| anyhow!("no answer in {PATIENCE:?}"));
        let answer = answer.flatten().context("asking the webhook")?;
        let took = start.elapsed();
        let response = &answer["response"];
        ensure!(response["uid"] == review["request"]["uid"], "{answer}");
        ensure!(response["allowed"] == true, "{answer}");
        let patch = response["patch"].as_str();
        let patch = patch.with_context(|| format!("no patch: {answer}"))?;
        let patch: Patch = serde_json::from_slice(&STANDARD.decode(patch)?)?;
        let mut pod = review["request"]["object"].clone();
        json_patch::patch(&mut pod, &patch)?;
        Ok(Admitted { pod, took })
    }

    async fn ask(&self, review: &Value) -> Result<Value> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.authority)?)?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(("127.0.0.1", self.port.number())).await?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector
            .connect(ServerName::try_from(NAME)?, stream)
            .await?;
        let request = Request::post("/inject")
            .header("host", NAME)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(review)?.into())?;
        let answer = exchange_on(stream, request).await?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(serde_json::from_str(&answer.body)?)
    }
}
