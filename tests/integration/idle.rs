//! Which connections count as idle, on the oldest and the newest Envoy: those without requests, however short
//! requests are, and regardless of health checks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use drainer::{MAX_QUIET_WAIT, ReadinessProbe};
use serde_json::{Value, json};
use tests::drainer::{drainer, start_drainer_with, start_quick_drainer};
use tests::envoy::{Envoy, envoy, envoy_with_upstream, proxy};
use tests::envoy_versions::EnvoyBinary;
use tests::listener::{DIRECT_PATH, HEALTH_PATH, http, http3};
use tests::load::{EchoLoad, load};
use tests::raw_connection::RawConnection;
use tests::service::{Endpoint, Service};
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_between};
use tests::until::wait_until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::drain::{listener_stat, request_periodically, slow_request, wait_for_active_requests};

/// Longer than the minimum and than `idle-exit`, and well below the tests' own timeout.
const DEADLINE: Duration = Duration::from_secs(16);

/// Sends a request each `period` on one connection, until that is closed or the result is dropped.
async fn request_on_one_connection(period: Duration, address: SocketAddr) -> Result<JoinSet<()>> {
    let mut connection = RawConnection::open_idle(address).await?;
    let mut requests = JoinSet::new();
    requests.spawn(async move {
        while connection.get(DIRECT_PATH).await.is_ok() {
            sleep(period).await;
        }
    });
    Ok(requests)
}

tests::for_each_envoy! {
    short_requests_hold_a_gradual_drain, immediate_strategy_drains_clients_without_cuts,
    http3_clients_lose_no_request, health_checks_do_not_hold_a_drain, tcp_checks_hold_no_drain,
    outbound_calls_are_not_taken_for_client_requests, unanswered_outbound_call_holds_no_drain,
    slow_download_is_not_cut, response_in_the_kernels_send_queue_is_not_cut, connections_are_not_idle_where_requests_are_hidden,
}

/// As those of a load balancer, which connects without sending a byte.
async fn tcp_checks_hold_no_drain(binary: EnvoyBinary) -> Result<()> {
    let envoy = proxy(&binary, [http("web")?]).await?;
    let quiet = 3 * SECOND;
    let drainer = start_quick_drainer(&envoy, |timing| timing.quiet_period = quiet).await?;
    drainer.wait_for_envoy().await?;
    let address = envoy.address("web");
    let mut checks = JoinSet::new();
    checks.spawn(async move {
        while TcpStream::connect(address).await.is_ok() {
            sleep(SECOND / 2).await;
        }
    });
    let listener = listener_stat(&envoy, "web");
    let accepted = format!("listener.{listener}.downstream_cx_total");
    wait_until("checks are counted", TIMEOUT, || async {
        Ok(envoy.admin().stat(&accepted).await? > Some(1))
    })
    .await?;
    let took = drainer.drain_pod().await?;
    // However slow the machine is, the drain saw no client, and did not wait for quiet up to the cap.
    assert!(took >= quiet && took < MAX_QUIET_WAIT, "{took:?}");
    let message = drainer.termination_message()?;
    let [all, last] = ["seconds", "secondsToLastNewConnection"].map(|it| message[it].as_f64());
    assert!(
        all.zip(last).is_some_and(|(all, last)| last + 2.9 < all),
        "{message}"
    );
    drainer.assert_message(&json!({"outcome": "drained"}))
}

