//! How long one idle keep-alive client delays the end of a pod.

use anyhow::Result;
use futures_util::future::try_join_all;
use tests::peers_report::{PeersReport, Value};
use tests::raw_connection::RawConnection;

use crate::manager::{Manager, Minimum, RUNS};

/// Measures all managers at once, since most of the time passes in waiting. One with fixed ports has one run at a time.
pub(crate) async fn measure(managers: &[Manager], report: &mut PeersReport) -> Result<()> {
    eprintln!("idle client: all runs at once");
    let runs = |manager| try_join_all((0..RUNS).map(move |_| measure_one(manager)));
    let values = try_join_all(managers.iter().map(runs)).await?;
    for (manager, values) in managers.iter().zip(values) {
        for value in values {
            report.add("termination_with_idle_client", manager.program, value);
        }
    }
    Ok(())
}

async fn measure_one(manager: &Manager) -> Result<Value> {
    let envoy = manager.start_envoy().await?;
    let container = manager.start(&envoy, Minimum::Default).await?;
    let _client = RawConnection::open_idle(envoy.address("web")).await?;
    let hooks = container.call_hooks()?;
    let called_at = hooks.called_at();
    Ok(match hooks.wait_for_return().await? {
        Some(returned_at) => Value::Exact((returned_at - called_at).as_secs_f64()),
        None => Value::AtLeast(manager.grace_period.as_secs_f64()),
    })
}
