//! Prometheus and promtool, if they are installed.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command as BlockingCommand, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};
use form_urlencoded::byte_serialize;
use hyper::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::http::Client;
use crate::port::Port;
use crate::process::Process;
use crate::timing::TIMEOUT;
use crate::until::wait_until;

/// The programs of one installation of Prometheus.
const PROGRAMS: [&str; 2] = ["prometheus", "promtool"];

/// A Prometheus that scrapes one target four times a second.
#[derive(Debug)]
pub struct Prometheus {
    client: Client,
    _process: Process,
    _port: Port,
    _dir: TempDir,
}

/// Returns true if Prometheus and promtool are on `PATH`. Without them the test is to be skipped, which is reported
/// once, past the captured output.
pub fn is_installed() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let runs = |program: &&str| {
            let output = BlockingCommand::new(program)
                .arg("--version")
                .stdin(Stdio::null())
                .output();
            output.is_ok_and(|output| output.status.success())
        };
        let missing = PROGRAMS.iter().find(|program| !runs(program));
        if let Some(program) = missing {
            let line = format!("skipped: the tests of alerts and dashboard need {program} on PATH (apt-get install prometheus)\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
        missing.is_none()
    })
}

/// Runs promtool and returns its output.
///
/// # Errors
/// When it fails, with its output, or still runs after [`TIMEOUT`].
pub async fn promtool<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Result<String> {
    let mut command = Command::new("promtool");
    let output = command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(TIMEOUT, output.output())
        .await
        .map_err(|_| anyhow!("promtool still runs after {TIMEOUT:?}"))?
        .context("starting promtool")?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if !output.status.success() {
        bail!("promtool: {printed}");
    }
    Ok(printed)
}

// === impl Prometheus ===

impl Prometheus {
    /// Starts it, and waits until it has scraped `/metrics` of the target, `HOST:PORT`.
    ///
    /// # Errors
    /// When it does not start, or cannot read the metrics.
    pub async fn start(target: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let config = dir.path().join("prometheus.yml");
        let scrape = json!({"job_name": "webhook", "static_configs": [{"targets": [target]}]});
        let settings = json!({
            "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
            "scrape_configs": [scrape],
        });
        fs::write(&config, settings.to_string())?;
        let port = Port::free()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn");
        let process = Process::start("prometheus", command, &dir.path().join("log"))?;
        let this = Self {
            client: address.into(),
            _process: process,
            _port: port,
            _dir: dir,
        };
        wait_until("Prometheus scrapes the target", TIMEOUT, || async {
            Ok(this.query("up == 1").await.is_ok_and(|up| !up.is_empty()))
        })
        .await?;
        Ok(this)
    }

    /// Evaluates a PromQL expression now. Returns the elements of its vector, each with the labels in `metric`.
    ///
    /// # Errors
    /// When Prometheus does not respond, refuses the expression or warns of it, or the result is no vector.
    pub async fn query(&self, expr: &str) -> Result<Vec<Value>> {
        let query: String = byte_serialize(expr.as_bytes()).collect();
        let path = format!("/api/v1/query?query={query}");
        let response = self.client.get(&path).await?;
        let mut body: Value = serde_json::from_str(&response.body)
            .with_context(|| format!("{expr}: {}", response.body))?;
        if response.status != StatusCode::OK || !body["warnings"].is_null() {
            bail!("{expr}: {body}");
        }
        match body["data"]["result"].take() {
            Value::Array(elements) if body["data"]["resultType"] == "vector" => Ok(elements),
            other => bail!("{expr}: {other}"),
        }
    }
}
