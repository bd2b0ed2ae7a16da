//! The figures that are measured for each server.

use std::time::Duration;

use anyhow::{Context, Result};
use tests::http::Client;
use tests::memory::MemoryMetric;
use tests::webhook_process::WebhookProcess;
use tokio::time::{Instant, sleep, timeout};

use crate::load::{KeepAliveConnection, closed_loop, open_loop, request};
use crate::pods::Body;

/// Number of connections, enough to saturate a server.
const CONNECTIONS: u32 = 16;

const ROUND: Duration = Duration::from_secs(3);

/// Duration of the load before each measurement, which fills caches and grows buffers.
const WARM_UP: Duration = Duration::from_millis(500);

/// Requests per second of the open loop.
pub(crate) const RATE: u32 = 1_000;

/// Number of requests in flight when memory is measured.
pub(crate) const IN_FLIGHT: usize = 256;

/// All figures of one server; each list has one entry per round.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) idle_memory: Memory,
    pub(crate) in_flight_memory: Memory,
    pub(crate) usual_throughput: Throughput,
    pub(crate) large_throughput: Throughput,
    pub(crate) p50: Vec<Duration>,
    pub(crate) p99: Vec<Duration>,
}

/// Admissions per second in a closed loop.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    /// Per second of wall time, which other processes on the machine affect.
    pub(crate) by_clock: Vec<f64>,
    /// Per second of the server's CPU time, including the kernel's part.
    pub(crate) by_cpu: Vec<f64>,
}

/// Memory of a server, in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Resident memory.
    pub(crate) resident: u64,
    /// Its anonymous part, which is private to the process and not backed by a file.
    pub(crate) private: u64,
}

/// Returns the number of requests that the server is reading or processing.
async fn in_flight(server: &WebhookProcess) -> Result<usize> {
    let metrics = Client::from(server.metrics).get("/metrics").await?.body;
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix("envoy_drainer_requests_in_flight "));
    Ok(value.context("no requests_in_flight")?.parse()?)
}

// === impl Memory ===

impl Memory {
    fn read(server: &WebhookProcess) -> Result<Self> {
        Ok(Self {
            resident: MemoryMetric::Resident.read(&server.process)?,
            private: MemoryMetric::Private.read(&server.process)?,
        })
    }
}

// === impl Figures ===

impl Figures {
    /// Measures the memory of an idle server, and then with many requests that lack their last byte.
    pub(crate) async fn memory(&mut self, subject: &WebhookProcess, body: &Body) -> Result<()> {
        self.idle_memory = Memory::read(subject)?;
        let request = request(&body.bytes);
        let (last, rest) = request.split_last().context("an empty request")?;
        let mut connections = Vec::new();
        for _ in 0..IN_FLIGHT {
            let mut connection = KeepAliveConnection::open(&subject.https).await?;
            connection.send(rest).await?;
            connections.push(connection);
        }
        let wait_for_all = async {
            while in_flight(subject).await? < IN_FLIGHT {
                sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        timeout(ROUND, wait_for_all)
            .await
            .context("timed out before all requests were in flight")??;
        self.in_flight_memory = Memory::read(subject)?;
        for connection in &mut connections {
            connection.exchange(&[*last]).await?;
        }
        Ok(())
    }

    /// Measures latencies at a rate below the server's capacity.
    pub(crate) async fn latency(&mut self, subject: &WebhookProcess, body: &Body) -> Result<()> {
        let latencies = open_loop(&subject.https, &body.bytes, CONNECTIONS, RATE, ROUND).await?;
        let percentile = |percent| latencies.get(latencies.len() * percent / 100).copied();
        self.p50.push(percentile(50).context("no responses")?);
        self.p99.push(percentile(99).context("no responses")?);
        Ok(())
    }
}

// === impl Throughput ===

impl Throughput {
    /// Runs one round and adds its figures.
    pub(crate) async fn round(&mut self, subject: &WebhookProcess, body: &Body) -> Result<()> {
        let load = |duration| closed_loop(&subject.https, &body.bytes, CONNECTIONS, duration);
        load(WARM_UP).await?;
        let (cpu, clock) = (subject.cpu_time()?, Instant::now());
        let answered = load(ROUND).await? as f64;
        let (cpu, clock) = (subject.cpu_time()? - cpu, clock.elapsed());
        self.by_clock.push(answered / clock.as_secs_f64());
        self.by_cpu.push(answered / cpu.as_secs_f64());
        Ok(())
    }
}
