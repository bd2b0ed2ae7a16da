//! A drainer beside an Envoy with thousands of listeners and no CPU time to spare: half of the time in standby, half
//! in a drain that does not end.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drainer::DrainPhase;
use tests::binaries;
use tests::drainer::{Drainer, drainer};
use tests::envoy::{Envoy, envoy_with_upstream};
use tests::http::Client;
use tests::listener::{DIRECT_PATH, DIRECT_RESPONSE, http, tcp};
use tests::memory::MemoryMetric;
use tests::process::raise_open_file_limit;
use tests::raw_connection::RawConnection;
use tests::soak_report::BusyEnvoyReport;
use tests::timing::SECOND;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep};

use super::series::{Measure, SAMPLE_INTERVAL, SeriesSet};

/// An Envoy without CPU time to spare, and its drainer.
struct Fixture {
    envoy: Envoy,
    drainer: Drainer,
    _load: JoinSet<()>,
}

/// What has been counted since the processes started.
struct Counters {
    read_at: Instant,
    envoy_cpu: Duration,
    drainer_cpu: Duration,
    context_switches: u64,
    admin_calls: usize,
}

const LISTENERS: usize = 2_000;

/// Connections of the load: enough that each of Envoy's workers has some.
const CONNECTIONS: usize = 16;

/// The headers of its requests, which cost Envoy more than the client: Envoy takes a hundred.
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/core/v3/protocol.proto#envoy-v3-api-field-config-core-v3-httpprotocoloptions-max-headers-count>
const HEADERS: usize = 90;

/// How long a new phase settles: Envoy's setup is read, and buffers get their size.
const SETTLING: Duration = Duration::from_secs(10);

/// Of one processor.
const ENVOY_CPU: Measure = Measure::new("CPU of Envoy", "%", None);
const MEMORY: Measure = Measure::new("resident memory", "MiB", Some(0.25));
const DESCRIPTORS: Measure = Measure::new("descriptors", "", Some(3.0));
const CPU: Measure = Measure::new("CPU time", "ms/min", None);
const SWITCHES: Measure = Measure::new("context switches", "/min", None);
/// Shows that it still polls.
const ADMIN_CALLS: Measure = Measure::new("calls to Envoy", "/min", None);

/// Measures it for this long.
///
/// # Errors
/// If Envoy or the drainer does not start, or the drainer leaves its phase or no longer polls.
pub(crate) async fn run(length: Duration) -> Result<BusyEnvoyReport> {
    // Each port of an Envoy is claimed by a socket of this process, and each listener has one for each worker.
    raise_open_file_limit()?;
    let fixture = Fixture::start(length).await?;
    let statistics = fixture.count_statistics().await?;
    println!("  Envoy has {LISTENERS} listeners and {statistics} statistics");
    let mut series = SeriesSet::default();
    let _stream = RawConnection::open_stream(fixture.envoy.address("stream")).await?;
    let standby = "drainer in standby";
    fixture.measure(standby, length / 2, &mut series).await?;
    fixture.ensure_phase(DrainPhase::Standby).await?;

    let _hooks = fixture.drainer.call_pod_hooks()?;
    fixture.drainer.wait_for_phase(DrainPhase::Draining).await?;
    let draining = "drainer in a drain";
    fixture.measure(draining, length / 2, &mut series).await?;
    fixture.ensure_phase(DrainPhase::Draining).await?;
    let remaining = fixture.drainer.status().await?.remaining;
    let remaining = remaining.context("the drainer knows no connection")?;
    ensure!(remaining.connections > 0, "the drainer counts none");

    let trends = series.trends();
    let mut polls = trends.iter().filter(|it| it.measure == ADMIN_CALLS.name);
    let polls = polls.all(|trend| trend.last_quarter > 0.0);
    ensure!(polls, "the drainer has stopped polling: {trends:?}");
    Ok(BusyEnvoyReport {
        envoy: tests::envoy_versions::newest()?.version,
        listeners: LISTENERS,
        statistics,
        trends,
    })
}

/// Sends a request as soon as the previous one has its response, so that Envoy is never idle for long.
async fn keep_busy(address: SocketAddr) {
    let headers: String = (0..HEADERS).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let request = format!("GET {DIRECT_PATH} HTTP/1.1\r\nhost: shop\r\n{headers}\r\n");
    loop {
        // Until the connection ends.
        let _ = exchange_in_turn(address, request.as_bytes()).await;
        sleep(SECOND).await;
    }
}

