//! What is promised of the hook of an Envoy that hangs or is dead: half a second more than the drainer
//! waits. It is measured here alone, so that nothing but what it measures is on the clock.

use anyhow::{Context, Result};
use tests::bootstrap::Bootstrap;
use tests::cpu_pressure::stall_time;
use tests::drainer::{Drainer, drainer};
use tests::envoy::envoy;
use tests::listener::http;
use tests::process::Signal;
use tests::timing::{SECOND, TIMEOUT};

#[tokio::test]
async fn the_hook_of_an_envoy_that_does_not_answer_returns_within_three_seconds() -> Result<()> {
    type Place = fn(Bootstrap) -> Bootstrap;
    let table: [(&str, Place, Signal); 4] = [
        ("hung", |envoy| envoy, Signal::STOP),
        (
            "hung, on a socket file",
            Bootstrap::admin_unix,
            Signal::STOP,
        ),
        ("dead", |envoy| envoy, Signal::KILL),
        (
            "dead, its socket file is left",
            Bootstrap::admin_unix,
            Signal::KILL,
        ),
    ];
    let mut cases = Vec::new();
    for (name, place, signal) in table {
        let envoy = place(envoy()?.listener(http("web")?)).start().await?;
        let drainer = drainer(envoy.admin_address())?.start().await?;
        drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
        cases.push((name, envoy, drainer, signal));
    }
    for (_, envoy, _, signal) in &cases {
        envoy.signal(*signal);
    }
    let ask = |(_, _, drainer, _): &(_, _, Drainer, _)| drainer.call_envoy_hook();
    let hooks: Vec<_> = cases.iter().map(ask).collect();
    for ((name, _, drainer, _), hook) in cases.iter().zip(hooks) {
        let took = hook.wait_for_return().await.context(*name)?;
        assert!(took < 3 * SECOND + stall_time(took), "{name}: {took:?}");
        assert!(!drainer.has_marker(), "{name}: nothing was done");
    }
    Ok(())
}
