//! A server under measurement: a separate process, pinned to one CPU.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;
use tests::http::Client;
use tests::https::HttpsClient;
use tests::port::Port;
use tests::process::Process;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// How long a server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running server.
pub(crate) struct ServerProcess {
    /// Client of the TLS port.
    pub(crate) https: HttpsClient,
    metrics: Client,
    process: Process,
    _ports: [Port; 3],
    _dir: TempDir,
}

/// Memory of a process, in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Resident memory.
    pub(crate) resident: u64,
    /// Its anonymous part, which is private to the process and not backed by a file.
    pub(crate) private: u64,
}

/// The addresses on which a server listens, and the file to which it writes its CA.
pub(crate) struct ServerAddresses<'a> {
    pub(crate) tls: &'a str,
    pub(crate) health: &'a str,
    pub(crate) metrics: &'a str,
    pub(crate) ca_file: &'a Path,
}

/// Pins a process, by default this one, to one CPU.
pub(crate) fn pin(pid: Option<Pid>, cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(pid, &cpus).context("pinning a process to a CPU")
}

// === impl ServerProcess ===

impl ServerProcess {
    /// Starts the server with the command that `command` returns for its addresses, pinned to this CPU.
    /// Its log is formatted and discarded.
    pub(crate) async fn start(
        cpu: usize,
        command: impl FnOnce(&ServerAddresses<'_>) -> Command,
    ) -> Result<Self> {
        let ports = [Port::free()?, Port::free()?, Port::free()?];
        let address = |port: &Port| SocketAddr::from(([127, 0, 0, 1], port.number()));
        let [tls, health, metrics] = ports.each_ref().map(address);
        let dir = tempfile::tempdir()?;
        let ca_file = dir.path().join("ca.crt");
        let command = command(&ServerAddresses {
            tls: &tls.to_string(),
            health: &health.to_string(),
            metrics: &metrics.to_string(),
            ca_file: &ca_file,
        });
        let process = Process::start("the server", command, Path::new("/dev/null"))?;
        pin(Pid::from_raw(process.pid()), cpu)?;
        let health = Client::from(health);
        let ready = async {
            while !health
                .get("/readyz")
                .await
                .is_ok_and(|ready| ready.status.is_success())
            {
                ensure!(process.is_running(), "the server exited");
                sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        timeout(START_TIMEOUT, ready)
            .await
            .context("the server did not become ready")??;
        let https = HttpsClient::new(tls, &fs::read_to_string(&ca_file)?)?;
        Ok(Self {
            https,
            metrics: metrics.into(),
            process,
            _ports: ports,
            _dir: dir,
        })
    }

    /// Returns the CPU time that the server has used.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        // The first number, in nanoseconds; `stat` has only hundredths of a second.
        let schedstat = fs::read_to_string(format!("/proc/{}/schedstat", self.process.pid()))?;
        let nanoseconds = schedstat.split(' ').next().context("an empty schedstat")?;
        Ok(Duration::from_nanos(nanoseconds.parse()?))
    }

    /// Returns the server's current memory.
    pub(crate) fn memory(&self) -> Result<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid()))?;
        let read = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
            anyhow::Ok(number.with_context(|| format!("no {name}"))?.parse()?)
        };
        Ok(Memory {
            resident: read("VmRSS:")?,
            private: read("RssAnon:")?,
        })
    }

    /// Returns the number of requests that the server is reading or processing.
    pub(crate) async fn in_flight(&self) -> Result<usize> {
        let metrics = self.metrics.get("/metrics").await?.body;
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix("envoy_drainer_requests_in_flight "));
        Ok(value.context("no requests_in_flight")?.parse()?)
    }
}
