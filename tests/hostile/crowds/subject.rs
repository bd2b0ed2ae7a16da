//! The webhook under attack: the release build, within the chart's memory limit.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tests::built;
use tests::http::Client;
use tests::https::Https;
use tests::port::Port;
use tests::process::Process;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// It may take so long to start.
const START: Duration = Duration::from_secs(10);

/// The chart's `resources.limits.memory`, in KiB, for all data of the program. A container's limit wants
/// rights that a test may not have; this one ends the program just as well.
const LIMIT: &str = "131072";

/// A running webhook.
pub(crate) struct Subject {
    pub(crate) process: Process,
    pub(crate) https: Https,
    pub(crate) tls: SocketAddr,
    pub(crate) health: SocketAddr,
    pub(crate) metrics: SocketAddr,
    _ports: [Port; 3],
    _dir: TempDir,
}

/// What the metrics tell of a port's connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Metrics {
    /// Places taken.
    pub(crate) taken: u64,
    /// Connections that had to make room.
    pub(crate) evicted: u64,
    /// Seconds in which no place was free.
    pub(crate) full: u64,
}

// === impl Subject ===

impl Subject {
    /// Starts it, and waits until it is ready.
    pub(crate) async fn start() -> Result<Self> {
        let ports = [Port::free()?, Port::free()?, Port::free()?];
        let address = |port: &Port| SocketAddr::from(([127, 0, 0, 1], port.number()));
        let [tls, health, metrics] = ports.each_ref().map(address);
        let dir = tempfile::tempdir()?;
        let authority = dir.path().join("ca.crt");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "ulimit -d $0 && exec \"$@\"", LIMIT])
            .arg(built::envoy_drainer_release()?)
            .args(["serve", "--image=drainer:test", "--tls-name=localhost"])
            .arg(format!("--listen={tls}"))
            .arg(format!("--health-listen={health}"))
            .arg(format!("--metrics-listen={metrics}"))
            .arg("--tls-ca-out")
            .arg(&authority);
        let process = Process::start("envoy-drainer", command, &dir.path().join("log"))?;
        let client = Client::from(health);
        let ready = async {
            while !client
                .get("/readyz")
                .await
                .is_ok_and(|ready| ready.status.is_success())
            {
                ensure!(process.is_running(), "the webhook ended: {}", process.log());
                sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        timeout(START, ready)
            .await
            .context("the webhook is not ready")??;
        let https = Https::new(tls, &fs::read_to_string(&authority)?)?;
        Ok(Self {
            process,
            https,
            tls,
            health,
            metrics,
            _ports: ports,
            _dir: dir,
        })
    }

    /// Reads what the metrics tell of this port.
    pub(crate) async fn metrics(&self, port: &str) -> Result<Metrics> {
        let text = Client::from(self.metrics).get("/metrics").await?.body;
        let sum = |name: &str| {
            text.lines()
                .filter(|line| line.starts_with(&format!("envoy_drainer_{name}{{port=\"{port}\"")))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum()
        };
        Ok(Metrics {
            taken: sum("connections"),
            evicted: sum("connections_evicted_total"),
            full: sum("connections_full_seconds_total"),
        })
    }
}

// === impl Metrics ===

impl Metrics {
    /// The greater of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            taken: self.taken.max(other.taken),
            evicted: self.evicted.max(other.evicted),
            full: self.full.max(other.full),
        }
    }
}
