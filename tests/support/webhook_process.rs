//! The webhook as a process, whose memory and CPU time are measured.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::api_server::FakeApiServer;
use crate::http::Client;
use crate::https::HttpsClient;
use crate::memory::MemoryMetric;
use crate::port::Port;
use crate::process::Process;
use crate::timing::TIMEOUT;
use crate::until::wait_until;

/// A running `envoy-drainer serve`, which is killed when this is dropped.
#[derive(Debug)]
pub struct WebhookProcess {
    /// A client of the TLS port.
    pub https: HttpsClient,
    /// The TLS port.
    pub tls: SocketAddr,
    /// A client of the port for drainers.
    pub drainer_api_https: HttpsClient,
    /// The port for drainers, on which it listens if it was started with a cluster.
    pub drainer_api: SocketAddr,
    /// The port for probes.
    pub health: SocketAddr,
    /// The port for metrics.
    pub metrics: SocketAddr,
    /// The process.
    pub process: Process,
    _ports: [Port; 4],
    _dir: TempDir,
}

/// The addresses on which a server listens, and the file to which it writes its CA.
#[derive(Debug)]
pub struct WebhookAddresses {
    /// The TLS port.
    pub tls: SocketAddr,
    /// The port for probes.
    pub health: SocketAddr,
    /// The port for metrics.
    pub metrics: SocketAddr,
    /// The port for drainers, if it serves them.
    pub drainer_api: SocketAddr,
    /// The PEM of its CA.
    pub ca_file: PathBuf,
}

/// The drainer's image in tests.
pub const IMAGE: &str = "registry.example/envoy-drainer/drainer:1.0.0";

/// The chart's `resources.limits.memory`, in KiB, as a limit of the program's data segment. A cgroup's limit needs
/// rights that a test may not have; beyond this limit the program aborts as well.
const MEMORY_LIMIT: &str = "131072";

// === impl WebhookAddresses ===

impl WebhookAddresses {
    /// Returns the arguments of `envoy-drainer` for these addresses, an in-memory CA, and drainers of this image.
    pub fn serve_args(&self, image: &str) -> Vec<String> {
        let ca = format!("--tls-ca-out={}", self.ca_file.display());
        [self.listen_args(image), vec![ca]].concat()
    }

    /// The command for a server with these arguments.
    pub fn serve(&self, program: &Path, image: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.serve_args(image));
        command
    }

    /// Returns the same arguments without a CA: its PEM is to be in the file when the server is ready.
    pub fn listen_args(&self, image: &str) -> Vec<String> {
        vec![
            "serve".to_owned(),
            format!("--image={image}"),
            format!("--listen={}", self.tls),
            format!("--health-listen={}", self.health),
            format!("--metrics-listen={}", self.metrics),
            "--tls-name=localhost".to_owned(),
        ]
    }

    /// Returns the arguments of `serve` for the port for drainers.
    pub fn drainer_api_args(&self) -> [String; 2] {
        let port = self.drainer_api.port();
        [
            format!("--drainer-api-listen={}", self.drainer_api),
            format!("--drainer-api-address=localhost:{port}"),
        ]
    }

    /// The command for a webhook within the chart's memory limit.
    fn limited(&self, program: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "ulimit -d $0 && exec \"$@\"", MEMORY_LIMIT])
            .arg(program)
            .args(self.serve_args(IMAGE));
        command
    }
}

// === impl WebhookProcess ===

impl WebhookProcess {
    /// Starts a binary of the webhook within the chart's memory limit, with an in-memory CA, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// When it cannot be started, or is not ready within the timeout.
    pub async fn start(program: &Path) -> Result<Self> {
        Self::run(None, |addresses| addresses.limited(program)).await
    }

    /// The same with the drainer API and all its features, in the cluster of this API server.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_in_cluster(program: &Path, api_server: &FakeApiServer) -> Result<Self> {
        let command = |addresses: &WebhookAddresses| {
            let mut command = addresses.limited(program);
            command
                .args(addresses.drainer_api_args())
                .arg("--drainer-api-reports=true")
                .env("KUBECONFIG", api_server.kubeconfig());
            command
        };
        Self::run(None, command).await
    }

    /// Starts a server by this command, and waits until it is ready. Its output is appended to `log`, or else to a file
    /// of its own.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn run(
        log: Option<&Path>,
        command: impl FnOnce(&WebhookAddresses) -> Command,
    ) -> Result<Self> {
        let ports = [Port::free()?, Port::free()?, Port::free()?, Port::free()?];
        let address = |port: &Port| SocketAddr::from(([127, 0, 0, 1], port.number()));
        let [tls, health, metrics, drainer_api] = ports.each_ref().map(address);
        let dir = tempfile::tempdir()?;
        let addresses = WebhookAddresses {
            tls,
            health,
            metrics,
            drainer_api,
            ca_file: dir.path().join("ca.crt"),
        };
        let log = log.map_or_else(|| dir.path().join("log"), Path::to_owned);
        let process = Process::start("envoy-drainer", command(&addresses), &log)?;
        let probe = Client::from(health);
        wait_until("the webhook is ready", TIMEOUT, || async {
            ensure!(process.is_running(), "it exited");
            let ready = probe.get("/readyz").await;
            Ok(ready.is_ok_and(|ready| ready.status.is_success()))
        })
        .await
        .with_context(|| process.log())?;
        let ca = fs::read_to_string(&addresses.ca_file)?;
        Ok(Self {
            https: HttpsClient::new(tls, &ca)?,
            tls,
            drainer_api_https: HttpsClient::new(drainer_api, &ca)?,
            drainer_api,
            health,
            metrics,
            process,
            _ports: ports,
            _dir: dir,
        })
    }

    /// The peak of its resident memory, in KiB.
    ///
    /// # Errors
    /// When it has exited.
    pub fn peak_memory(&self) -> Result<u64> {
        MemoryMetric::Peak.read(&self.process)
    }

    /// The CPU time of all its threads, in user and in kernel mode.
    ///
    /// # Errors
    /// When it has exited.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.process.cpu_time()
    }
}
