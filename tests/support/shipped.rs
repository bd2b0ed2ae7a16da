//! The webhook as it ships, as a process of its own whose memory and CPU time are read.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::http::Client;
use crate::https::HttpsClient;
use crate::memory::MemoryMetric;
use crate::port::Port;
use crate::process::Process;
use crate::review::IMAGE;
use crate::timing::TIMEOUT;

/// A running `envoy-drainer serve`, which ends when this is dropped.
#[derive(Debug)]
pub struct WebhookProcess {
    /// A client of the TLS port.
    pub https: HttpsClient,
    /// The TLS port.
    pub tls: SocketAddr,
    /// The port for probes.
    pub health: SocketAddr,
    /// The port for metrics.
    pub metrics: SocketAddr,
    /// The process.
    pub process: Process,
    _ports: [Port; 3],
    _dir: TempDir,
}

/// The chart's `resources.limits.memory`, in KiB, for all data of the program. A container's limit wants
/// rights that a test may not have; this one ends the program just as well.
const MEMORY_LIMIT: &str = "131072";

// === impl Shipped ===

impl WebhookProcess {
    /// Starts a program within the chart's memory limit, with a certificate of its own, and waits until
    /// it is ready.
    ///
    /// # Errors
    /// When it cannot be started, or is not ready in time.
    pub async fn start(program: &Path) -> Result<Self> {
        let ports = [Port::free()?, Port::free()?, Port::free()?];
        let address = |port: &Port| SocketAddr::from(([127, 0, 0, 1], port.number()));
        let [tls, health, metrics] = ports.each_ref().map(address);
        let dir = tempfile::tempdir()?;
        let authority = dir.path().join("ca.crt");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "ulimit -d $0 && exec \"$@\"", MEMORY_LIMIT])
            .arg(program)
            .args(["serve", "--image", IMAGE, "--tls-name", "localhost"])
            .args(["--listen", &tls.to_string()])
            .args(["--health-listen", &health.to_string()])
            .args(["--metrics-listen", &metrics.to_string()])
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
                ensure!(process.is_running(), "it ended: {}", process.log());
                sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        timeout(TIMEOUT, ready).await.context("it is not ready")??;
        let https = HttpsClient::new(tls, &fs::read_to_string(&authority)?)?;
        Ok(Self {
            https,
            tls,
            health,
            metrics,
            process,
            _ports: ports,
            _dir: dir,
        })
    }

    /// The most memory that it ever had resident, in KiB.
    ///
    /// # Errors
    /// When it has ended.
    pub fn peak_memory(&self) -> Result<u64> {
        MemoryMetric::Peak.read(&self.process)
    }

    /// The bytes that the kernel holds of its TLS connections, received and not read, or sent and not
    /// acknowledged, in KiB. What it takes to hold them is up to twice as much.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn socket_queue_size(&self) -> Result<u64> {
        let table = fs::read_to_string("/proc/net/tcp")?;
        let port = format!(":{:04X}", self.tls.port());
        // Its number, the local and the remote address, the state, and `sent:received` in hexadecimal.
        // <https://docs.kernel.org/networking/proc_net_tcp.html>
        let queues = table.lines().filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next()?;
            let (sent, received) = fields.nth(2)?.split_once(':')?;
            let bytes = |hex| u64::from_str_radix(hex, 16).ok();
            local
                .ends_with(&port)
                .then_some(bytes(sent)? + bytes(received)?)
        });
        Ok(queues.sum::<u64>() >> 10)
    }

    /// The CPU time that all its threads have used, in user and in kernel mode.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        let mut sum = Duration::ZERO;
        for thread in fs::read_dir(format!("/proc/{}/task", self.process.pid()))? {
            // The first number, in nanoseconds, where `stat` counts in hundredths of a second.
            let schedstat = fs::read_to_string(thread?.path().join("schedstat"))?;
            let nanoseconds = schedstat.split(' ').next().context("an empty schedstat")?;
            sum += Duration::from_nanos(nanoseconds.parse()?);
        }
        Ok(sum)
    }
}
