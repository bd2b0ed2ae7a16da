//! A server under measurement: a process of its own on a CPU of its own.

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

/// A server may take so long to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running server.
pub(crate) struct ServerProcess {
    /// Its TLS port.
    pub(crate) https: HttpsClient,
    metrics: Client,
    process: Process,
    _ports: [Port; 3],
    _dir: TempDir,
}

/// Memory of a process, in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// All that is in memory.
    pub(crate) resident: u64,
    /// Of it what belongs to the process alone, and to no file.
    pub(crate) private: u64,
}

/// Where a server is to listen, and where to put its authority's certificate.
pub(crate) struct ServerAddresses<'a> {
    pub(crate) tls: &'a str,
    pub(crate) health: &'a str,
    pub(crate) metrics: &'a str,
    pub(crate) ca_file: &'a Path,
}

/// Binds a process, or this one, to one CPU.
pub(crate) fn pin(pid: Option<Pid>, cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(pid, &cpus).context("binding a process to a CPU")
}

// === impl Subject ===

impl ServerProcess {
    /// Starts the server that `command` makes for a place, on this CPU. What it logs is formatted
    /// and thrown away.
    pub(crate) async fn start(
        cpu: usize,
        command: impl FnOnce(&ServerAddresses<'_>) -> Command,
    ) -> Result<Self> {
        let ports = [Port::free()?, Port::free()?, Port::free()?];
        let address = |port: &Port| SocketAddr::from(([127, 0, 0, 1], port.number()));
        let [tls, health, metrics] = ports.each_ref().map(address);
        let dir = tempfile::tempdir()?;
        let authority = dir.path().join("ca.crt");
        let command = command(&ServerAddresses {
            tls: &tls.to_string(),
            health: &health.to_string(),
            metrics: &metrics.to_string(),
            ca_file: &authority,
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
                ensure!(process.is_running(), "the server ended");
                sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        timeout(START_TIMEOUT, ready)
            .await
            .context("the server is not ready")??;
        let https = HttpsClient::new(tls, &fs::read_to_string(&authority)?)?;
        Ok(Self {
            https,
            metrics: metrics.into(),
            process,
            _ports: ports,
            _dir: dir,
        })
    }

    /// The CPU time that it has used.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        // The first number; in nanoseconds, where `stat` counts in hundredths of a second.
        let schedstat = fs::read_to_string(format!("/proc/{}/schedstat", self.process.pid()))?;
        let nanoseconds = schedstat.split(' ').next().context("an empty schedstat")?;
        Ok(Duration::from_nanos(nanoseconds.parse()?))
    }

    /// The memory that it has now.
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

    /// The requests that it is reading or answering.
    pub(crate) async fn in_flight(&self) -> Result<usize> {
        let metrics = self.metrics.get("/metrics").await?.body;
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix("envoy_drainer_requests_in_flight "));
        Ok(value.context("no requests_in_flight")?.parse()?)
    }
}
