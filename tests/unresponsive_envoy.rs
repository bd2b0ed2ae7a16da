//! Envoy's hook alone returns within 10 s if Envoy hangs, and within a second if it is dead. It is an executable of its
//! own, so that no other test runs while it measures.

use std::time::Duration;

use anyhow::{Context, Result};
use tests::bootstrap::Bootstrap;
use tests::drainer::drainer;
use tests::envoy::envoy;
use tests::listener::http;
use tests::process::Signal;
use tests::timing::{SECOND, TIMEOUT};

/// How much later the hook may return: programs start and wake up on two processors.
const TOLERANCE: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn hook_of_unresponsive_envoy_returns_in_time() -> Result<()> {
    type AdminPlacement = fn(Bootstrap) -> Bootstrap;
    let (in_tcp, in_file): (AdminPlacement, AdminPlacement) =
        (|envoy| envoy, Bootstrap::admin_unix);
    let table = [
        ("hung", in_tcp, Signal::STOP, 10 * SECOND),
        ("hung, on a socket file", in_file, Signal::STOP, 10 * SECOND),
        ("dead", in_tcp, Signal::KILL, SECOND),
        ("dead, its socket file left", in_file, Signal::KILL, SECOND),
    ];
    let mut cases = Vec::new();
    for (name, placement, signal, limit) in table {
        let envoy = placement(envoy()?.listener(http("web")?)).start().await?;
        let drainer = drainer(envoy.admin_address())?.start().await?;
        drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
        cases.push((name, envoy, drainer, signal, limit));
    }
    for (_, envoy, _, signal, _) in &cases {
        envoy.signal(*signal);
    }
    let hooks: Vec<_> = cases
        .iter()
        .map(|(_, _, drainer, ..)| drainer.call_envoy_hook())
        .collect();
    for ((name, _, drainer, _, limit), hook) in cases.iter().zip(hooks) {
        let took = hook.wait_for_return().await.context(*name)?;
        let limit = *limit + TOLERANCE;
        assert!(took < limit, "{name}: {took:?}");
        assert!(drainer.find_log("Envoy accepted").is_none(), "{name}");
    }
    Ok(())
}
