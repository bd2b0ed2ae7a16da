//! Termination of pods with the oldest and the newest Envoy: which requests survive, what holds a drain and for
//! how long, and what the termination message says.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use drainer::{DrainPhase, ListenerSelector};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tempfile::TempDir;
use tests::bootstrap::Bootstrap;
use tests::drainer::{drainer, quick_drainer, start_quick_drainer};
use tests::envoy::{Envoy, envoy, envoy_with_upstream, proxy, web_envoy};
use tests::envoy_versions::EnvoyBinary;
use tests::http::Client;
use tests::listener::{DIRECT_PATH, http, tcp, udp};
use tests::load::load;
use tests::process::Signal;
use tests::raw_connection::RawConnection;
use tests::service::{Endpoint, Service};
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_at_most, assert_took_between};
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// Sends a request that takes so long. Returns when it ended, and whether its response was complete.
pub(super) fn slow_request(client: Client, takes: Duration) -> JoinHandle<(Instant, Result<()>)> {
    tokio::spawn(async move {
        let path = format!("/slow?ms={}", takes.as_millis());
        let client = client.with_timeout(takes + 10 * SECOND);
        let response = client.post(&path).await.and_then(|response| {
            anyhow::ensure!(response.status == 200, "{response:?}");
            Ok(())
        });
        (Instant::now(), response)
    })
}

/// Waits until so many requests are in flight at the HTTP statistics prefix `web`.
pub(super) async fn wait_for_active_requests(envoy: &Envoy, requests: u64) -> Result<()> {
    wait_for_requests(envoy, "http.web.downstream_rq_active", requests).await
}

/// Waits until so many requests are in flight, by this statistic.
async fn wait_for_requests(envoy: &Envoy, statistic: &str, requests: u64) -> Result<()> {
    let what = format!("{requests} requests in flight");
    wait_until(&what, TIMEOUT, || async {
        Ok(envoy.admin().stat(statistic).await? == Some(requests))
    })
    .await
}

fn port(address: SocketAddr) -> NonZeroU16 {
    address.port().try_into().expect("a bound port is not zero")
}

/// The name of a listener on all addresses in Envoy's statistics.
pub(super) fn listener_stat(envoy: &Envoy, listener: &str) -> String {
    format!("0.0.0.0_{}", envoy.address(listener).port())
}

/// Requests a path each `period`, on a new connection each time, until the result is dropped.
pub(super) fn request_periodically(
    period: Duration,
    client: Client,
    path: &'static str,
) -> JoinSet<()> {
    let mut requests = JoinSet::new();
    requests.spawn(async move {
        let mut tick = interval(period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            // Health checks fail once the drain has begun.
            let _ = client.get(path).await;
        }
    });
    requests
}

tests::for_each_envoy! {
    inbound_listeners_on_loopback_are_waited_for, sessions_of_udp_proxies_hold_drain,
    request_beyond_the_timeout_is_cut_at_it, upgraded_connection_is_not_idle,
    http2_client_gets_goaway_and_loses_no_stream, connections_15_s_late_reach_an_envoy,
    ignored_and_outbound_listeners_do_not_hold_drain, modify_only_listener_is_drained_immediately,
    listeners_of_any_name_are_counted, requests_under_admin_stat_prefix_are_not_idle,
    hidden_statistics_are_never_zero, connections_that_envoy_does_not_accept_hold_drain,
    envoy_without_xds_response_is_drained, admin_is_reached_over_ipv6_and_unix_sockets,
    partly_hidden_statistics_cut_no_request, drain_that_is_killed_leaves_an_interim_message,
    second_end_of_a_pod_leaves_the_message_of_the_first, envoy_without_inbound_listener_is_drained,
    unused_statistics_are_read_with_a_matcher_alone,
}

