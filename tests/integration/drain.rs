//! A pod's end on real Envoys, the oldest and the newest: what survives, what is waited for, for how
//! long, and what is said of it.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use drainer::{DrainPhase, ListenerSelector, ReadinessProbe};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tests::bootstrap::{Bootstrap, HEALTH_PATH};
use tests::drainer::drainer;
use tests::envoy::{Envoy, envoy};
use tests::envoy_versions::EnvoyBinary;
use tests::http::Client;
use tests::listener::{DIRECT_PATH, http, tcp};
use tests::load::load;
use tests::parallel::for_each_envoy;
use tests::process::Signal;
use tests::raw_connection::RawConnection;
use tests::service::{Endpoint, Probe, Service};
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_at_most, assert_took_between};
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// A request that takes so long, and when it was answered or cut.
fn slow_request(client: Client, takes: Duration) -> JoinHandle<(Instant, Result<()>)> {
    tokio::spawn(async move {
        let path = format!("/slow?ms={}", takes.as_millis());
        let client = client.with_timeout(takes + 10 * SECOND);
        let answer = client.post(&path).await.and_then(|answer| {
            anyhow::ensure!(answer.status == 200, "{answer:?}");
            Ok(())
        });
        (Instant::now(), answer)
    })
}

/// Waits until so many requests are under way at the HTTP prefix `web`.
async fn wait_for_active_requests(envoy: &Envoy, requests: u64) -> Result<()> {
    let what = format!("{requests} requests under way");
    wait_until(&what, TIMEOUT, || async {
        let active = envoy.admin().stat("http.web.downstream_rq_active").await?;
        Ok(active == Some(requests))
    })
    .await
}

fn port(address: SocketAddr) -> NonZeroU16 {
    address.port().try_into().expect("listeners have a port")
}

/// What the statistics call a listener on all addresses.
fn listener_stat(address: SocketAddr) -> String {
    format!("0.0.0.0_{}", address.port())
}

