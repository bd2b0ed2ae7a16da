//! What a manager costs while its pod serves: nearly always.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use tests::peers_report::{Memory, PeersReport};
use tokio::time::sleep;

use crate::manager::{Manager, Minimum, RUNS};

/// From the start to the measurement.
const WARM_UP: Duration = Duration::from_secs(5);

/// `periodSeconds` of the probes.
const PROBE_PERIOD: Duration = Duration::from_secs(10);

/// How long the CPU time is measured, in periods of the probes: a minute, in which the drainer calls Envoy fifteen times.
const PERIODS: u32 = 6;

/// What a manager used in the measured time.
struct Cost {
    memory: Memory,
    cpu_time: Duration,
    context_switches: u64,
}

/// Measures all managers in the same minutes, so that what else runs on the machine affects them alike.
pub(crate) async fn measure(managers: &[Manager], report: &mut PeersReport) -> Result<()> {
    for run in 1..=RUNS {
        eprintln!("standby, for a minute: run {run} of {RUNS}");
        let costs = try_join_all(managers.iter().map(measure_one)).await?;
        for (manager, cost) in managers.iter().zip(costs) {
            let (program, cpu_time) = (manager.program, cost.cpu_time.as_secs_f64() * 1e3);
            report.add_memory("standby", program, &cost.memory);
            report.add("standby_cpu_time", program, cpu_time);
            let switches = cost.context_switches as f64;
            report.add("standby_context_switches", program, switches);
        }
    }
    Ok(())
}

async fn measure_one(manager: &Manager) -> Result<Cost> {
    let envoy = manager.start_envoy().await?;
    let container = manager.start(&envoy, Minimum::Default).await?;
    let process = &container.process;
    sleep(WARM_UP).await;
    let (cpu_time, context_switches) = (process.cpu_time()?, process.context_switches()?);
    for _ in 0..PERIODS {
        container.probe().await?;
        sleep(PROBE_PERIOD).await;
    }
    Ok(Cost {
        cpu_time: process.cpu_time()?.saturating_sub(cpu_time),
        context_switches: process.context_switches()?.saturating_sub(context_switches),
        memory: Memory::read(&[process])?,
    })
}