async fn short_requests_hold_a_gradual_drain(binary: EnvoyBinary) -> Result<()> {
    // Envoy's default drain strategy is gradual, over ten minutes.
    let envoy = envoy_with_upstream()
        .await?
        .binary(&binary)
        .listener(http("http1")?.modify_only())
        .listener(http("http2")?.modify_only())
        .listener(http3("http3")?.modify_only())
        .start()
        .await?;
    // Long enough for a period of `idle-exit` in which no poll finds a request in flight.
    let deadline = 25 * SECOND;
    let drainer = start_drainer_with(&envoy, |timing| timing.drain_timeout = deadline).await?;
    // Ten connections with a request per second each; twice four connections with one each two seconds.
    let http1 = load().keep_alive(10.0).start_at(envoy.address("http1"));
    let http2 = load().http2(2.0).start_at(envoy.address("http2"));
    let http3 = load().http3(2.0).start_at(envoy.address("http3"));
    sleep(2 * SECOND).await;

    assert_took(drainer.drain_pod().await?, deadline);
    for load in [http1, http2, http3] {
        let report = load.stop().await;
        assert_eq!(report.failed(), 0, "{report}");
        assert!(report.reached() > 0.9, "{report}");
    }
    let message = drainer.termination_message()?;
    assert_eq!(message["outcome"], "deadline", "{message}");
    let line = drainer.find_log("Drain ended");
    let line = line.context("no log line at the end of the drain")?;
    for listener in ["http1", "http2", "http3"] {
        let name = listener_stat(&envoy, listener);
        let connections = message["remaining"]["byListener"][&name].as_u64();
        assert!(connections >= Some(2), "{message}");
        assert!(
            line["remaining_by_listener"].to_string().contains(&name),
            "{line}"
        );
    }
    Ok(())
}

/// Terminates the first of a Service's two Envoys under a load, which must lose no request. Returns the
/// termination message.
async fn terminate_under_load(
    [terminating, remaining]: [Envoy; 2],
    load: EchoLoad,
) -> Result<Value> {
    let service = Arc::new(Service::new(SECOND));
    for (name, envoy) in [("terminating", &terminating), ("remaining", &remaining)] {
        service.add_ready(Endpoint::new(name, envoy.address("web")));
    }
    let drainer = drainer(terminating.admin_address())?.start().await?;
    let load = load.start(&service);
    sleep(2 * SECOND).await;

    service.mark_terminating("terminating");
    let took = drainer.drain_pod().await?;
    terminating.terminate().await?;
    sleep(2 * SECOND).await;
    let report = load.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    assert!(report.reached() > 0.9, "{report}");
    let message = drainer.termination_message()?;
    assert_eq!(message["outcome"], "drained", "{message}");
    assert_took_between(took, 10 * SECOND, 14 * SECOND);
    Ok(message)
}

async fn immediate_strategy_drains_clients_without_cuts(binary: EnvoyBinary) -> Result<()> {
    let start = async || {
        let envoy = envoy_with_upstream().await?.binary(&binary);
        let envoy = envoy.flag("--drain-strategy immediate");
        envoy.listener(http("web")?.modify_only()).start().await
    };
    let envoys = [start().await?, start().await?];
    terminate_under_load(envoys, load().keep_alive(20.0).http2(8.0)).await?;
    Ok(())
}

async fn http3_clients_lose_no_request(binary: EnvoyBinary) -> Result<()> {
    let start = async || proxy(&binary, [http3("web")?]).await;
    let envoys = [start().await?, start().await?];
    let message = terminate_under_load(envoys, load().http3(20.0)).await?;
    assert!(message["peak"].as_u64() >= Some(2), "{message}");
    Ok(())
}

async fn health_checks_do_not_hold_a_drain(binary: EnvoyBinary) -> Result<()> {
    let envoy = envoy()?.binary(&binary).listener(http("web")?);
    let envoy = envoy.start().await?;
    let probe = ReadinessProbe {
        port: envoy.address("web").port().try_into()?,
        period: SECOND,
    };
    let drainer = drainer(envoy.admin_address())?
        .with_config(|config| config.readiness_probes = vec![probe])
        .start()
        .await?;
    let _idle = RawConnection::open_idle(envoy.address("web")).await?;
    let _never_used = RawConnection::open(envoy.address("web")).await?;
    let _kubelet = request_periodically(SECOND, envoy.client("web"), HEALTH_PATH);
    sleep(SECOND / 3).await;
    let _balancer = request_periodically(2 * SECOND, envoy.client("web"), HEALTH_PATH);
    sleep(3 * SECOND).await;

    let took = drainer.drain_pod().await?;
    drainer.assert_message(&json!({"outcome": "idle", "remaining": {"connections": 2}}))?;
    // However slow the machine is, the drain did not wait for quiet up to the cap.
    assert!(took < 10 * SECOND + MAX_QUIET_WAIT, "{took:?}");
    assert_took_between(took, 10 * SECOND, 14 * SECOND);
    Ok(())
}

