//! Drains that keep Envoy's health, on the oldest and the newest Envoy: until no client connects any more, so that the
//! app's own calls keep their connections, and to the end, for a pod that no other can stand in for.

use std::sync::Arc;

use anyhow::Result;
use drainer::HealthFailureDelay;
use tests::bootstrap::Bootstrap;
use tests::drainer::{drainer, start_drainer_with};
use tests::envoy::{Envoy, envoy_with_upstream};
use tests::envoy_versions::EnvoyBinary;
use tests::listener::{DIRECT_PATH, HEALTH_PATH, http, redis};
use tests::load::load;
use tests::raw_connection::RawConnection;
use tests::service::{Endpoint, Probe, Service};
use tests::timing::{SECOND, assert_took, assert_took_at_most, assert_took_between};
use tokio::time::{Instant, sleep};

use super::drain::slow_request;

/// Its listener `web` is INBOUND, and `out` and `redis` are for the app.
async fn sidecar(binary: &EnvoyBinary) -> Result<Bootstrap> {
    let outbound = [http("out")?, redis("redis")?];
    let outbound = outbound.map(|it| it.loopback().direction("OUTBOUND"));
    let envoy = envoy_with_upstream().await?.binary(binary);
    let envoy = envoy.listener(http("web")?.direction("INBOUND"));
    Ok(outbound.into_iter().fold(envoy, Bootstrap::listener))
}

async fn immediate_sidecar(binary: &EnvoyBinary) -> Result<Envoy> {
    let envoy = sidecar(binary).await?;
    envoy.flag("--drain-strategy immediate").start().await
}

tests::for_each_envoy! {
    app_keeps_its_connections_while_clients_connect, balancer_by_health_loses_no_request,
    drain_that_cannot_spare_the_app_is_warned_about, health_is_kept_to_the_end,
}

async fn app_keeps_its_connections_while_clients_connect(binary: EnvoyBinary) -> Result<()> {
    let minimum = 4 * SECOND;
    let envoy = immediate_sidecar(&binary).await?;
    let drainer = start_drainer_with(&envoy, |timing| timing.min_drain_duration = minimum).await?;
    drainer.wait_for_envoy().await?;
    let clients = load().connection_per_request(5.0);
    let clients = clients.start_at(envoy.address("web"));
    let mut app = RawConnection::open_idle(envoy.address("out")).await?;
    let mut redis = RawConnection::open(envoy.address("redis")).await?;
    let mut kept = RawConnection::open_idle(envoy.address("web")).await?;

    let hooks = drainer.call_pod_hooks()?;
    drainer
        .wait_for_status("health is kept", |status| status.health_kept)
        .await?;
    assert!(kept.get(DIRECT_PATH).await?.contains("connection: close"));
    // Beyond the minimum.
    for _ in 0..50 {
        let head = app.get(DIRECT_PATH).await?;
        assert!(!head.contains("connection: close"), "{head}");
        redis.redis_ping().await?;
        sleep(SECOND / 10).await;
    }
    assert_eq!(drainer.accepted_calls(), ["/drain_listeners"]);
    let report = clients.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    let stopped_at = Instant::now();
    envoy.wait_until_draining().await?;
    // The minimum counts from then.
    hooks.wait_for_return().await?;
    assert_took_between(stopped_at.elapsed(), minimum, 3 * SECOND + minimum);
    assert!(app.get(DIRECT_PATH).await?.contains("connection: close"));
    let calls = ["/drain_listeners", "/healthcheck/fail"];
    assert_eq!(drainer.accepted_calls(), calls);
    let calls = envoy.admin_calls()?;
    assert!(calls.iter().any(|path| path.ends_with("&inboundonly")));
    Ok(())
}

async fn balancer_by_health_loses_no_request(binary: EnvoyBinary) -> Result<()> {
    let minimum = 3 * SECOND;
    let (terminating, remaining) = (
        immediate_sidecar(&binary).await?,
        immediate_sidecar(&binary).await?,
    );
    // It does not learn that the pod is deleted.
    let balancer = Arc::new(Service::new(SECOND));
    for (name, envoy) in [("terminating", &terminating), ("remaining", &remaining)] {
        let probe = Probe {
            path: HEALTH_PATH.to_owned(),
            period: SECOND,
            timeout: SECOND,
            failure_threshold: 1,
        };
        balancer.add(Endpoint::new(name, envoy.address("web")), probe);
    }
    balancer.wait_until_ready(2, 10 * SECOND).await?;
    let change = |timing: &mut drainer::Timing| {
        timing.min_drain_duration = minimum;
        timing.drain_timeout = 4 * minimum;
    };
    let drainer = start_drainer_with(&terminating, change).await?;
    drainer.wait_for_envoy().await?;
    let clients = load().connection_per_request(20.0).keep_alive(5.0);
    let clients = clients.start(&balancer);
    // Health fails so early that the minimum follows it.
    let took = drainer.drain_pod().await?;
    terminating.terminate().await?;
    let report = clients.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    assert_took(took, 4 * minimum);
    let calls = ["/drain_listeners", "/healthcheck/fail"];
    assert_eq!(drainer.accepted_calls(), calls);
    Ok(())
}

async fn drain_that_cannot_spare_the_app_is_warned_about(binary: EnvoyBinary) -> Result<()> {
    // The default strategy is gradual.
    let gradual = sidecar(&binary).await?.start().await?;
    let undirected = sidecar(&binary).await?.listener(http("other")?);
    let undirected = undirected.flag("--drain-strategy immediate");
    for envoy in [gradual, undirected.start().await?] {
        let drainer = start_drainer_with(&envoy, |timing| {
            timing.min_drain_duration = SECOND;
            timing.quiet_period = SECOND;
        });
        let drainer = drainer.await?;
        let warning = drainer.wait_for_warning("the app's own calls").await?;
        assert!(warning["message"].to_string().contains("drain-strategy"));
        drainer.drain_pod().await?;
        let calls = ["/healthcheck/fail", "/drain_listeners"];
        assert_eq!(drainer.accepted_calls(), calls);
    }
    Ok(())
}

async fn health_is_kept_to_the_end(binary: EnvoyBinary) -> Result<()> {
    let envoy = immediate_sidecar(&binary).await?;
    let drainer = drainer(envoy.admin_address())?
        .timing(|timing| timing.min_drain_duration = 2 * SECOND)
        .with_config(|config| config.settings.health_failure_delay = HealthFailureDelay::End);
    let drainer = drainer.start().await?;
    drainer.wait_for_envoy().await?;
    // Clients connect all the time.
    let clients = load().connection_per_request(5.0);
    let clients = clients.start_at(envoy.address("web"));
    let request = slow_request(envoy.client("web"), 6 * SECOND);

    let hooks = drainer.call_pod_hooks()?;
    sleep(4 * SECOND).await;
    assert!(hooks.is_waiting());
    assert_eq!(envoy.admin().state().await?, "LIVE");
    assert_eq!(drainer.accepted_calls(), ["/drain_listeners"]);
    hooks.wait_for_return().await?;
    let (answered_at, answered) = request.await?;
    answered?;
    assert_took_at_most(answered_at.elapsed(), 2 * SECOND);
    let calls = ["/drain_listeners", "/healthcheck/fail"];
    assert_eq!(drainer.accepted_calls(), calls);
    assert_eq!(drainer.termination_message()?["outcome"], "idle");
    let report = clients.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    Ok(())
}
