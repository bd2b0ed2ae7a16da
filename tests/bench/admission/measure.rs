//! What is measured of a server.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{Instant, sleep, timeout};

use crate::load::{KeepAliveConnection, closed_loop, open_loop, request};
use crate::pods::Body;
use crate::subject::{Memory, ServerProcess};

/// Enough to keep a server busy.
const CONNECTIONS: u32 = 16;

const ROUND: Duration = Duration::from_secs(3);

/// Before a round, to fill caches and grow buffers.
const WARM_UP: Duration = Duration::from_millis(500);

/// Requests a second of the open loop.
pub(crate) const RATE: u32 = 1_000;

/// Requests that are in flight at once when memory is read.
pub(crate) const IN_FLIGHT: usize = 256;

/// All figures of one server; each list has an entry a round.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) idle_memory: Memory,
    pub(crate) in_flight_memory: Memory,
    pub(crate) usual_throughput: Throughput,
    pub(crate) large_throughput: Throughput,
    pub(crate) p50: Vec<Duration>,
    pub(crate) p99: Vec<Duration>,
}

/// Admissions a second in a closed loop.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    /// Of the clock, which others on the machine slow down.
    pub(crate) by_clock: Vec<f64>,
    /// Of the server's CPU time, the kernel's part of it included.
    pub(crate) by_cpu: Vec<f64>,
}

// === impl Figures ===

impl Figures {
    /// Reads the memory of a server that has done nothing yet, and then with many requests whose
    /// last byte is still to come.
    pub(crate) async fn memory(&mut self, subject: &ServerProcess, body: &Body) -> Result<()> {
        self.idle_memory = subject.memory()?;
        let request = request(&body.bytes);
        let (last, most) = request.split_last().context("a request")?;
        let mut wires = Vec::new();
        for _ in 0..IN_FLIGHT {
            let mut wire = KeepAliveConnection::open(&subject.https).await?;
            wire.send(most).await?;
            wires.push(wire);
        }
        let all = async {
            while subject.in_flight().await? < IN_FLIGHT {
                sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        timeout(ROUND, all)
            .await
            .context("not all are in flight")??;
        self.in_flight_memory = subject.memory()?;
        for wire in &mut wires {
            wire.exchange(&[*last]).await?;
        }
        Ok(())
    }

    /// Measures how long answers take at a rate that leaves the server time.
    pub(crate) async fn latency(&mut self, subject: &ServerProcess, body: &Body) -> Result<()> {
        let times = open_loop(&subject.https, &body.bytes, CONNECTIONS, RATE, ROUND).await?;
        let percentile = |percent| times.get(times.len() * percent / 100).copied();
        self.p50.push(percentile(50).context("no answers")?);
        self.p99.push(percentile(99).context("no answers")?);
        Ok(())
    }
}

// === impl Throughput ===

impl Throughput {
    /// Adds a round.
    pub(crate) async fn round(&mut self, subject: &ServerProcess, body: &Body) -> Result<()> {
        let load = |time| closed_loop(&subject.https, &body.bytes, CONNECTIONS, time);
        load(WARM_UP).await?;
        let (cpu, clock) = (subject.cpu_time()?, Instant::now());
        let answered = load(ROUND).await? as f64;
        let (cpu, clock) = (subject.cpu_time()? - cpu, clock.elapsed());
        self.by_clock.push(answered / clock.as_secs_f64());
        self.by_cpu.push(answered / cpu.as_secs_f64());
        Ok(())
    }
}
