//! Envoys that change beside a running drainer, the oldest and the newest: hot restarts, and listeners that LDS adds.

use anyhow::Result;
use drainer::{HealthFailureDelay, SoleWitness};
use serde_json::json;
use tests::drainer::{drainer, quick_drainer, start_quick_drainer};
use tests::envoy::envoy_with_upstream;
use tests::envoy_versions::EnvoyBinary;
use tests::listener::{http, tcp};
use tests::parallel::for_each_case;
use tests::raw_connection::RawConnection;
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_between};
use tests::until::wait_until;

use super::drain::{slow_request, wait_for_active_requests};

tests::for_each_envoy! {
    new_process_of_hot_restart_is_drained, new_process_is_told_where_health_is_kept,
    old_process_of_hot_restart_is_drained, outbound_listener_of_lds_holds_no_drain,
    outbound_listener_that_lds_removes_holds_no_drain,
}

async fn new_process_of_hot_restart_is_drained(binary: EnvoyBinary) -> Result<()> {
    for is_draining in [false, true] {
        let envoy = envoy_with_upstream().await?.binary(&binary).hot_restart();
        let mut envoy = envoy.listener(http("web")?).start().await?;
        let drainer = drainer(envoy.admin_address())?.start().await?;
        drainer.wait_for_envoy().await?;
        let mut hooks = None;
        if is_draining {
            hooks = Some(drainer.call_pod_hooks()?);
            envoy.wait_until_draining().await?;
        }
        envoy.hot_restart().await?;
        let request = slow_request(envoy.client("web"), 20 * SECOND);
        wait_for_active_requests(&envoy, 1).await?;
        let hooks = hooks.map_or_else(|| drainer.call_pod_hooks(), Ok)?;
        hooks.wait_for_return().await?;
        assert_eq!(envoy.admin().state().await?, "DRAINING", "{is_draining}");
        envoy.terminate().await?;
        request.await?.1?;
        assert_eq!(drainer.termination_message()?["outcome"], "drained");
    }
    Ok(())
}

async fn new_process_is_told_where_health_is_kept(binary: EnvoyBinary) -> Result<()> {
    let envoy = envoy_with_upstream().await?.binary(&binary).hot_restart();
    let envoy = envoy
        .flag("--drain-strategy immediate")
        .stats_flush_interval(SECOND);
    let mut envoy = envoy.listener(tcp("stream")?).start().await?;
    let drainer = drainer(envoy.admin_address())?.with_config(|config| {
        let delay = HealthFailureDelay::After(40 * SECOND);
        config.settings.health_failure_delay = delay;
    });
    let drainer = drainer.start().await?;
    drainer.wait_for_envoy().await?;
    wait_until("a flush of statistics", TIMEOUT, async || {
        Ok(envoy.admin().stat("server.uptime").await? > Some(0))
    })
    .await?;
    let stream = RawConnection::open_stream(envoy.address("stream")).await?;
    let hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_count(1).await?;
    assert_eq!(drainer.accepted_calls(), ["/drain_listeners"]);
    envoy.hot_restart().await?;
    wait_until("the new process is told", TIMEOUT, async || {
        Ok(drainer.accepted_calls() == ["/drain_listeners"; 2])
    })
    .await?;
    assert!(hooks.is_waiting());
    drop(stream);
    hooks.wait_for_return().await?;
    Ok(())
}

/// When Envoy is restarted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Restart {
    BeforeTermination,
    WhileWaiting,
    WhileDraining,
    WhileHealthIsKept,
}

async fn old_process_of_hot_restart_is_drained(binary: EnvoyBinary) -> Result<()> {
    use Restart::{BeforeTermination, WhileDraining, WhileHealthIsKept, WhileWaiting};
    let all = [
        BeforeTermination,
        WhileWaiting,
        WhileDraining,
        WhileHealthIsKept,
    ];
    for_each_case(all, |restart| drain_old_process(binary.clone(), restart)).await
}

