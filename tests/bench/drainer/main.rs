//! Measures the drainer's size, memory and reaction time; prints the results without asserting them.

mod print;
mod replacement;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drainer::DrainPhase;
use tests::binaries;
use tests::drainer::{DrainerBuilder, HookCall, quick_drainer};
use tests::envoy::{Envoy, proxy};
use tests::envoy_versions;
use tests::listener::tcp;
use tests::timing::{SECOND, phase_offset};
use tests::until::wait_until;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use print::{mebibytes, memory, print};

const RUNS: u32 = 20;

const HOOK_CALLS: usize = 1000;

/// How often the baseline polls Envoy.
const BASELINE_POLL_INTERVAL: Duration = SECOND;

/// Number of the baseline's runs in parallel; each waits for Envoy's statistics flush.
const BASELINE_CONCURRENCY: u32 = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let program = binaries::drainer_of_image()?;
    println!("{}, {}\n", program.display(), envoy_versions::newest()?);
    println!("{:52} {:>9}   measured", "", "target");
    let binary = fs::metadata(&program)?.len();
    print("binary", "2.8 MiB", &mebibytes(binary >> 10));

    let envoy = start_envoy().await?;
    let new_drainer = || anyhow::Ok(quick_drainer(envoy.admin_address())?.program(&program));
    let idle = new_drainer()?.start().await?;
    idle.wait_for_log("Envoy is responding", 10 * SECOND)
        .await?;
    sleep(SECOND).await;
    memory("idle", ["1.5 MiB", "0.35 MiB"], &idle)?;
    drop(idle);
    replacement::measure(new_drainer()?).await?;
    measure_waiting_hooks(&envoy, new_drainer()?).await?;

    let mut runs = Vec::new();
    for run in 0..RUNS {
        runs.push(time_to_hook_return(&envoy, new_drainer()?, run).await?);
    }
    let label = "from the close of the last connection to the return of the hook";
    print(label, "p99 0.35 s", &percentiles(runs));
    let mut runs = Vec::new();
    while runs.len() < RUNS as usize {
        let mut parallel_runs = JoinSet::new();
        for run in 0..BASELINE_CONCURRENCY {
            parallel_runs.spawn(time_to_zero_total(run));
        }
        let round: Result<Vec<_>> = parallel_runs.join_all().await.into_iter().collect();
        runs.extend(round?);
    }
    let label = "  baseline: server.total_connections every second";
    print(label, "", &percentiles(runs));
    Ok(())
}

/// An Envoy with a TCP listener, and its upstream.
async fn start_envoy() -> Result<Envoy> {
    proxy(&envoy_versions::newest()?, [tcp("stream")?]).await
}

/// Measures the memory while a thousand hook calls wait for the end of a drain.
async fn measure_waiting_hooks(envoy: &Envoy, drainer: DrainerBuilder) -> Result<()> {
    let streams = envoy.open_streams(&["stream"]).await?;
    let drainer = drainer.start().await?;
    let mut calls: Vec<_> = (1..HOOK_CALLS).map(|_| drainer.call_envoy_hook()).collect();
    calls.push(drainer.call_drainer_hook()?);
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    wait_until("all calls are connected", 10 * SECOND, || async {
        Ok(drainer.process().open_descriptors()? >= HOOK_CALLS)
    })
    .await?;
    sleep(SECOND).await;
    ensure!(
        calls.iter().all(HookCall::is_waiting),
        "a hook returned before the end of the drain"
    );
    memory("1,000 waiting hooks", ["8 MiB", ""], &drainer)?;
    drop(streams);
    for call in calls {
        call.wait_for_return().await?;
    }
    Ok(())
}

/// Measures the time from the close of the last connection to the return of Envoy's hook.
async fn time_to_hook_return(envoy: &Envoy, drainer: DrainerBuilder, run: u32) -> Result<Duration> {
    let drainer = drainer.start().await?;
    let streams = envoy.open_streams(&["stream"]).await?;
    let hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_count(1).await?;
    sleep(phase_offset(run, RUNS, SECOND / 4)).await;
    drop(streams);
    let closed_at = hooks.called_at().elapsed();
    Ok(hooks.wait_for_return().await? - closed_at)
}

/// Measures the time from the close of the last connection until Envoy's own total is zero, polled
/// every second: the simplest way to wait for a drain.
async fn time_to_zero_total(run: u32) -> Result<Duration> {
    let envoy = start_envoy().await?;
    let streams = envoy.open_streams(&["stream"]).await?;
    let total = async || -> Result<u64> {
        let total = envoy.admin().stat("server.total_connections").await?;
        total.context("no server.total_connections")
    };
    let is_counted = async || Ok(total().await? == 1);
    wait_until("the total counts the connection", 10 * SECOND, is_counted).await?;
    // Envoy flushes the total every five seconds.
    sleep(phase_offset(run, BASELINE_CONCURRENCY, 5 * SECOND)).await;
    drop(streams);
    let closed_at = Instant::now();
    while total().await? > 0 {
        sleep(BASELINE_POLL_INTERVAL).await;
    }
    Ok(closed_at.elapsed())
}

fn percentiles(mut runs: Vec<Duration>) -> String {
    runs.sort();
    let percentile = |percent: usize| runs[(runs.len() * percent).div_ceil(100) - 1].as_secs_f64();
    format!(
        "p50 {:.2} s, p99 {:.2} s ({} runs)",
        percentile(50),
        percentile(99),
        runs.len()
    )
}
