//! When Envoy's health is failed, on the oldest and the newest Envoy: later where HTTP/3 clients would lose requests.

use std::time::Duration;

use anyhow::{Context, Result};
use tests::drainer::{quick_drainer, start_drainer_with};
use tests::envoy::{envoy, envoy_with_upstream};
use tests::envoy_versions::EnvoyBinary;
use tests::listener::{http, http3};
use tests::load::load;
use tests::raw_connection::RawConnection;
use tests::timing::{SECOND, assert_took};
use tokio::time::sleep;

/// Makes `/drain_listeners` send GOAWAY with each response.
const IMMEDIATE: &str = "--drain-strategy immediate";

tests::for_each_envoy! {
    health_is_kept_until_http3_clients_have_left, gradual_strategy_is_warned_about_and_fails_health_at_once,
}

async fn health_is_kept_until_http3_clients_have_left(binary: EnvoyBinary) -> Result<()> {
    // Both have one name in Envoy's statistics of listeners, as those of one port of a Service often have.
    let (tcp, quic) = (http("tcp")?, http3("quic")?);
    let quic = quic.port_of(&tcp);
    let envoy = envoy_with_upstream().await?.binary(&binary).flag(IMMEDIATE);
    let envoy = envoy.listener(tcp).listener(quic).start().await?;
    let drainer = start_drainer_with(&envoy, |timing| timing.quiet_period = SECOND).await?;
    drainer.wait_for_envoy().await?;
    assert!(drainer.find_log("QUIC").is_none());
    // Keeps the drain from ending when HTTP/3 clients have left.
    let upgraded = RawConnection::open_upgraded(envoy.address("tcp")).await?;
    let clients = load().slow_http3(8.0, 3 * SECOND);
    let clients = clients.start_at(envoy.address("quic"));
    sleep(4 * SECOND).await;

    let hooks = drainer.call_pod_hooks()?;
    drainer
        .wait_for_status("health is kept", |status| status.health_kept)
        .await?;
    sleep(SECOND).await;
    assert_eq!(envoy.admin().state().await?, "LIVE");
    assert_eq!(drainer.accepted_calls(), ["/drain_listeners"]);
    let report = clients.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    envoy.wait_until_draining().await?;
    let failed_after = hooks.called_at().elapsed();
    let gauge = "http.quic.downstream_cx_http3_active";
    let open = envoy.admin().stat(gauge).await?;
    assert_eq!(open, Some(0));
    assert!(hooks.is_waiting());
    assert!(!drainer.status().await?.health_kept);
    let calls = ["/drain_listeners", "/healthcheck/fail"];
    assert_eq!(drainer.accepted_calls(), calls);
    drop(upgraded);
    hooks.wait_for_return().await?;
    let message = drainer.termination_message()?;
    let seconds = message["secondsToFailedHealth"].as_f64();
    let seconds = seconds.with_context(|| message.to_string())?;
    assert_took(failed_after, Duration::from_secs_f64(seconds));
    Ok(())
}

async fn gradual_strategy_is_warned_about_and_fails_health_at_once(
    binary: EnvoyBinary,
) -> Result<()> {
    let envoy = envoy()?.binary(&binary).listener(http3("quic")?);
    let envoy = envoy.start().await?;
    let drainer = quick_drainer(envoy.admin_address())?.start().await?;
    let warning = "of QUIC listeners";
    drainer.wait_for_warning(warning).await?;
    drainer.drain_pod().await?;
    let calls = ["/healthcheck/fail", "/drain_listeners"];
    assert_eq!(drainer.accepted_calls(), calls);
    let message = drainer.termination_message()?;
    assert!(message.get("secondsToFailedHealth").is_none(), "{message}");
    Ok(())
}