/// Drains an Envoy whose old process has 20 requests and 20 tunnels.
async fn drain_old_process(binary: EnvoyBinary, restart: Restart) -> Result<()> {
    let envoy = envoy_with_upstream().await?.binary(&binary).hot_restart();
    let envoy = envoy.listener(http("web")?).listener(tcp("stream")?);
    let mut envoy = envoy.start().await?;
    let drainer = quick_drainer(envoy.admin_address())?.with_config(|config| {
        if restart == Restart::WhileHealthIsKept {
            config.settings.health_failure_delay = HealthFailureDelay::After(10 * SECOND);
        }
    });
    let drainer = drainer.start().await?;
    drainer.wait_for_envoy().await?;
    let requests: Vec<_> = (0..20)
        .map(|_| slow_request(envoy.client("web"), 20 * SECOND))
        .collect();
    let mut tunnels = envoy.open_streams(&["stream"; 20]).await?;
    wait_for_active_requests(&envoy, 20).await?;

    let (mut hooks, mut envoy_hook) = (None, None);
    match restart {
        Restart::BeforeTermination => {}
        Restart::WhileWaiting => envoy_hook = Some(drainer.call_envoy_hook()),
        Restart::WhileDraining | Restart::WhileHealthIsKept => {
            hooks = Some(drainer.call_pod_hooks()?);
            drainer.wait_for_count(40).await?;
        }
    }
    envoy.hot_restart().await?;
    let hooks = hooks.map_or_else(|| drainer.call_pod_hooks(), Ok)?;
    for request in requests {
        request.await?.1?;
    }
    for tunnel in &mut tunnels {
        tunnel.ping().await?;
    }
    assert!(hooks.is_waiting(), "tunnels are open");
    let status = drainer.status().await?;
    assert_eq!(status.witness, Some(SoleWitness::Kernel), "{status:?}");
    drop(tunnels);
    let closed_at = hooks.called_at().elapsed();
    // The kernel is asked again after 20 times what its last answer took, beside the floods of other tests.
    assert_took_between(
        hooks.wait_for_return().await?,
        closed_at,
        closed_at + 5 * SECOND,
    );
    drop(envoy_hook);
    drainer.assert_message(&json!({"outcome": "drained"}))
}

async fn outbound_listener_of_lds_holds_no_drain(binary: EnvoyBinary) -> Result<()> {
    let cases = [false, true].map(|is_draining| [(is_draining, false), (is_draining, true)]);
    for (is_draining, is_local) in cases.into_iter().flatten() {
        let envoy = envoy_with_upstream().await?.binary(&binary).lds();
        let envoy = envoy.listener(tcp("in")?).start().await?;
        let drainer =
            start_quick_drainer(&envoy, |timing| timing.drain_timeout = 16 * SECOND).await?;
        drainer.wait_for_envoy().await?;
        let inbound = RawConnection::open_stream(envoy.address("in")).await?;
        let mut hooks = None;
        if is_draining {
            hooks = Some(drainer.call_pod_hooks()?);
            drainer.wait_for_count(1).await?;
        }
        // Its name in statistics says neither that it is bound to a loopback address, nor its direction.
        let listener = if is_local {
            tcp("out")?.loopback().stat_prefix("out")
        } else {
            tcp("out")?.direction("OUTBOUND")
        };
        let address = listener.address();
        envoy.set_lds_listeners(&[listener]).await?;
        let mut outbound = RawConnection::open_stream(address).await?;
        let hooks = hooks.map_or_else(|| drainer.call_pod_hooks(), Ok)?;
        drainer.wait_for_count(1).await?;
        drop(inbound);
        let closed_at = hooks.called_at().elapsed();
        assert_took(hooks.wait_for_return().await?, closed_at);
        outbound.ping().await?;
        assert_eq!(drainer.termination_message()?["outcome"], "drained");
    }
    Ok(())
}

async fn outbound_listener_that_lds_removes_holds_no_drain(binary: EnvoyBinary) -> Result<()> {
    let envoy = envoy_with_upstream().await?.binary(&binary).lds();
    let envoy = envoy.listener(tcp("in")?).start().await?;
    let drainer = start_quick_drainer(&envoy, |timing| timing.drain_delay = 2 * SECOND).await?;
    drainer.wait_for_envoy().await?;
    let listener = tcp("out")?.direction("OUTBOUND");
    let address = listener.address();
    envoy.set_lds_listeners(&[listener]).await?;
    let mut outbound = RawConnection::open_stream(address).await?;
    envoy.set_lds_listeners(&[]).await?;
    // Its connections go on until Envoy's own drain time has passed.
    wait_until("the listener is removed", TIMEOUT, async || {
        let removed = envoy
            .admin()
            .stat("listener_manager.listener_removed")
            .await?;
        Ok(removed == Some(1))
    })
    .await?;
    // Nor is it counted before the drain's calls.
    assert_took(drainer.drain_pod().await?, 2 * SECOND);
    outbound.ping().await?;
    drainer.assert_message(&json!({"outcome": "drained", "peak": 0}))
}
