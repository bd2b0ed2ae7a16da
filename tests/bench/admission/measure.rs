//! What is measured of a server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use tests::figures::Figure;
use tests::http::Client;
use tests::memory::MemoryMetric;
use tests::process::Process;
use tests::webhook_process::WebhookProcess;
use tokio::time::{Instant, sleep, timeout};

use crate::load::{Connections, KeepAliveConnection, Load, request};
use crate::pods::Review;

/// The servers' CPU and the client's CPU.
const CPUS: [usize; 2] = [0, 1];

/// The least duration of a run.
const DURATION: Duration = Duration::from_secs(3);

/// The least number of requests of a run with a rate, so that one of them is the slowest thousandth.
const REQUESTS: u32 = 1_000;

/// Duration of the load before each run, which fills caches and grows buffers.
const WARM_UP: Duration = Duration::from_millis(500);

/// Duration of the load between two looks at the number of responses.
const STEP: Duration = Duration::from_secs(1);

/// Number of requests in flight when memory is measured.
const IN_FLIGHT: usize = 256;

/// A server that is measured.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) process: WebhookProcess,
}

/// A load, and how servers bear it.
#[derive(Debug, Serialize)]
pub(crate) struct Measure<'a> {
    /// One: the server has one CPU, and the client the other. Two: both share both.
    pub(crate) server_cpus: usize,
    #[serde(flatten)]
    pub(crate) review: &'a Review,
    #[serde(flatten)]
    pub(crate) load: Load,
    #[serde(skip)]
    pub(crate) subjects: &'a [Subject],
    /// By the server's name.
    pub(crate) servers: BTreeMap<&'static str, Figures>,
}

/// How one server bears a load: a value for each round.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// Responses per second of wall time.
    pub(crate) per_second: Figure,
    /// The server's CPU time for a response, including the kernel's part.
    pub(crate) cpu_micros: Figure,
    /// The part of the time in which a thread of the server waited for a CPU.
    pub(crate) waited_percent: Figure,
    pub(crate) p50_micros: Figure,
    pub(crate) p99_micros: Figure,
    #[serde(rename = "p99.9_micros")]
    pub(crate) p99_9_micros: Figure,
}

/// Memory of a server.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) server: &'static str,
    /// Number of responses before.
    pub(crate) answered: usize,
    /// Number of requests that lack their last byte.
    pub(crate) in_flight: usize,
    /// Resident memory.
    pub(crate) resident_kib: u64,
    /// Its anonymous part, which is private to the process and not backed by a file.
    pub(crate) private_kib: u64,
}

/// Gives a server the first of the CPUs, and this process the others; or both of them both.
fn pin(server: &Process, server_cpus: usize) -> Result<()> {
    let server_cpus = &CPUS[..server_cpus];
    let client_cpus = &CPUS[CPUS.len() - server_cpus.len()..];
    for (pid, cpus) in [
        (Pid::from_raw(server.pid()), server_cpus),
        (None, client_cpus),
    ] {
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.set(*cpu);
        }
        sched_setaffinity(pid, &set).context("pinning a process to a CPU: two are required")?;
    }
    Ok(())
}