async fn outbound_calls_are_not_taken_for_client_requests(binary: EnvoyBinary) -> Result<()> {
    /// Starts an Envoy through which its application sends requests, on a listener that shares its
    /// statistics prefix with the clients' listener.
    async fn start_with_outbound_calls(binary: &EnvoyBinary) -> Result<(Envoy, [JoinSet<()>; 2])> {
        let envoy = envoy()?
            .binary(binary)
            .listener(http("web")?.http_stat_prefix("edge").modify_only())
            .listener(http("out")?.loopback().http_stat_prefix("edge"))
            .start()
            .await?;
        let connection = request_on_one_connection(SECOND / 5, envoy.address("out")).await?;
        let new_connections = request_periodically(SECOND / 2, envoy.client("out"), DIRECT_PATH);
        Ok((envoy, [connection, new_connections]))
    }
    let (unused, _calls) = start_with_outbound_calls(&binary).await?;
    let (used, _other_calls) = start_with_outbound_calls(&binary).await?;
    let drainers = (
        drainer(unused.admin_address())?.start().await?,
        start_drainer_with(&used, |timing| timing.drain_timeout = DEADLINE).await?,
    );
    let _idle = RawConnection::open_idle(unused.address("web")).await?;
    let client = || request_on_one_connection(SECOND, used.address("web"));
    let _clients = (client().await?, client().await?);
    sleep(2 * SECOND).await;

    let hooks = (drainers.0.call_pod_hooks()?, drainers.1.call_pod_hooks()?);
    // A poll may find an outbound request in flight, and Envoy's statistics do not name its listener.
    assert_took_between(hooks.0.wait_for_return().await?, 10 * SECOND, 40 * SECOND);
    assert_eq!(drainers.0.termination_message()?["outcome"], "idle");
    hooks.1.wait_for_return().await?;
    assert_ne!(drainers.1.termination_message()?["outcome"], "idle");
    Ok(())
}

async fn unanswered_outbound_call_holds_no_drain(binary: EnvoyBinary) -> Result<()> {
    let envoy = proxy(&binary, [http("edge")?, http("web")?.loopback()]).await?;
    let drainer = start_drainer_with(&envoy, |timing| timing.drain_timeout = 30 * SECOND).await?;
    drainer.wait_for_envoy().await?;
    let _idle = RawConnection::open_idle(envoy.address("edge")).await?;
    // No request has ever been completed under its prefix.
    let _call = slow_request(envoy.client("web"), 60 * SECOND);
    wait_for_active_requests(&envoy, 1).await?;
    let took = drainer.drain_pod().await?;
    assert_took_between(took, 10 * SECOND, 12 * SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "idle");
    Ok(())
}

async fn slow_download_is_not_cut(binary: EnvoyBinary) -> Result<()> {
    const SIZE: usize = 1_000_000;
    // Of the response, Envoy's socket holds so much; the rest is in Envoy's own buffer for some seconds.
    const PIECE: usize = 16 << 10;

    let envoy = proxy(&binary, [http("web")?.send_buffer(PIECE)]).await?;
    let drainer = start_quick_drainer(&envoy, |timing| timing.idle_exit = Some(SECOND)).await?;
    let (mut download, received) = download_slowly(envoy.address("web"), SIZE, PIECE).await?;
    wait_until(
        "Envoy has the whole response in its buffer",
        TIMEOUT,
        async || {
            let active = envoy.admin().stat("http.web.downstream_rq_active").await?;
            let buffered = "http.web.downstream_cx_tx_bytes_buffered";
            Ok(active == Some(0) && envoy.admin().stat(buffered).await? > Some(0))
        },
    )
    .await?;

    let took = drainer.drain_pod().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "idle");
    envoy.terminate().await?;
    download.join_next().await.context("no download")???;
    let received = *received.borrow();
    assert!(received >= SIZE, "{received} of {SIZE} bytes, {took:?}");
    Ok(())
}