#[tokio::test]
async fn answers_of_three_seconds_that_are_under_way_survive() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?.binary(&binary).upstream(&upstream);
        let envoy = envoy.listener(http("web")?).start().await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .start()
            .await?;
        let requests: Vec<_> = (0..5)
            .map(|_| slow_request(envoy.client("web"), 3 * SECOND))
            .collect();
        wait_for_active_requests(&envoy, 5).await?;

        let end = drainer.call_pod_hooks()?;
        end.wait_for_return().await?;
        let returned = Instant::now();
        envoy.terminate().await?;
        for request in requests {
            let (answered, answer) = request.await?;
            answer?;
            assert_took_at_most(returned - answered, Duration::ZERO);
        }
        let words = drainer.termination_message()?;
        assert_eq!(
            (&words["outcome"], &words["peak"]),
            (&json!("drained"), &json!(5))
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_request_that_outlasts_the_timeout_is_cut_then_and_not_before() -> Result<()> {
    for_each_envoy(|binary| async move {
        let timeout = 5 * SECOND;
        let upstream = Upstream::start().await?;
        let envoy = envoy()?.binary(&binary).upstream(&upstream);
        let envoy = envoy.listener(http("web")?).start().await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .timing(|t| t.drain_timeout = timeout)
            .start()
            .await?;
        let in_time = slow_request(envoy.client("web"), timeout - 2 * SECOND);
        let too_long = slow_request(envoy.client("web"), timeout + 3 * SECOND);
        wait_for_active_requests(&envoy, 2).await?;

        let end = drainer.call_pod_hooks()?;
        assert_took(end.wait_for_return().await?, timeout);
        assert!(!too_long.is_finished(), "it was cut before SIGTERM");
        envoy.terminate().await?;
        in_time.await?.1?;
        let (cut, answer) = too_long.await?;
        assert!(answer.is_err(), "who would have answered it?");
        assert_took(cut - end.called_at(), timeout);
        let words = drainer.termination_message()?;
        assert_eq!(words["outcome"], "deadline");
        assert_eq!(words["left"]["requests"], 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_idle_connection_holds_the_pod_for_the_minimum_and_no_longer_at_defaults() -> Result<()>
{
    for_each_envoy(|binary| async move {
        let envoy = envoy()?
            .binary(&binary)
            .listener(http("web")?)
            .start()
            .await?;
        let drainer = drainer(envoy.admin_address())?.start().await?;
        let _idle = RawConnection::open_idle(envoy.address("web")).await?;
        let _never_used = RawConnection::open(envoy.address("web")).await?;
        let took = drainer.call_pod_hooks()?.wait_for_return().await?;
        assert_took(took, 10 * SECOND);
        let words = drainer.termination_message()?;
        assert_eq!(
            (&words["outcome"], &words["left"]["connections"]),
            (&json!("idle"), &json!(2))
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn idle_connections_are_given_idle_exit_after_the_last_request_or_for_ever() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?.binary(&binary).upstream(&upstream);
        let envoy = envoy.listener(http("web")?).start().await?;
        let hasty = |idle_exit| -> Result<_> {
            Ok(drainer(envoy.admin_address())?
                .exit_without_minimum()
                .timing(|t| {
                    t.idle_exit = idle_exit;
                    t.drain_timeout = 6 * SECOND;
                }))
        };
        let soon = hasty(Some(2 * SECOND))?.start().await?;
        let never = hasty(None)?.start().await?;
        let _idle = RawConnection::open_idle(envoy.address("web")).await?;
        let asked = Instant::now();
        let request = slow_request(envoy.client("web"), SECOND);
        wait_for_active_requests(&envoy, 1).await?;

        let (soon_end, never_end) = (soon.call_pod_hooks()?, never.call_pod_hooks()?);
        let (answered, answer) = request.await?;
        answer?;
        let idle_exit = 2 * SECOND;
        let left = soon_end.called_at() + soon_end.wait_for_return().await?;
        assert!(left >= asked + SECOND + idle_exit, "{:?}", left - asked);
        assert_took_at_most(left - answered, idle_exit);
        assert_took(never_end.wait_for_return().await?, 6 * SECOND);
        assert_eq!(soon.termination_message()?["outcome"], "idle");
        assert_eq!(never.termination_message()?["outcome"], "deadline");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_open_tcp_stream_holds_the_pod_to_its_deadline_and_is_named_in_the_last_words()
-> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?
            .binary(&binary)
            .upstream(&upstream)
            .listener(http("web")?)
            .listener(tcp("stream")?)
            .start()
            .await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .timing(|t| t.drain_timeout = 4 * SECOND)
            .start()
            .await?;
        let mut stream = RawConnection::open_stream(envoy.address("stream")).await?;
        assert_took(
            drainer.call_pod_hooks()?.wait_for_return().await?,
            4 * SECOND,
        );
        stream.ping().await.context("until Envoy itself ends")?;

        let name = listener_stat(envoy.address("stream"));
        let words = drainer.termination_message()?;
        let left = json!({
            "connections": 1, "requests": 0, "upgrades": 0, "tcp": 1, "byListener": { &name: 1 },
        });
        assert_eq!(
            (&words["outcome"], &words["left"]),
            (&json!("deadline"), &left)
        );
        let line = drainer.find_log("Drain ended").context("no last words")?;
        assert_eq!(
            (&line["outcome"], &line["tcp"]),
            (&json!("deadline"), &json!(1))
        );
        assert!(line["by_listener"].to_string().contains(&name), "{line}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_upgraded_connection_is_no_idle_one() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?.binary(&binary).upstream(&upstream);
        let envoy = envoy.listener(http("web")?).start().await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .timing(|t| {
                t.idle_exit = Some(SECOND);
                t.drain_timeout = 3 * SECOND;
            })
            .start()
            .await?;
        let mut upgraded = RawConnection::open_upgraded(envoy.address("web")).await?;
        assert_took(
            drainer.call_pod_hooks()?.wait_for_return().await?,
            3 * SECOND,
        );
        upgraded.ping().await?;
        let words = drainer.termination_message()?;
        assert_eq!(
            (&words["outcome"], &words["left"]["upgrades"]),
            (&json!("deadline"), &json!(1))
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_http2_client_is_told_to_go_and_loses_no_stream() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?.binary(&binary).upstream(&upstream);
        let envoy = envoy.listener(http("web")?).start().await?;
        let drainer = drainer(envoy.admin_address())?.start().await?;
        let stream = TcpStream::connect(envoy.address("web")).await?;
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await?;
        let connection = tokio::spawn(connection);
        let request = Request::get("http://shop/slow?ms=3000").body(Empty::<bytes::Bytes>::new())?;
        let answer = sender.send_request(request);
        let answer = tokio::spawn(async move { anyhow::Ok(answer.await?.collect().await?) });
        wait_for_active_requests(&envoy, 1).await?;

        let end = drainer.call_pod_hooks()?;
        answer.await??;
        // By GOAWAY alone: this client would keep its connection for ever.
        connection.await??;
        assert!(end.is_waiting());
        drop(sender);
        assert_took(end.wait_for_return().await?, 10 * SECOND);
        assert_eq!(drainer.termination_message()?["outcome"], "drained");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn sparse_connections_that_come_15_s_late_all_find_an_envoy() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let service = Arc::new(Service::new(15 * SECOND));
        let start = async |name: &str| -> Result<Envoy> {
            let envoy = envoy()?.binary(&binary).upstream(&upstream);
            let envoy = envoy.listener(http("web")?).start().await?;
            let endpoint = Endpoint {
                name: name.to_owned(),
                http: envoy.address("web"),
                tcp: None,
            };
            // Once: what comes later are clients.
            let probe = Probe {
                path: HEALTH_PATH.to_owned(),
                period: 60 * SECOND,
                timeout: SECOND,
                failure_threshold: 3,
            };
            service.add(endpoint, probe);
            Ok(envoy)
        };
        let (ends, _stays) = (start("ends").await?, start("stays").await?);
        service.wait_until_ready(2, TIMEOUT).await?;
        let drainer = drainer(ends.admin_address())?.start().await?;
        let load = load().connection_per_request(2.0).start(&service);
        sleep(2 * SECOND).await;

        let came = || ends.admin().stat("http.web.downstream_cx_total");
        service.mark_terminating("ends");
        let end = drainer.call_pod_hooks()?;
        sleep_until(end.called_at() + 10 * SECOND).await;
        let by_the_minimum = came().await?;
        let took = end.wait_for_return().await?;
        let late = came()
            .await?
            .zip(by_the_minimum)
            .map(|(all, before)| all - before);
        ends.terminate().await?;
        sleep(3 * SECOND).await;
        let report = load.stop().await;
        assert_eq!(report.failed(), 0, "{report}");
        assert!(report.reached() > 0.9, "{report}");
        assert!(late >= Some(3), "the lag was not felt: {late:?} came late");
        // The last of them comes in the last second of the lag, and then it is quiet.
        assert_took_between(took, 15 * SECOND, 18 * SECOND);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn readiness_probes_that_were_told_do_not_keep_quiet_away() -> Result<()> {
    /// An Envoy whose readiness is probed on its data port every second.
    async fn start_with_probes(binary: &EnvoyBinary) -> Result<(Envoy, JoinSet<()>)> {
        let envoy = envoy()?
            .binary(binary)
            .listener(http("web")?)
            .start()
            .await?;
        let client = envoy.client("web");
        let mut probing = JoinSet::new();
        probing.spawn(async move {
            let mut tick = interval(SECOND);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                // Answered as any request: Envoy's own health checks need not be told.
                let _ = client.get(DIRECT_PATH).await;
            }
        });
        Ok((envoy, probing))
    }
    for_each_envoy(|binary| async move {
        let (envoy, _probing) = start_with_probes(&binary).await?;
        let (other, _probing_too) = start_with_probes(&binary).await?;
        let probe = ReadinessProbe {
            port: port(envoy.address("web")),
            period: SECOND,
        };
        let told = drainer(envoy.admin_address())?
            .config(|config| config.readiness_probes = vec![probe])
            .start()
            .await?;
        let untold = drainer(other.admin_address())?.start().await?;
        sleep(3 * SECOND).await;
        let (told, untold) = (told.call_pod_hooks()?, untold.call_pod_hooks()?);
        let took = told.wait_for_return().await?;
        assert_took_between(took, 10 * SECOND, 12 * SECOND);
        // Or this would prove nothing.
        sleep(3 * SECOND).await;
        assert!(untold.is_waiting());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn during_the_drain_delay_envoy_is_a_healthy_endpoint() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?
            .binary(&binary)
            .upstream(&upstream)
            .listener(http("web")?)
            .listener(tcp("stream")?)
            .start()
            .await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .timing(|t| {
                t.drain_delay = 5 * SECOND;
                t.drain_timeout = 2 * SECOND;
            })
            .start()
            .await?;
        // The deadline counts from the delay's end.
        let _stream = RawConnection::open_stream(envoy.address("stream")).await?;
        let end = drainer.call_pod_hooks()?;
        drainer.wait_for_phase(DrainPhase::Delaying).await?;
        let mut client = RawConnection::open_idle(envoy.address("web")).await?;
        while end.called_at().elapsed() < 2 * SECOND {
            let head = client.get(HEALTH_PATH).await?;
            assert!(head.starts_with("http/1.1 200 "), "{head}");
            let head = client.get(DIRECT_PATH).await?;
            assert!(!head.contains("connection: close"), "{head}");
            assert_eq!(envoy.admin().state().await?, "LIVE");
            assert!(!drainer.has_marker());
            sleep(Duration::from_millis(100)).await;
        }
        drainer.wait_for_phase(DrainPhase::Draining).await?;
        wait_until("readiness has failed", TIMEOUT, || async {
            Ok(envoy.admin().state().await? == "DRAINING")
        })
        .await?;
        let began = end.called_at().elapsed();
        assert_took(began, 5 * SECOND);
        let head = client.get(DIRECT_PATH).await?;
        assert!(head.contains("connection: close"), "{head}");
        assert_took(end.wait_for_return().await?, 7 * SECOND);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn so_many_connections_may_remain() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?.binary(&binary).upstream(&upstream);
        let envoy = envoy.listener(tcp("stream")?).start().await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .config(|config| config.settings.exit_at_connections = 2)
            .start()
            .await?;
        let address = envoy.address("stream");
        let _two = (
            RawConnection::open_stream(address).await?,
            RawConnection::open_stream(address).await?,
        );
        let third = RawConnection::open_stream(address).await?;
        let end = drainer.call_pod_hooks()?;
        sleep(2 * SECOND).await;
        assert!(end.is_waiting());
        drop(third);
        assert_took(end.wait_for_return().await?, 2 * SECOND);
        let words = drainer.termination_message()?;
        assert_eq!(
            (&words["outcome"], &words["left"]["connections"]),
            (&json!("drained"), &json!(2))
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn ignored_listeners_and_the_pods_own_way_out_are_not_waited_for() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?
            .binary(&binary)
            .upstream(&upstream)
            .listener(tcp("by-name")?)
            .listener(tcp("by-port")?)
            .listener(tcp("by-prefix")?.stat_prefix("metrics"))
            .listener(tcp("out")?.loopback())
            .listener(tcp("counts")?)
            .start()
            .await?;
        let ignored = vec![
            ListenerSelector::Name("by-name".to_owned()),
            ListenerSelector::Port(port(envoy.address("by-port"))),
            ListenerSelector::Name("metrics".to_owned()),
        ];
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .config(|config| config.settings.ignore_listeners = ignored)
            .start()
            .await?;
        let mut held = Vec::new();
        for listener in ["by-name", "by-port", "by-prefix", "out"] {
            held.push(RawConnection::open_stream(envoy.address(listener)).await?);
        }
        let counts = RawConnection::open_stream(envoy.address("counts")).await?;
        let end = drainer.call_pod_hooks()?;
        sleep(2 * SECOND).await;
        assert!(end.is_waiting());
        drop(counts);
        assert_took(end.wait_for_return().await?, 2 * SECOND);
        for stream in &mut held {
            stream.ping().await?;
        }
        let words = drainer.termination_message()?;
        assert_eq!(
            (&words["outcome"], &words["peak"]),
            (&json!("drained"), &json!(1))
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_listener_that_ignores_failed_health_is_drained_too() -> Result<()> {
    for_each_envoy(|binary| async move {
        let modify_only = || -> Result<Bootstrap> {
            Ok(envoy()?
                .binary(&binary)
                .listener(http("modify")?.modify_only()))
        };
        let immediate = modify_only()?
            .flag("--drain-strategy immediate")
            .start()
            .await?;
        let gradual = modify_only()?.start().await?;
        let warned = drainer(gradual.admin_address())?.start().await?;
        let warning = warned
            .wait_for_log("MODIFY_ONLY of modify", TIMEOUT)
            .await?;
        assert_eq!(warning["level"], "WARN");

        let drainer = drainer(immediate.admin_address())?
            .exit_without_minimum()
            .start()
            .await?;
        drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
        assert!(drainer.find_log("MODIFY_ONLY").is_none());
        let mut client = RawConnection::open_idle(immediate.address("modify")).await?;
        let end = drainer.call_pod_hooks()?;
        wait_until("it was told", TIMEOUT, || async {
            let told = drainer.find_log("Called Envoy admin");
            Ok(told.is_some_and(|line| line["call"] == "/drain_listeners"))
        })
        .await?;
        let head = client.get(DIRECT_PATH).await?;
        assert!(head.contains("connection: close"), "{head}");
        // It goes on accepting: endpoints are not gone yet.
        drop(RawConnection::open_idle(immediate.address("modify")).await?);
        let closed = end.called_at().elapsed();
        drop(client);
        let took = end.wait_for_return().await?;
        assert_took(took, closed);
        assert_eq!(drainer.termination_message()?["outcome"], "drained");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn listeners_that_are_called_as_the_admins_or_a_workers_count() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let prefixes = ["admin", "worker_0", "edge.worker_1", "my.admin.web"];
        let mut envoy = envoy()?.binary(&binary).upstream(&upstream);
        for prefix in prefixes {
            envoy = envoy.listener(tcp(prefix)?.stat_prefix(prefix));
        }
        let envoy = envoy.start().await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .start()
            .await?;
        let mut held = Vec::new();
        for prefix in prefixes {
            held.push(RawConnection::open_stream(envoy.address(prefix)).await?);
        }
        let end = drainer.call_pod_hooks()?;
        while let Some(stream) = held.pop() {
            let left = held.len() as u64;
            let by_listener = prefixes[..=held.len()].iter();
            let by_listener = by_listener
                .map(|prefix| ((*prefix).to_owned(), 1))
                .collect();
            wait_until("each is counted", TIMEOUT, || async {
                let open = drainer.status().await?.open;
                Ok(open.is_some_and(|open| {
                    open.connections == left + 1 && open.by_listener == by_listener
                }))
            })
            .await?;
            assert!(end.is_waiting());
            drop(stream);
        }
        end.wait_for_return().await?;
        assert_eq!(drainer.termination_message()?["outcome"], "drained");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn requests_under_the_admins_name_are_no_idle_connections() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?
            .binary(&binary)
            .upstream(&upstream)
            .listener(http("web")?.stat_prefix("admin").http_stat_prefix("admin"))
            .listener(http("other")?.http_stat_prefix("worker_0"))
            .start()
            .await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .timing(|t| t.idle_exit = Some(SECOND / 2))
            .start()
            .await?;
        let requests =
            ["web", "other"].map(|listener| slow_request(envoy.client(listener), 3 * SECOND));
        wait_until("both are under way", TIMEOUT, || async {
            let active = "cluster.upstream.upstream_rq_active";
            Ok(envoy.admin().stat(active).await? == Some(2))
        })
        .await?;
        drainer.call_pod_hooks()?.wait_for_return().await?;
        envoy.terminate().await?;
        for request in requests {
            request.await?.1?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn where_listeners_are_hidden_the_servers_total_is_believed_only_after_a_flush() -> Result<()>
{
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let envoy = envoy()?
            .binary(&binary)
            .upstream(&upstream)
            .listener(tcp("stream")?)
            .include_stats(&["server.", "cluster."])
            .stats_flush_interval(2 * SECOND)
            .start()
            .await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .start()
            .await?;
        let warning = drainer
            .wait_for_log("hides listener.*: drains rely", TIMEOUT)
            .await?;
        assert_eq!(warning["level"], "WARN");
        // The total still says zero now.
        let stream = RawConnection::open_stream(envoy.address("stream")).await?;
        let end = drainer.call_pod_hooks()?;
        sleep(4 * SECOND).await;
        drop(stream);
        let took = end.wait_for_return().await?;
        // Two flushes must have shown zero.
        assert_took_between(took, 6 * SECOND, 8 * SECOND);
        let words = drainer.termination_message()?;
        assert_eq!(
            (&words["outcome"], &words["peak"]),
            (&json!("drained"), &json!(1))
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn where_all_is_hidden_nothing_passes_for_zero() -> Result<()> {
    for_each_envoy(|binary| async move {
        let envoy = envoy()?
            .binary(&binary)
            .listener(http("web")?)
            .include_stats(&[])
            .start()
            .await?;
        let drainer = drainer(envoy.admin_address())?
            .exit_without_minimum()
            .timing(|t| t.drain_timeout = 3 * SECOND)
            .start()
            .await?;
        let warning = drainer
            .wait_for_log("each drain lasts until its deadline", TIMEOUT)
            .await?;
        assert_eq!(warning["level"], "WARN");
        assert_took(
            drainer.call_pod_hooks()?.wait_for_return().await?,
            3 * SECOND,
        );
        let words = drainer.termination_message()?;
        assert_eq!(
            (&words["outcome"], words.get("left")),
            (&json!("deadline"), None)
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_envoy_whose_xds_never_answers_ends_as_any_other() -> Result<()> {
    for_each_envoy(|binary| async move {
        let envoy = envoy()?.binary(&binary).unresponsive_xds().start().await?;
        let drainer = drainer(envoy.admin_address())?.start().await?;
        drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
        assert_took(
            drainer.call_pod_hooks()?.wait_for_return().await?,
            10 * SECOND,
        );
        assert_eq!(drainer.termination_message()?["outcome"], "drained");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_admin_is_reached_wherever_it_is() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let places = [
            Bootstrap::admin_ipv6,
            Bootstrap::admin_unix,
            Bootstrap::admin_abstract,
        ];
        for place in places {
            let envoy = place(envoy()?.binary(&binary).upstream(&upstream));
            let envoy = envoy.listener(http("web")?).start().await?;
            let drainer = drainer(envoy.admin_address())?
                .exit_without_minimum()
                .start()
                .await?;
            let request = slow_request(envoy.client("web"), SECOND);
            wait_for_active_requests(&envoy, 1).await?;
            drainer.call_pod_hooks()?.wait_for_return().await?;
            let gone = drainer.termination_message()?;
            envoy.terminate().await?;
            request.await?.1?;
            assert_eq!(gone["outcome"], "drained", "{}", envoy.admin_address());
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_envoy_that_ends_by_itself_is_not_waited_for() -> Result<()> {
    for_each_envoy(|binary| async move {
        let places = [|envoy: Bootstrap| envoy, Bootstrap::admin_unix];
        for place in places {
            let envoy = place(envoy()?.binary(&binary))
                .listener(http("web")?)
                .start()
                .await?;
            let drainer = drainer(envoy.admin_address())?.start().await?;
            let end = drainer.call_pod_hooks()?;
            drainer.wait_for_phase(DrainPhase::Draining).await?;
            sleep(SECOND).await;
            assert!(end.is_waiting());
            envoy.signal(Signal::KILL);
            let killed = Instant::now();
            end.wait_for_return().await?;
            let noticed = killed.elapsed();
            assert_took_at_most(noticed, SECOND);
            assert_eq!(drainer.termination_message()?["outcome"], "gone");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn partly_hidden_statistics_cut_no_request() -> Result<()> {
    for_each_envoy(|binary| async move {
        let upstream = Upstream::start().await?;
        let hides = |prefix: &str| envoy().map(|envoy| envoy.exclude_stats(&[prefix]));
        let others = ["cluster.", "server.", "listener.admin.", "http.admin."];
        let envoys = [
            (hides("listener.0.0.0.0_")?, "hides listener.0.0.0.0_"),
            (hides("http.web.downstream_rq_")?, "hides http.*"),
            (envoy()?.include_stats(&others), "hides listener.0.0.0.0_"),
        ];
        for (envoy, warning) in envoys {
            let envoy = envoy
                .binary(&binary)
                .upstream(&upstream)
                .stats_flush_interval(SECOND)
                .listener(http("web")?)
                .start()
                .await?;
            let drainer = drainer(envoy.admin_address())?
                .exit_without_minimum()
                .timing(|timing| timing.idle_exit = Some(SECOND / 2))
                .start()
                .await?;
            assert_eq!(
                drainer.wait_for_log(warning, TIMEOUT).await?["level"],
                "WARN"
            );
            let request = slow_request(envoy.client("web"), 4 * SECOND);
            wait_until("it is under way", TIMEOUT, || async {
                let active = "cluster.upstream.upstream_rq_active";
                Ok(envoy.admin().stat(active).await? == Some(1))
            })
            .await?;
            drainer.call_pod_hooks()?.wait_for_return().await?;
            assert_eq!(
                drainer.termination_message()?["outcome"],
                "drained",
                "{warning}"
            );
            envoy.terminate().await?;
            request.await?.1?;
        }
        Ok(())
    })
    .await
}