async fn inbound_listeners_on_loopback_are_waited_for(binary: EnvoyBinary) -> Result<()> {
    let dir = TempDir::new()?;
    let outbound = |name: &str| anyhow::Ok(tcp(name)?.direction("OUTBOUND"));
    let selected = vec![ListenerSelector::Name("web".to_owned())];
    let envoys = [
        // A front proxy of the pod calls it.
        (vec![http("web")?.loopback(), outbound("out")?], vec![]),
        (
            vec![http("web")?.loopback().direction("INBOUND"), tcp("other")?],
            vec![],
        ),
        (
            vec![http("web")?.direction("OUTBOUND"), tcp("other")?],
            selected.clone(),
        ),
        (vec![http("web")?.loopback(), tcp("other")?], selected),
        (
            vec![
                http("web")?.loopback(),
                tcp("pipe")?.pipe(&dir.path().join("pipe")),
            ],
            vec![],
        ),
    ];
    for (listeners, selected) in envoys {
        let envoy = proxy(&binary, listeners).await?;
        let drainer = quick_drainer(envoy.admin_address())?
            .with_config(|config| config.settings.count_listeners = selected)
            .start()
            .await?;
        let requests = [(); 5].map(|()| slow_request(envoy.client("web"), 4 * SECOND));
        wait_for_active_requests(&envoy, 5).await?;
        drainer.drain_pod().await?;
        let returned = Instant::now();
        envoy.terminate().await?;
        for request in requests {
            let (answered_at, response) = request.await?;
            response?;
            assert_took_at_most(returned - answered_at, Duration::ZERO);
        }
        drainer.assert_message(&json!({"outcome": "drained", "peak": 5}))?;
        assert!(
            drainer
                .find_log("No listener of Envoy is counted")
                .is_none()
        );
    }
    Ok(())
}

async fn sessions_of_udp_proxies_hold_drain(binary: EnvoyBinary) -> Result<()> {
    for is_hidden in [false, true] {
        let mut envoy = envoy_with_upstream().await?.binary(&binary);
        if is_hidden {
            envoy = envoy.exclude_stats(&["udp."]);
        }
        let outbound = udp("out", 60 * SECOND)?.direction("OUTBOUND");
        let envoy = envoy
            .listener(udp("dns", 4 * SECOND)?)
            .listener(outbound)
            .start()
            .await?;
        let drainer = start_quick_drainer(&envoy, |t| t.drain_timeout = 10 * SECOND).await?;
        drainer.wait_for_envoy().await?;
        let client = UdpSocket::bind("127.0.0.1:0").await?;
        for listener in ["dns", "out"] {
            client.send_to(b"?", envoy.address(listener)).await?;
        }
        let hooks = drainer.call_pod_hooks()?;
        if is_hidden {
            drainer.wait_for_warning("(udp.*").await?;
            assert_took(hooks.wait_for_return().await?, 10 * SECOND);
            assert_eq!(drainer.termination_message()?["outcome"], "deadline");
            continue;
        }
        drainer.wait_for_count(1).await?;
        let open = drainer.status().await?.remaining.context("no counts")?;
        assert_eq!((open.tcp, open.by_listener["udp.dns"]), (Some(1), 1));
        assert_took_between(hooks.wait_for_return().await?, 2 * SECOND, 8 * SECOND);
        drainer.assert_message(&json!({"outcome": "drained", "peak": 1}))?;
    }
    Ok(())
}

async fn request_beyond_the_timeout_is_cut_at_it(binary: EnvoyBinary) -> Result<()> {
    let timeout = 5 * SECOND;
    let envoy = web_envoy(&binary).await?;
    let drainer = start_quick_drainer(&envoy, |t| t.drain_timeout = timeout).await?;
    let in_time = slow_request(envoy.client("web"), timeout - 2 * SECOND);
    let too_long = slow_request(envoy.client("web"), timeout + 3 * SECOND);
    wait_for_active_requests(&envoy, 2).await?;

    let hooks = drainer.call_pod_hooks()?;
    assert_took(hooks.wait_for_return().await?, timeout);
    assert!(!too_long.is_finished(), "the request ended before SIGTERM");
    envoy.terminate().await?;
    in_time.await?.1?;
    let (ended_at, response) = too_long.await?;
    assert!(response.is_err(), "the request was answered after SIGTERM");
    assert_took(ended_at - hooks.called_at(), timeout);
    let message = drainer.termination_message()?;
    assert_eq!(message["outcome"], "deadline");
    assert_eq!(message["remaining"]["requests"], 1);
    Ok(())
}

async fn upgraded_connection_is_not_idle(binary: EnvoyBinary) -> Result<()> {
    let envoy = web_envoy(&binary).await?;
    let drainer = start_quick_drainer(&envoy, |t| {
        t.idle_exit = Some(SECOND);
        t.drain_timeout = 3 * SECOND;
    })
    .await?;
    let mut upgraded = RawConnection::open_upgraded(envoy.address("web")).await?;
    assert_took(drainer.drain_pod().await?, 3 * SECOND);
    upgraded.ping().await?;
    drainer.assert_message(&json!({"outcome": "deadline", "remaining": {"upgrades": 1}}))?;
    Ok(())
}

