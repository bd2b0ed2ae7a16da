//! What is measured of a server.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use tests::admission_report::{Connections, Figures, Measure, Memory};
use tests::http::Client;
use tests::memory::MemoryMetric;
use tests::process::Process;
use tests::webhook_process::WebhookProcess;
use tokio::time::{Instant, sleep, timeout};

use crate::load::{self, KeepAliveConnection, request};
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

/// A measure that is taken, of these servers.
#[derive(Debug)]
pub(crate) struct MeasureRun<'a> {
    pub(crate) measure: Measure,
    pub(crate) body: &'a [u8],
    pub(crate) subjects: &'a [Subject],
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
    let load = load::saturating(review, Connections::Kept);
    let mut answered = 0;
    let mut memory = vec![read_memory(subject, answered, 0)?];
    for responses in responses {
        while answered < *responses {
            let connections = load::open(load, https).await?;
            answered += load::run(load, connections, &review.body, STEP)
                .await?
                .len();
        }
        memory.push(read_memory(subject, answered, 0)?);
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
    memory.push(read_memory(subject, answered, IN_FLIGHT)?);
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

// === impl MeasureRun ===

impl MeasureRun<'_> {
    /// Measures each server once more.
    pub(crate) async fn round(&mut self) -> Result<()> {
        let load = self.measure.load;
        let least = |rate| DURATION.max(Duration::from_secs(1) * REQUESTS / rate);
        let duration = load.rate.map_or(DURATION, least);
        for Subject { name, process } in self.subjects {
            let WebhookProcess { https, process, .. } = process;
            pin(process, self.measure.server_cpus)?;
            load::run(load, load::open(load, https).await?, self.body, WARM_UP).await?;
            let connections = load::open(load, https).await?;
            let start = (process.cpu_time()?, process.waiting_time()?, Instant::now());
            let latencies = load::run(load, connections, self.body, duration).await?;
            let usage = ServerUsage {
                cpu_time: process.cpu_time()?.saturating_sub(start.0),
                waiting_time: process.waiting_time()?.saturating_sub(start.1),
                clock: start.2.elapsed(),
            };
            let figures = self.measure.servers.entry((*name).to_owned());
            usage.add_to(figures.or_default(), &latencies)?;
        }
        Ok(())
    }
}

// === impl ServerUsage ===

impl ServerUsage {
    /// Adds the values of one round, with its sorted latencies.
    fn add_to(&self, figures: &mut Figures, latencies: &[Duration]) -> Result<()> {
        let answered = latencies.len() as f64;
        let clock = self.clock.as_secs_f64();
        figures.per_second.add(answered / clock);
        figures.cpu_micros.add(micros(self.cpu_time) / answered);
        let waited = self.waiting_time.as_secs_f64() / clock;
        figures.waited_percent.add(100.0 * waited);
        for (figure, per_mille) in [
            (&mut figures.p50_micros, 500),
            (&mut figures.p99_micros, 990),
            (&mut figures.p99_9_micros, 999),
        ] {
            let latency = latencies.get(latencies.len() * per_mille / 1000);
            figure.add(micros(*latency.context("no responses")?));
        }
        Ok(())
    }
}

fn read_memory(subject: &Subject, answered: usize, in_flight: usize) -> Result<Memory> {
    let process = &subject.process.process;
    Ok(Memory {
        server: subject.name.to_owned(),
        answered,
        in_flight,
        resident_kib: MemoryMetric::Resident.read(process)?,
        private_kib: MemoryMetric::Private.read(process)?,
    })
}
