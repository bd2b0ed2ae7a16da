//! What a manager costs in a drain, and how soon it notices that the last connection is closed.

use std::time::Duration;

use anyhow::{Context, Result};
use tests::peers_report::{Memory, PeersReport};
use tests::raw_connection::RawConnection;
use tests::timing::phase_offset;
use tokio::time::{Instant, sleep};

use crate::manager::{Manager, Minimum, RUNS};

/// From the start of the drain to the measurement.
const WARM_UP: Duration = Duration::from_secs(3);

/// Measures the managers in turn.
pub(crate) async fn measure(managers: &[Manager], report: &mut PeersReport) -> Result<()> {
    for run in 0..RUNS {
        eprintln!("drains: run {} of {RUNS}", run + 1);
        for manager in managers {
            let (memory, reaction) = measure_one(manager, run).await?;
            report.add_memory("drain", manager.program, &memory);
            report.add("reaction", manager.program, reaction.as_secs_f64());
        }
    }
    Ok(())
}

async fn measure_one(manager: &Manager, run: u32) -> Result<(Memory, Duration)> {
    let envoy = manager.start_envoy().await?;
    let container = manager.start(&envoy, Minimum::None).await?;
    // The drainer does not wait for connections that are only idle.
    let connection = RawConnection::open_upgraded(envoy.address("web")).await?;
    let hooks = container.call_hooks()?;
    envoy.wait_until_draining().await?;
    sleep(WARM_UP).await;
    let memory = Memory::read(&[&container.process, &hooks.own])?;
    sleep(phase_offset(run, RUNS, manager.poll_interval)).await;
    drop(connection);
    let closed_at = Instant::now();
    let returned_at = hooks.wait_for_return().await?;
    Ok((
        memory,
        returned_at.context("the drain does not end")? - closed_at,
    ))
}
