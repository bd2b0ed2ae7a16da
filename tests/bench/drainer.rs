//! What the drainer costs, and how soon it knows: printed, not judged.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use drainer::DrainPhase;
use tests::drainer::{Drainer, HookCall, drainer};
use tests::envoy::{Envoy, envoy};
use tests::envoy_versions;
use tests::listener::tcp;
use tests::memory::MemoryMetric;
use tests::raw_connection::RawConnection;
use tests::timing::SECOND;
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const RUNS: u32 = 20;

const HOOK_CALLS: usize = 1000;

/// How often the baseline asks.
const BASELINE_POLL_INTERVAL: Duration = SECOND;

/// So many of the baseline's runs go on at once: each waits for Envoy's clock.
const BASELINE_CONCURRENCY: u32 = 5;

/// The Envoy whose connections end, and what stands behind it.
struct Fixture {
    envoy: Envoy,
    _upstream: Upstream,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let program = program()?.canonicalize()?;
    println!("{}, {}\n", program.display(), envoy_versions::newest()?);
    println!("{:52} {:>9}   measured", "", "to reach");
    let binary = fs::metadata(&program)?.len();
    print("binary", "1.5 MiB", &mebibytes(binary >> 10));

    let scene = Fixture::start().await?;
    let idle = scene.drainer(&program).await?;
    idle.wait_for_log("Envoy is responding", 10 * SECOND)
        .await?;
    sleep(SECOND).await;
    memory("idle", ["1.5 MiB", "0.5 MiB"], &idle)?;
    drop(idle);
    measure_waiting_hooks(&scene, &program).await?;

    let mut runs = Vec::new();
    for run in 0..RUNS {
        runs.push(time_to_hook_return(&scene, &program, run).await?);
    }
    let what = "last connection's end to the hook's return";
    print(what, "p99 0.35 s", &percentiles(runs));
    let mut runs = Vec::new();
    while runs.len() < RUNS as usize {
        let mut at_once = JoinSet::new();
        for run in 0..BASELINE_CONCURRENCY {
            at_once.spawn(time_to_zero_total(run));
        }
        let round: Result<Vec<_>> = at_once.join_all().await.into_iter().collect();
        runs.extend(round?);
    }
    let what = "  baseline: server.total_connections each second";
    print(what, "", &percentiles(runs));
    Ok(())
}

/// The drainer as its image holds it: the binary that the first argument or `DRAINER` names, else
/// the one that `make drainer` builds for this machine.
fn program() -> Result<PathBuf> {
    // Cargo itself passes `--bench`.
    let argument = env::args_os()
        .skip(1)
        .find(|argument| argument != "--bench");
    let named = argument.or_else(|| env::var_os("DRAINER"));
    let program = named.map_or_else(
        || {
            let target = format!("../target/{}-unknown-linux-musl", env::consts::ARCH);
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(target)
                .join("small/drainer")
        },
        PathBuf::from,
    );
    ensure!(
        program.is_file(),
        "{} is not there: run `make drainer`",
        program.display()
    );
    Ok(program)
}

/// The memory with a thousand callers that wait for the end of a drain.
async fn measure_waiting_hooks(scene: &Fixture, program: &Path) -> Result<()> {
    let stream = scene.stream().await?;
    let drainer = scene.drainer(program).await?;
    let mut callers: Vec<_> = (1..HOOK_CALLS).map(|_| drainer.call_envoy_hook()).collect();
    callers.push(drainer.call_drainer_hook()?);
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    let files = format!("/proc/{}/fd", drainer.process().pid());
    wait_until("all callers are there", 10 * SECOND, || async {
        Ok(fs::read_dir(&files)?.count() >= HOOK_CALLS)
    })
    .await?;
    sleep(SECOND).await;
    ensure!(
        callers.iter().all(HookCall::is_waiting),
        "a hook did not wait"
    );
    memory("1,000 callers wait", ["8 MiB", ""], &drainer)?;
    drop(stream);
    for caller in callers {
        caller.wait_for_return().await?;
    }
    Ok(())
}

/// How long after the last connection's end Envoy's hook returns.
async fn time_to_hook_return(scene: &Fixture, program: &Path, run: u32) -> Result<Duration> {
    let drainer = scene.drainer(program).await?;
    let stream = scene.stream().await?;
    let end = drainer.call_pod_hooks()?;
    wait_until("the connection is counted", 5 * SECOND, || async {
        let open = drainer.status().await?.open;
        Ok(open.is_some_and(|open| open.connections == 1))
    })
    .await?;
    sleep(phase_offset(run, RUNS, SECOND / 4)).await;
    drop(stream);
    let ended = end.called_at().elapsed();
    Ok(end.wait_for_return().await? - ended)
}

/// How long after the last connection's end Envoy's own total says zero to who asks each second: the
/// plain way to wait for a drain.
async fn time_to_zero_total(run: u32) -> Result<Duration> {
    let scene = Fixture::start().await?;
    let stream = scene.stream().await?;
    let total = async || -> Result<u64> {
        let total = scene.envoy.admin().stat("server.total_connections").await?;
        total.context("no server.total_connections")
    };
    let seen = async || Ok(total().await? == 1);
    wait_until("the total has seen it", 10 * SECOND, seen).await?;
    // Envoy renews the total every five seconds.
    sleep(phase_offset(run, BASELINE_CONCURRENCY, 5 * SECOND)).await;
    drop(stream);
    let ended = Instant::now();
    while total().await? > 0 {
        sleep(BASELINE_POLL_INTERVAL).await;
    }
    Ok(ended.elapsed())
}

/// Spreads the runs evenly over a period, so that they meet it at every moment alike.
fn phase_offset(run: u32, runs: u32, period: Duration) -> Duration {
    period * run / runs
}

fn memory(state: &str, to_reach: [&str; 2], drainer: &Drainer) -> Result<()> {
    let kinds = [
        ("resident", MemoryMetric::Resident),
        ("private", MemoryMetric::Private),
    ];
    for ((name, kind), to_reach) in kinds.into_iter().zip(to_reach) {
        let measured = mebibytes(kind.read(drainer.process())?);
        print(&format!("{state}, {name} memory"), to_reach, &measured);
    }
    Ok(())
}

fn mebibytes(kib: u64) -> String {
    format!("{:.2} MiB", kib as f64 / 1024.0)
}

fn percentiles(mut runs: Vec<Duration>) -> String {
    runs.sort();
    let at = |share: usize| runs[(runs.len() * share).div_ceil(100) - 1].as_secs_f64();
    format!(
        "p50 {:.2} s, p99 {:.2} s ({} runs)",
        at(50),
        at(99),
        runs.len()
    )
}

fn print(what: &str, to_reach: &str, measured: &str) {
    println!("{what:52} {to_reach:>9}   {measured}");
}

// === impl Scene ===

impl Fixture {
    async fn start() -> Result<Self> {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?.upstream(&upstream).listener(tcp("stream")?);
        Ok(Self {
            envoy: envoy.start().await?,
            _upstream: upstream,
        })
    }

    async fn drainer(&self, program: &Path) -> Result<Drainer> {
        let sidecar = drainer(self.envoy.admin_address())?.program(program);
        sidecar.exit_without_minimum().start().await
    }

    async fn stream(&self) -> Result<RawConnection> {
        RawConnection::open_stream(self.envoy.address("stream")).await
    }
}