/// Measures the memory of a new server, after each of these numbers of responses, and with many requests in flight.
pub(crate) async fn memory(
    subject: &Subject,
    review: &Review,
    responses: &[usize],
) -> Result<Vec<Memory>> {
    pin(&subject.process.process, 1)?;
    let https = &subject.process.https;
    let load = Load::saturating(review, Connections::Kept);
    let mut answered = 0;
    let mut memory = vec![Memory::read(subject, answered, 0)?];
    for responses in responses {
        while answered < *responses {
            let connections = load.open(https).await?;
            answered += load.run(connections, &review.body, STEP).await?.len();
        }
        memory.push(Memory::read(subject, answered, 0)?);
    }
    let request = request(&review.body);
    let (last, rest) = request.split_last().context("an empty request")?;
    let mut connections = Vec::new();
    for _ in 0..IN_FLIGHT {
        let mut connection = KeepAliveConnection::open(https).await?;
        connection.send(rest).await?;
        connections.push(connection);
    }
    let wait_for_all = async {
        while in_flight(&subject.process).await? < IN_FLIGHT {
            sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    timeout(DURATION, wait_for_all)
        .await
        .context("timed out before all requests were in flight")??;
    memory.push(Memory::read(subject, answered, IN_FLIGHT)?);
    for connection in &mut connections {
        connection.exchange(&[*last]).await?;
    }
    Ok(memory)
}

/// Returns the number of requests that the server is reading or processing.
async fn in_flight(server: &WebhookProcess) -> Result<usize> {
    let metrics = Client::from(server.metrics).get("/metrics").await?.body;
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix("envoy_drainer_requests_in_flight "));
    Ok(value.context("no requests_in_flight")?.parse()?)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// What a server used while it was loaded.
struct ServerUsage {
    cpu_time: Duration,
    /// How long its threads waited for a processor.
    waiting_time: Duration,
    clock: Duration,
}

// === impl Measure ===

impl Measure<'_> {
    /// Returns true for what measures the cost of an admission: a saturated server on a CPU of its own.
    pub(crate) fn is_of_cost(&self) -> bool {
        self.server_cpus == 1 && self.load == Load::saturating(self.review, Connections::Kept)
    }

    /// The server's CPU time for a response, in µs; `None` if this server was not measured.
    pub(crate) fn cost(&self, server: &str) -> Option<f64> {
        Some(self.servers.get(server)?.cpu_micros.median)
    }

    /// Measures each server once more.
    pub(crate) async fn round(&mut self) -> Result<()> {
        let (load, body) = (self.load, &self.review.body);
        let least = |rate| DURATION.max(Duration::from_secs(1) * REQUESTS / rate);
        let duration = load.rate.map_or(DURATION, least);
        for Subject { name, process } in self.subjects {
            let WebhookProcess { https, process, .. } = process;
            pin(process, self.server_cpus)?;
            load.run(load.open(https).await?, body, WARM_UP).await?;
            let connections = load.open(https).await?;
            let start = (process.cpu_time()?, process.waiting_time()?, Instant::now());
            let latencies = load.run(connections, body, duration).await?;
            let usage = ServerUsage {
                cpu_time: process.cpu_time()?.saturating_sub(start.0),
                waiting_time: process.waiting_time()?.saturating_sub(start.1),
                clock: start.2.elapsed(),
            };
            let figures = self.servers.entry(name).or_default();
            figures.add(&latencies, &usage)?;
        }
        Ok(())
    }
}

// === impl Figures ===

impl Figures {
    /// The latencies in a table, and the rate that was reached if it is not the one of the load.
    pub(crate) fn cell(&self, rate: Option<u32>) -> String {
        let quantiles = [&self.p50_micros, &self.p99_micros, &self.p99_9_micros];
        let [p50, p99, p99_9] = quantiles.map(|it| it.median);
        let cell = format!("{p50} / {p99} / {p99_9}");
        let reached = self.per_second.median;
        let is_reached = rate.is_some_and(|rate| reached > 0.98 * f64::from(rate));
        if is_reached {
            cell
        } else {
            format!("{cell} at {reached}/s")
        }
    }

    /// Adds the values of one round: the sorted latencies, and what the server used in this time.
    fn add(&mut self, latencies: &[Duration], usage: &ServerUsage) -> Result<()> {
        let answered = latencies.len() as f64;
        self.per_second.add(answered / usage.clock.as_secs_f64());
        self.cpu_micros.add(micros(usage.cpu_time) / answered);
        self.waited_percent
            .add(100.0 * micros(usage.waiting_time) / micros(usage.clock));
        for (figure, per_mille) in [
            (&mut self.p50_micros, 500),
            (&mut self.p99_micros, 990),
            (&mut self.p99_9_micros, 999),
        ] {
            let latency = latencies.get(latencies.len() * per_mille / 1000);
            figure.add(micros(*latency.context("no responses")?));
        }
        Ok(())
    }
}

// === impl Memory ===

impl Memory {
    fn read(subject: &Subject, answered: usize, in_flight: usize) -> Result<Self> {
        let process = &subject.process.process;
        Ok(Self {
            server: subject.name,
            answered,
            in_flight,
            resident_kib: MemoryMetric::Resident.read(process)?,
            private_kib: MemoryMetric::Private.read(process)?,
        })
    }
}