/// Posts so many bytes, and reads the response, which has the same, in pieces: 20 a second. Returns how much was read.
async fn download_slowly(
    address: SocketAddr,
    size: usize,
    piece: usize,
) -> Result<(JoinSet<Result<TcpStream>>, watch::Receiver<usize>)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(u32::try_from(piece)?)?;
    let mut client = socket.connect(address).await?;
    let head = format!("POST / HTTP/1.1\r\nhost: shop\r\ncontent-length: {size}\r\n\r\n");
    client.write_all(head.as_bytes()).await?;
    client.write_all(&vec![b'x'; size]).await?;
    let (sender, received) = watch::channel(0);
    let mut download = JoinSet::new();
    download.spawn(async move {
        let (mut read, mut piece) = (0, vec![0; piece]);
        while read < size {
            match client.read(&mut piece).await? {
                0 => break,
                count => read += count,
            }
            sender.send_replace(read);
            sleep(SECOND / 20).await;
        }
        Ok(client)
    });
    Ok((download, received))
}

async fn response_in_the_kernels_send_queue_is_not_cut(binary: EnvoyBinary) -> Result<()> {
    const SIZE: usize = 1_000_000;
    const PIECE: usize = 8 << 10;

    let envoy = proxy(&binary, [http("web")?]).await?;
    let drainer = start_quick_drainer(&envoy, |timing| timing.idle_exit = Some(SECOND)).await?;
    drainer.wait_for_envoy().await?;
    let (download, received) = download_slowly(envoy.address("web"), SIZE, PIECE).await?;
    wait_until("Envoy has sent the response", TIMEOUT, async || {
        let completed = envoy
            .admin()
            .stat("http.web.downstream_rq_completed")
            .await?;
        let buffered = "http.web.downstream_cx_tx_bytes_buffered";
        Ok(completed == Some(1) && envoy.admin().stat(buffered).await? == Some(0))
    })
    .await?;
    assert!(*received.borrow() < SIZE / 2, "the client is too fast");

    drainer.drain_pod().await?;
    // The client's kernel may hold some more.
    let received = *received.borrow();
    assert!(received > SIZE - 10 * PIECE, "{received} of {SIZE} bytes");
    drainer.assert_message(&json!({"outcome": "idle", "disagreement": null}))?;
    drop(download);
    Ok(())
}

async fn connections_are_not_idle_where_requests_are_hidden(binary: EnvoyBinary) -> Result<()> {
    let hidden = [
        ("http.", "(http.*"),
        ("listener.admin.http.", "downstream_rq_completed"),
    ];
    for (prefix, warning) in hidden {
        let envoy = envoy()?.binary(&binary).listener(http("web")?);
        let envoy = envoy.exclude_stats(&[prefix]).start().await?;
        let drainer =
            start_quick_drainer(&envoy, |timing| timing.idle_exit = Some(SECOND / 2)).await?;
        assert_eq!(
            drainer.wait_for_log(warning, TIMEOUT).await?["level"],
            "WARN"
        );
        let idle = RawConnection::open_idle(envoy.address("web")).await?;
        let hooks = drainer.call_pod_hooks()?;
        sleep(3 * SECOND).await;
        assert!(hooks.is_waiting());
        drop(idle);
        assert_took(hooks.wait_for_return().await?, 3 * SECOND);
        assert_eq!(drainer.termination_message()?["outcome"], "drained");
    }
    Ok(())
}