async fn http2_client_gets_goaway_and_loses_no_stream(binary: EnvoyBinary) -> Result<()> {
    let envoy = web_envoy(&binary).await?;
    let drainer = drainer(envoy.admin_address())?.start().await?;
    let stream = TcpStream::connect(envoy.address("web")).await?;
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await?;
    let connection = tokio::spawn(connection);
    let request = Request::get("http://shop/slow?ms=3000").body(Empty::<bytes::Bytes>::new())?;
    let response = sender.send_request(request);
    let response = tokio::spawn(async move { anyhow::Ok(response.await?.collect().await?) });
    wait_for_active_requests(&envoy, 1).await?;

    let hooks = drainer.call_pod_hooks()?;
    response.await??;
    // GOAWAY alone closes it: this client never closes a connection.
    connection.await??;
    assert!(hooks.is_waiting());
    drop(sender);
    assert_took(hooks.wait_for_return().await?, 10 * SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

async fn connections_15_s_late_reach_an_envoy(binary: EnvoyBinary) -> Result<()> {
    let service = Arc::new(Service::new(15 * SECOND));
    let start = async |name: &str| -> Result<Envoy> {
        let envoy = web_envoy(&binary).await?;
        // Without probes: all connections are the clients'.
        service.add_ready(Endpoint::new(name, envoy.address("web")));
        Ok(envoy)
    };
    let (terminating, _remaining) = (start("terminating").await?, start("remaining").await?);
    let drainer = drainer(terminating.admin_address())?.start().await?;
    let load = load().connection_per_request(2.0).start(&service);
    sleep(2 * SECOND).await;

    let connections_total = || terminating.admin().stat("http.web.downstream_cx_total");
    service.mark_terminating("terminating");
    let hooks = drainer.call_pod_hooks()?;
    sleep_until(hooks.called_at() + 10 * SECOND).await;
    let total_at_minimum = connections_total().await?;
    let took = hooks.wait_for_return().await?;
    let total = connections_total().await?;
    let late = total
        .zip(total_at_minimum)
        .map(|(all, before)| all - before);
    terminating.terminate().await?;
    sleep(3 * SECOND).await;
    let report = load.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    assert!(report.reached() > 0.9, "{report}");
    assert!(late >= Some(3), "{late:?} connections after the minimum");
    // The last connection arrives in the last second of the lag; then comes the quiet period.
    assert_took_between(took, 15 * SECOND, 18 * SECOND);
    let last = drainer.termination_message()?["secondsToLastNewConnection"].as_f64();
    assert!(
        last.is_some_and(|last| last > 11.0 && last + 2.9 < took.as_secs_f64()),
        "{last:?}"
    );
    Ok(())
}

/// By a grace period that is shorter than the drainer knows: SIGTERM comes in mid-drain, and SIGKILL.
async fn drain_that_is_killed_leaves_an_interim_message(binary: EnvoyBinary) -> Result<()> {
    let envoy = web_envoy(&binary).await?;
    let drainer = drainer(envoy.admin_address())?.start().await?;
    let _requests = [(); 2].map(|()| slow_request(envoy.client("web"), 60 * SECOND));
    wait_for_active_requests(&envoy, 2).await?;
    let _hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_count(2).await?;
    drainer.signal(Signal::TERM);
    sleep(2 * SECOND).await;
    drainer.signal(Signal::KILL);
    drainer.process().wait().await;
    let want =
        json!({"outcome": "deadline", "final": false, "peak": 2, "remaining": {"requests": 2}});
    drainer.assert_message(&want)?;
    let line = drainer.find_log("Drain continues").context("no counts")?;
    assert_eq!(
        (&line["remaining_requests"], &line["outcome"]),
        (&json!(2), &json!(null))
    );
    Ok(())
}

async fn second_end_of_a_pod_leaves_the_message_of_the_first(binary: EnvoyBinary) -> Result<()> {
    let envoy = proxy(&binary, [tcp("stream")?]).await?;
    let drainer = start_quick_drainer(&envoy, |t| t.drain_timeout = 2 * SECOND).await?;
    let stream = RawConnection::open_stream(envoy.address("stream")).await?;
    drainer.drain_pod().await?;
    let first = drainer.termination_message()?;
    assert_eq!(
        (&first["remaining"]["tcp"], &first["final"]),
        (&json!(1), &json!(null))
    );
    drop(stream);
    let _envoy = envoy.restart().await?;
    drainer.wait_for_phase(DrainPhase::Standby).await?;
    drainer.drain_pod().await?;
    assert_eq!(drainer.termination_message()?, first);
    Ok(())
}

async fn ignored_and_outbound_listeners_do_not_hold_drain(binary: EnvoyBinary) -> Result<()> {
    let by_prefix = tcp("by-prefix")?.stat_prefix("metrics");
    let (by_name, by_port) = (tcp("by-name")?, tcp("by-port")?);
    let (local, out) = (tcp("local")?.loopback(), tcp("out")?.direction("OUTBOUND"));
    let dir = TempDir::new()?;
    let path = dir.path().join("pipe");
    let pipe = tcp("pipe")?.pipe(&path);
    let listeners = [
        by_name,
        by_port,
        by_prefix,
        local,
        out,
        pipe,
        tcp("counts")?,
    ];
    let envoy = proxy(&binary, listeners).await?;
    let ignored = vec![
        ListenerSelector::Name("by-name".to_owned()),
        ListenerSelector::Port(port(envoy.address("by-port"))),
        ListenerSelector::Name("metrics".to_owned()),
    ];
    let drainer = quick_drainer(envoy.admin_address())?
        .with_config(|config| config.settings.ignore_listeners = ignored)
        .start()
        .await?;
    let others = ["by-name", "by-port", "by-prefix", "local", "out"];
    let mut streams = envoy.open_streams(&others).await?;
    let _piped = UnixStream::connect(&path).await?;
    wait_for_requests(&envoy, "cluster.upstream_tcp.upstream_cx_active", 6).await?;
    let counts = RawConnection::open_stream(envoy.address("counts")).await?;
    let hooks = drainer.call_pod_hooks()?;
    sleep(2 * SECOND).await;
    assert!(hooks.is_waiting());
    drop(counts);
    assert_took(hooks.wait_for_return().await?, 2 * SECOND);
    for stream in &mut streams {
        stream.ping().await?;
    }
    drainer.assert_message(&json!({"outcome": "drained", "peak": 1}))?;
    Ok(())
}

async fn modify_only_listener_is_drained_immediately(binary: EnvoyBinary) -> Result<()> {
    let envoy = envoy()?.binary(&binary);
    let envoy = envoy.listener(http("modify")?.modify_only());
    let envoy = envoy.flag("--drain-strategy immediate").start().await?;
    let drainer = quick_drainer(envoy.admin_address())?.start().await?;
    drainer.wait_for_envoy().await?;
    assert!(drainer.find_log("MODIFY_ONLY").is_none());
    let mut client = RawConnection::open_idle(envoy.address("modify")).await?;
    let hooks = drainer.call_pod_hooks()?;
    wait_until("Envoy drains its listeners", TIMEOUT, || async {
        let line = drainer.find_log("Envoy accepted the call");
        Ok(line.is_some_and(|line| line["call"] == "/drain_listeners"))
    })
    .await?;
    let head = client.get(DIRECT_PATH).await?;
    assert!(head.contains("connection: close"), "{head}");
    // It still accepts connections: endpoints may not be removed yet.
    drop(RawConnection::open_idle(envoy.address("modify")).await?);
    let closed_at = hooks.called_at().elapsed();
    drop(client);
    let took = hooks.wait_for_return().await?;
    assert_took(took, closed_at);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

async fn listeners_of_any_name_are_counted(binary: EnvoyBinary) -> Result<()> {
    let long = "n".repeat(600);
    let prefixes = ["admin", "worker_0", "edge.worker_1", "my.admin.web", &long];
    let mut envoy = envoy_with_upstream().await?.binary(&binary);
    for prefix in prefixes {
        envoy = envoy.listener(tcp(prefix)?.stat_prefix(prefix));
    }
    let envoy = envoy.start().await?;
    let drainer = quick_drainer(envoy.admin_address())?.start().await?;
    let mut streams = envoy.open_streams(&prefixes).await?;
    let hooks = drainer.call_pod_hooks()?;
    while let Some(stream) = streams.pop() {
        let open = &prefixes[..=streams.len()];
        drainer.wait_for_count(open.len() as u64).await?;
        let counted = drainer.status().await?.remaining.context("no counts")?;
        let by_listener = open.iter().map(|prefix| ((*prefix).to_owned(), 1));
        assert_eq!(counted.by_listener, by_listener.collect());
        assert!(hooks.is_waiting());
        drop(stream);
    }
    hooks.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    let is_warning = |line: &serde_json::Value| line["level"] == "WARN";
    assert!(!drainer.log().iter().any(is_warning));
    Ok(())
}

async fn requests_under_admin_stat_prefix_are_not_idle(binary: EnvoyBinary) -> Result<()> {
    let web = http("web")?.stat_prefix("admin").http_stat_prefix("admin");
    let other = http("other")?.http_stat_prefix("worker_0");
    let envoy = proxy(&binary, [web, other]).await?;
    let drainer = start_quick_drainer(&envoy, |t| t.idle_exit = Some(SECOND / 2)).await?;
    let requests =
        ["web", "other"].map(|listener| slow_request(envoy.client(listener), 3 * SECOND));
    wait_for_requests(&envoy, "cluster.upstream.upstream_rq_active", 2).await?;
    drainer.drain_pod().await?;
    envoy.terminate().await?;
    for request in requests {
        request.await?.1?;
    }
    Ok(())
}

async fn hidden_statistics_are_never_zero(binary: EnvoyBinary) -> Result<()> {
    let envoy = envoy()?.binary(&binary).listener(http("web")?);
    let envoy = envoy.include_stats(&[]).start().await?;
    for ignore_kernel in [false, true] {
        let drainer = quick_drainer(envoy.admin_address())?
            .with_config(|config| config.settings.ignore_kernel = ignore_kernel)
            .timing(|timing| timing.drain_timeout = 6 * SECOND)
            .start()
            .await?;
        let idle = RawConnection::open_idle(envoy.address("web")).await?;
        if ignore_kernel {
            let warning = "to their deadline at worst";
            drainer.wait_for_warning(warning).await?;
            assert_took(drainer.drain_pod().await?, 6 * SECOND);
            let message = drainer.termination_message()?;
            assert_eq!(message["outcome"], "deadline");
            assert_eq!(message.get("remaining"), None);
            continue;
        }
        drainer.wait_for_warning("(listener.*").await?;
        let hooks = drainer.call_pod_hooks()?;
        drainer.wait_for_count(1).await?;
        drop(idle);
        let closed_at = hooks.called_at().elapsed();
        assert_took(hooks.wait_for_return().await?, closed_at);
        drainer.assert_message(&json!({"outcome": "drained", "peak": 1, "witness": "kernel"}))?;
    }
    Ok(())
}

async fn connections_that_envoy_does_not_accept_hold_drain(binary: EnvoyBinary) -> Result<()> {
    let envoy = envoy()?.binary(&binary).stop_accepting_connections();
    let envoy = envoy.listener(http("web")?).start().await?;
    let active = "overload.envoy.overload_actions.stop_accepting_connections.active";
    wait_until("Envoy accepts no connection", TIMEOUT, async || {
        Ok(envoy.admin().stat(active).await? == Some(1))
    })
    .await?;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(RawConnection::open(envoy.address("web")).await?);
    }
    let deadline = json!({"outcome": "deadline", "disagreement": {"unaccepted": 5}});
    let drained = json!({"outcome": "drained", "witness": "envoy"});
    for (ignore_kernel, duration, message) in [
        (false, 5 * SECOND, deadline),
        (true, Duration::ZERO, drained),
    ] {
        let drainer = quick_drainer(envoy.admin_address())?
            .with_config(|config| config.settings.ignore_kernel = ignore_kernel)
            .timing(|timing| timing.drain_timeout = 5 * SECOND)
            .start()
            .await?;
        drainer.wait_for_envoy().await?;
        assert_took(drainer.drain_pod().await?, duration);
        drainer.assert_message(&message)?;
    }
    Ok(())
}

async fn envoy_without_xds_response_is_drained(binary: EnvoyBinary) -> Result<()> {
    let envoy = envoy()?.binary(&binary).unresponsive_xds().start().await?;
    let drainer = drainer(envoy.admin_address())?.start().await?;
    drainer.wait_for_envoy().await?;
    assert_took(drainer.drain_pod().await?, 10 * SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

async fn admin_is_reached_over_ipv6_and_unix_sockets(binary: EnvoyBinary) -> Result<()> {
    let placements = [
        Bootstrap::admin_ipv6,
        Bootstrap::admin_unix,
        Bootstrap::admin_abstract,
    ];
    for placement in placements {
        let envoy = placement(envoy_with_upstream().await?.binary(&binary));
        let envoy = envoy.listener(http("web")?).start().await?;
        let drainer = quick_drainer(envoy.admin_address())?.start().await?;
        let request = slow_request(envoy.client("web"), SECOND);
        wait_for_active_requests(&envoy, 1).await?;
        drainer.drain_pod().await?;
        let message = drainer.termination_message()?;
        envoy.terminate().await?;
        request.await?.1?;
        assert_eq!(message["outcome"], "drained", "{}", envoy.admin_address());
    }
    Ok(())
}

async fn partly_hidden_statistics_cut_no_request(binary: EnvoyBinary) -> Result<()> {
    let upstream = Upstream::start().await?;
    let hiding = |prefix: &str| envoy().map(|envoy| envoy.exclude_stats(&[prefix]));
    let others = ["cluster.", "server.", "listener.admin.", "http.admin."];
    let envoys = [
        (hiding("listener.0.0.0.0_")?, "(listener.*"),
        (hiding("http.web.downstream_rq_")?, "(http.*"),
        (envoy()?.include_stats(&others), "(listener.*"),
    ];
    for (envoy, warning) in envoys {
        let envoy = envoy
            .binary(&binary)
            .upstream(&upstream)
            .listener(http("web")?)
            .start()
            .await?;
        let drainer =
            start_quick_drainer(&envoy, |timing| timing.idle_exit = Some(SECOND / 2)).await?;
        drainer.wait_for_warning(warning).await?;
        let request = slow_request(envoy.client("web"), 4 * SECOND);
        wait_for_requests(&envoy, "cluster.upstream.upstream_rq_active", 1).await?;
        drainer.drain_pod().await?;
        let message = drainer.termination_message()?;
        assert_eq!(message["outcome"], "drained", "{warning}");
        envoy.terminate().await?;
        request.await?.1?;
    }
    Ok(())
}

async fn envoy_without_inbound_listener_is_drained(binary: EnvoyBinary) -> Result<()> {
    let web = http("web")?.direction("OUTBOUND");
    let envoy = proxy(&binary, [web]).await?;
    let drainer = drainer(envoy.admin_address())?.start().await?;
    drainer
        .wait_for_warning("No listener of Envoy is counted")
        .await?;
    let _idle = RawConnection::open_idle(envoy.address("web")).await?;
    let _outbound_call = slow_request(envoy.client("web"), 60 * SECOND);
    wait_for_active_requests(&envoy, 1).await?;
    assert_took(drainer.drain_pod().await?, 10 * SECOND);
    drainer.assert_message(&json!({"outcome": "drained", "peak": 0}))?;
    Ok(())
}

async fn unused_statistics_are_read_with_a_matcher_alone(binary: EnvoyBinary) -> Result<()> {
    for has_matcher in [false, true] {
        let mut envoy = envoy()?
            .binary(&binary)
            .listener(http("web")?)
            .flag("--file-flush-interval-msec 50");
        if has_matcher {
            envoy = envoy.exclude_stats(&["http.web.downstream_rq_"]);
        }
        let envoy = envoy.start().await?;
        let drainer = drainer(envoy.admin_address())?.start().await?;
        drainer.wait_for_envoy().await?;
        let is_poll = |path: &String| path.starts_with("/stats?") && path.contains("usedonly");
        let reads_unused_gauges = |path: &String| {
            path.starts_with("/stats?") && !is_poll(path) && !path.contains("type=Counters")
        };
        let is_warned = || drainer.find_log("(http.*").is_some();
        wait_until("Envoy has logged a poll", TIMEOUT, async || {
            let calls = envoy.admin_calls()?;
            Ok(if has_matcher {
                is_warned() && calls.iter().any(reads_unused_gauges)
            } else {
                calls.iter().any(is_poll)
            })
        })
        .await?;
        let calls = envoy.admin_calls()?;
        let reads_unused_gauges = calls.iter().any(reads_unused_gauges);
        assert_eq!(reads_unused_gauges, has_matcher, "{calls:#?}");
        assert_eq!(is_warned(), has_matcher);
    }
    Ok(())
}