/// Sends this request again and again on one connection.
async fn exchange_in_turn(address: SocketAddr, request: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut buffer = [0; 4096];
    loop {
        stream.write_all(request).await?;
        let mut length = 0;
        while !buffer[..length].ends_with(DIRECT_RESPONSE.as_bytes()) {
            match stream.read(&mut buffer[length..]).await? {
                0 => return Ok(()),
                count => length += count,
            }
        }
    }
}

// === impl Fixture ===

impl Fixture {
    async fn start(length: Duration) -> Result<Self> {
        let program = binaries::drainer_of_image()?;
        let mut bootstrap = envoy_with_upstream()
            .await?
            // A drain stops neither the listeners nor the load.
            .listener(http("web")?.modify_only())
            .flag("--drain-time-s 86400")
            .listener(tcp("stream")?);
        for number in 2..LISTENERS {
            bootstrap = bootstrap.listener(tcp(&format!("listener-{number}"))?);
        }
        let envoy = bootstrap.start().await?;
        let drainer = drainer(envoy.admin_address())?.program(&program);
        let drainer = drainer.timing(|timing| timing.drain_timeout = length);
        let drainer = drainer.start().await?;
        drainer.wait_for_envoy().await?;
        let mut load = JoinSet::new();
        for _ in 0..CONNECTIONS {
            load.spawn(keep_busy(envoy.address("web")));
        }
        Ok(Self {
            envoy,
            drainer,
            _load: load,
        })
    }

    async fn count_statistics(&self) -> Result<usize> {
        let client = Client::new(self.envoy.admin_address().clone());
        let response = client.with_timeout(60 * SECOND).get("/stats").await?;
        Ok(response.body.lines().count())
    }

    /// Samples both processes for this long.
    async fn measure(
        &self,
        subject: &'static str,
        length: Duration,
        series: &mut SeriesSet,
    ) -> Result<()> {
        sleep(SETTLING).await;
        let started = Instant::now();
        let mut before = Counters::read(self)?;
        let mut ticks = interval_at(started + SAMPLE_INTERVAL, SAMPLE_INTERVAL);
        while started.elapsed() + SETTLING < length {
            ticks.tick().await;
            let now = Counters::read(self)?;
            let minutes = (now.read_at - before.read_at).as_secs_f64() / 60.0;
            let process = self.drainer.process();
            let memory = MemoryMetric::Resident.read(process)? as f64 / 1024.0;
            let cpu = (now.drainer_cpu - before.drainer_cpu).as_secs_f64();
            let envoy_cpu = (now.envoy_cpu - before.envoy_cpu).as_secs_f64();
            let switches = now.context_switches - before.context_switches;
            let calls = now.admin_calls - before.admin_calls;
            let values = [
                (ENVOY_CPU, envoy_cpu / minutes / 0.6),
                (MEMORY, memory),
                (DESCRIPTORS, process.open_descriptors()? as f64),
                (CPU, cpu * 1000.0 / minutes),
                (SWITCHES, switches as f64 / minutes),
                (ADMIN_CALLS, calls as f64 / minutes),
            ];
            let texts = values.map(|(measure, value)| format!("{} {value:.1}", measure.name));
            println!("  {subject}: {}", texts.join(", "));
            for (measure, value) in values {
                series.record(subject, measure, started.elapsed(), value);
            }
            before = now;
        }
        Ok(())
    }

    async fn ensure_phase(&self, want: DrainPhase) -> Result<()> {
        let status = self.drainer.status().await?;
        ensure!(status.phase == want, "not {want}: {status:?}");
        Ok(())
    }
}

// === impl Counters ===

impl Counters {
    fn read(fixture: &Fixture) -> Result<Self> {
        let drainer = fixture.drainer.process();
        Ok(Self {
            read_at: Instant::now(),
            envoy_cpu: fixture.envoy.process().cpu_time()?,
            drainer_cpu: drainer.cpu_time()?,
            context_switches: drainer.context_switches()?,
            admin_calls: fixture.envoy.admin_calls()?.len(),
        })
    }
}
