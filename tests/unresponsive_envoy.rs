//! The hook of an Envoy that hangs or is dead returns within 3 s: the drainer's timeout of 2.5 s and half a
//! second more. It is an executable of its own, so that no other test runs while it measures.

use anyhow::{Context, Result};
use tests::bootstrap::Bootstrap;
use tests::cpu_pressure::stall_time;
use tests::drainer::{Drainer, drainer};
use tests::envoy::envoy;
use tests::listener::http;
use tests::process::Signal;
use tests::timing::{SECOND, TIMEOUT};

#[tokio::test]
async fn hook_of_unresponsive_envoy_returns_within_three_seconds() -> Result<()> {
    type AdminPlacement = fn(Bootstrap) -> Bootstrap;
    let table: [(&str, AdminPlacement, Signal); 4] = [
        ("hung", |envoy| envoy, Signal::STOP),
        (
            "hung, on a socket file",
            Bootstrap::admin_unix,
            Signal::STOP,
        ),
        ("dead", |envoy| envoy, Signal::KILL),
        (
            "dead, with its socket file left",
            Bootstrap::admin_unix,
            Signal::KILL,
        ),
    ];
    let mut cases = Vec::new();
    for (name, placement, signal) in table {
        let envoy = placement(envoy()?.listener(http("web")?)).start().await?;
        let drainer = drainer(envoy.admin_address())?.start().await?;
        drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
        cases.push((name, envoy, drainer, signal));
    }
    for (_, envoy, _, signal) in &cases {
        envoy.signal(*signal);
    }
    let call_hook = |(_, _, drainer, _): &(_, _, Drainer, _)| drainer.call_envoy_hook();
    let hooks: Vec<_> = cases.iter().map(call_hook).collect();
    for ((name, _, drainer, _), hook) in cases.iter().zip(hooks) {
        let took = hook.wait_for_return().await.context(*name)?;
        assert!(took < 3 * SECOND + stall_time(took), "{name}: {took:?}");
        assert!(
            !drainer.has_marker(),
            "{name}: there is a marker, although no health was failed"
        );
    }
    Ok(())
}
