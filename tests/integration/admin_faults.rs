//! Faults of Envoy's admin interface: an unknown count is never taken for zero, failed calls are retried, and a
//! drain ends as soon as the fault is over, or at its deadline.

use std::time::Duration;

use anyhow::Result;
use drainer::DrainPhase;
use rustix::process::getuid;
use serde_json::json;
use tests::binaries::optimized_drainer;
use tests::drainer::{Drainer, PodHooks, drainer, quick_drainer};
use tests::envoy::envoy;
use tests::fake_admin::{Behaviour, FakeAdmin};
use tests::http::Client;
use tests::memory::MemoryMetric;
use tests::parallel::for_each_case;
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_between};
use tests::until::wait_until;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// The memory limit below which the webhook refuses to inject.
const MIN_MEMORY_LIMIT: u64 = 24 << 10;

/// The part of that limit which the kernel takes for 1,000 connections: 1.6 MiB, measured in a cgroup.
const SOCKETS: u64 = 2 << 10;

/// Longer than the drainer's timeout for one response, and short enough for a test.
const DEADLINE: Duration = Duration::from_secs(12);

async fn start_drainer(fake: &FakeAdmin) -> Result<Drainer> {
    let program = spawn_blocking(optimized_drainer).await??;
    drainer(&fake.address())?
        .program(&program)
        .exit_without_minimum()
        .timing(|timing| timing.drain_timeout = DEADLINE)
        .start()
        .await
}

/// Starts a drain that one connection holds, and waits until the drainer has counted that.
async fn start_drain(behaviour: Behaviour) -> Result<(FakeAdmin, Drainer, PodHooks)> {
    let fake = FakeAdmin::start(behaviour).await?;
    fake.set_open_connections(1);
    let drainer = start_drainer(&fake).await?;
    let hooks = drainer.call_pod_hooks()?;
    wait_for_count(&drainer, 1).await?;
    Ok((fake, drainer, hooks))
}

/// Waits until the drainer drains and has counted so many open connections.
async fn wait_for_count(drainer: &Drainer, connections: u64) -> Result<()> {
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    wait_until("the first count", TIMEOUT, || async {
        let open = drainer.status().await?.remaining;
        Ok(open.is_some_and(|open| open.connections == connections))
    })
    .await
}

#[tokio::test]
async fn permanent_fault_holds_drain_until_deadline() -> Result<()> {
    let behaviours = [
        Behaviour::Status(500),
        Behaviour::Status(503),
        Behaviour::Status(404),
        Behaviour::Status(403),
        Behaviour::NoResponse,
        Behaviour::Slow(8 * SECOND),
        Behaviour::TruncatedResponse,
        Behaviour::TruncatedDocument,
        Behaviour::UnrelatedPage,
    ];
    for_each_case(behaviours, |behaviour| async move {
        let (mut fake, drainer, hooks) = start_drain(Behaviour::Normal).await?;
        fake.set_behaviour(behaviour).await?;
        // Envoy has no connection any more, but the drainer cannot know that.
        fake.set_open_connections(0);
        sleep(SECOND / 2).await;
        drainer.wait_for_fault().await?;
        assert_took(hooks.wait_for_return().await?, DEADLINE);
        let message = drainer.termination_message()?;
        assert_eq!(message["outcome"], "deadline", "{message}");
        let last_known = &message["remaining"]["connections"];
        assert_eq!(*last_known, 1, "{message}");
        let polls = fake.calls("/").len();
        assert!(polls < 80, "{polls} polls in {DEADLINE:?}");
        assert_eq!(fake.max_concurrent_requests(), 1);
        let peak = MemoryMetric::Peak.read(drainer.process())?;
        assert!(peak < MIN_MEMORY_LIMIT, "{peak} KiB");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn drain_started_during_fault_ends_after_it() -> Result<()> {
    // How long after the fault the drainer may still wait for a response to an earlier call, which it made after the two
    // seconds that it waited for Envoy's setup.
    let behaviours = [
        (Behaviour::Status(500), Duration::ZERO),
        (Behaviour::NoResponse, 4 * SECOND),
        (Behaviour::Slow(8 * SECOND), 4 * SECOND),
        (Behaviour::TruncatedResponse, Duration::ZERO),
        (Behaviour::TruncatedDocument, Duration::ZERO),
        (Behaviour::UnrelatedPage, Duration::ZERO),
        (Behaviour::ConnectionRefused, Duration::ZERO),
    ];
    for_each_case(behaviours, |(behaviour, wait)| async move {
        let mut fake = FakeAdmin::start(behaviour).await?;
        let drainer = start_drainer(&fake).await?;
        let hooks = drainer.call_pod_hooks()?;
        sleep(3 * SECOND).await;
        assert!(hooks.is_waiting());
        let recovered_at = hooks.called_at().elapsed();
        fake.set_behaviour(Behaviour::Normal).await?;
        let took = hooks.wait_for_return().await?;
        // Plus one poll interval.
        assert_took_between(took, recovered_at, recovered_at + wait + SECOND / 4);
        let message = drainer.termination_message()?;
        assert_eq!(message["outcome"], "drained", "{message}");
        assert!(!fake.is_live(), "health was not failed after the fault");
        assert!(!fake.calls("/drain_listeners").is_empty());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn transient_fault_does_not_end_drain() -> Result<()> {
    let behaviours = [
        Behaviour::Status(500),
        Behaviour::TruncatedResponse,
        Behaviour::TruncatedDocument,
        Behaviour::UnrelatedPage,
    ];
    for_each_case(behaviours, |behaviour| async move {
        let (mut fake, drainer, hooks) = start_drain(Behaviour::Normal).await?;
        fake.set_behaviour(behaviour).await?;
        sleep(SECOND * 3 / 10).await;
        fake.set_behaviour(Behaviour::Normal).await?;
        sleep(2 * SECOND).await;
        assert!(hooks.is_waiting());
        let closed_at = hooks.called_at().elapsed();
        fake.set_open_connections(0);
        let took = hooks.wait_for_return().await?;
        assert_took_between(took, closed_at, closed_at + SECOND / 4);
        assert_eq!(drainer.termination_message()?["outcome"], "drained");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn slow_responses_are_accepted() -> Result<()> {
    let (fake, drainer, hooks) = start_drain(Behaviour::Slow(SECOND / 10)).await?;
    sleep(2 * SECOND).await;
    assert!(hooks.is_waiting());
    let closed_at = hooks.called_at().elapsed();
    fake.set_open_connections(0);
    let took = hooks.wait_for_return().await?;
    // After a slow poll the drainer pauses ten times as long.
    assert_took_between(took, closed_at, closed_at + 3 * SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    assert!(!fake.is_live());
    Ok(())
}

#[tokio::test]
async fn only_repeated_connection_refusals_end_the_drain() -> Result<()> {
    let (mut fake, drainer, hooks) = start_drain(Behaviour::Normal).await?;
    // A single refused poll: the drain ends only after three.
    fake.set_behaviour(Behaviour::ConnectionRefused).await?;
    drainer.wait_for_fault().await?;
    fake.set_behaviour(Behaviour::Normal).await?;
    sleep(SECOND).await;
    assert!(hooks.is_waiting());
    let refused_at = Instant::now();
    fake.set_behaviour(Behaviour::ConnectionRefused).await?;
    hooks.wait_for_return().await?;
    let took = refused_at.elapsed();
    assert_took_between(took, SECOND * 6 / 10, SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "gone");
    Ok(())
}

#[tokio::test]
async fn total_ends_drain_where_statistics_are_too_large() -> Result<()> {
    let fake = FakeAdmin::start(Behaviour::LargeStats(5 << 20)).await?;
    fake.set_open_connections(1);
    let drainer = start_drainer(&fake).await?;
    let warning = drainer
        .wait_for_log("Cannot read Envoy's /stats", TIMEOUT)
        .await?;
    let message = warning["message"].as_str().unwrap_or_default();
    assert!(message.contains("more than 4194304 bytes"), "{message}");
    let hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    sleep(4 * SECOND).await;
    assert!(hooks.is_waiting());
    let closed_at = hooks.called_at().elapsed();
    fake.set_open_connections(0);
    // Envoy has flushed the total again.
    let took = hooks.wait_for_return().await?;
    assert_took_between(took, closed_at, closed_at + 2 * SECOND);
    drainer.assert_message(&json!({"outcome": "drained", "peak": 1}))?;
    Ok(())
}

#[tokio::test]
async fn socket_without_rights_has_its_own_remedy() -> Result<()> {
    const DRAINER_USER: u32 = 60902;

    if !getuid().is_root() {
        println!("skipped: only root can run a drainer as another user");
        return Ok(());
    }
    let envoy = envoy()?.admin_unix_with_mode(0o600)?.start().await?;
    let sidecar = drainer(envoy.admin_address())?.user(DRAINER_USER);
    let serve = match sidecar.run("drainer", &sidecar.serve_args()) {
        Ok(serve) => serve,
        Err(error) => {
            println!("skipped: another user may not run this program: {error:#}");
            return Ok(());
        }
    };
    wait_until("the fault is logged", TIMEOUT, || async {
        Ok(serve.log().contains("cannot be read"))
    })
    .await?;
    let log = serve.log();
    assert!(log.contains("permission denied"), "{log}");
    assert!(log.contains("`mode: 438`"), "{log}");
    assert!(!log.contains("admin-address"), "{log}");
    Ok(())
}

#[tokio::test]
async fn status_escapes_the_text_of_an_error() -> Result<()> {
    let fake = FakeAdmin::start(Behaviour::Status(400)).await?;
    let drainer = start_drainer(&fake).await?;
    drainer.wait_for_log("cannot be read", TIMEOUT).await?;
    let status = drainer.builder().run("status", &["status"])?;
    assert!(status.wait_within(TIMEOUT).await?.success());
    let log = status.log();
    let escaped = r"400 Bad Request: no\u{1b}[2J\u{202e}";
    assert!(log.contains(escaped), "{log}");
    assert!(!log.contains(['\u{1b}', '\u{202e}']), "{log}");
    Ok(())
}

#[tokio::test]
async fn largest_statistics_and_a_flood_fit_the_memory_limit() -> Result<()> {
    // Just below the bounds of 4 MiB and of 65,536 statistics.
    let fake = FakeAdmin::start(Behaviour::LargeStats((4 << 20) - 4096)).await?;
    fake.set_open_connections(1);
    let drainer = start_drainer(&fake).await?;
    let mut connections = Vec::new();
    for _ in 0..950 {
        let mut connection = TcpStream::connect(drainer.address()).await?;
        let head = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(2000));
        connection.write_all(head.as_bytes()).await?;
        connections.push(connection);
    }
    let hooks = drainer.call_pod_hooks()?;
    wait_for_count(&drainer, 1).await?;
    fake.set_open_connections(0);
    hooks.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    let peak = MemoryMetric::Peak.read(drainer.process())?;
    println!("largest statistics and 950 connections: {peak} KiB");
    assert!(peak < MIN_MEMORY_LIMIT - SOCKETS, "{peak} KiB");
    Ok(())
}

#[tokio::test]
async fn smallest_statistics_fit_the_memory_limit() -> Result<()> {
    let fake = FakeAdmin::start(Behaviour::Normal).await?;
    fake.set_open_connections(1);
    for smallest in ["{}", r#"["",1]"#] {
        let all = vec![smallest; (4 << 20) / (smallest.len() + 1) - 64].join(",");
        fake.override_response("/stats", format!(r#"{{"stats":[{all}]}}"#));
        let drainer = start_drainer(&fake).await?;
        let _hooks = drainer.call_pod_hooks()?;
        wait_for_reads(&drainer, &fake).await?;
        let peak = MemoryMetric::Peak.read(drainer.process())?;
        assert!(peak < MIN_MEMORY_LIMIT - SOCKETS, "{smallest}: {peak} KiB");
    }
    Ok(())
}

/// Waits until the drainer has read each response at least once since the drain began.
async fn wait_for_reads(drainer: &Drainer, fake: &FakeAdmin) -> Result<()> {
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    let before = fake.calls("/stats").len();
    // A second poll means that the first response was read; the first poll may be from before the drain.
    wait_until("the drainer has polled twice", 6 * TIMEOUT, || async {
        Ok(fake.calls("/stats").len() > before + 1 || drainer.termination_message().is_ok())
    })
    .await
}

#[tokio::test]
async fn one_byte_chunks_fit_the_memory_limit() -> Result<()> {
    let fake = FakeAdmin::start(Behaviour::OneByteChunks).await?;
    fake.set_open_connections(1);
    let body = format!(r#"{{"stats":[]{}}}"#, " ".repeat(1 << 20));
    fake.override_response("/stats", body);
    let drainer = start_drainer(&fake).await?;
    let _hooks = drainer.call_pod_hooks()?;
    wait_for_reads(&drainer, &fake).await?;
    let peak = MemoryMetric::Peak.read(drainer.process())?;
    println!("one-byte chunks: {peak} KiB");
    // The drainer itself and the body twice; a frame for each byte would take thirty times the body.
    assert!(peak < 10 << 10, "{peak} KiB");
    Ok(())
}

#[tokio::test]
async fn impossible_counts_are_never_few_connections() -> Result<()> {
    let half = 1_u64 << 63;
    let values = [
        format!("{half}"),
        "18446744073709551616".to_owned(),
        "1e400".to_owned(),
        "-1".to_owned(),
        "0.5".to_owned(),
        r#""0""#.to_owned(),
        "null".to_owned(),
    ];
    for_each_case(values, |value| async move {
        let fake = FakeAdmin::start(Behaviour::Normal).await?;
        let listener = |port| {
            format!(r#"{{"name":"listener.0.0.0.0_{port}.downstream_cx_active","value":{value}}}"#)
        };
        let stats = [80, 81].map(listener).join(",");
        let sentinel = r#"{"name":"listener.admin.downstream_cx_active","value":1}"#;
        fake.override_response("/stats", format!(r#"{{"stats":[{sentinel},{stats}]}}"#));
        let drainer = quick_drainer(&fake.address())?
            .timing(|timing| timing.drain_timeout = 3 * SECOND)
            .start()
            .await?;
        assert_took(drainer.drain_pod().await?, 3 * SECOND);
        assert_eq!(drainer.termination_message()?["outcome"], "deadline");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn drain_works_where_only_statistics_are_allowed() -> Result<()> {
    let (fake, drainer, hooks) = start_drain(Behaviour::StatsOnly).await?;
    sleep(SECOND).await;
    assert!(hooks.is_waiting());
    let closed_at = hooks.called_at().elapsed();
    fake.set_open_connections(0);
    let took = hooks.wait_for_return().await?;
    assert_took(took, closed_at);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    // Each call is sent once, and its rejection is logged once.
    for call in ["/healthcheck/fail", "/drain_listeners"] {
        assert_eq!(fake.calls(call).len(), 1, "{call}");
        let is_rejection =
            |line: &serde_json::Value| line["level"] == "ERROR" && line["call"] == call;
        assert_eq!(
            drainer.log().into_iter().filter(is_rejection).count(),
            1,
            "{call}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn unflushed_total_is_not_zero() -> Result<()> {
    // The flush interval is unknown too: the admin interface allows statistics alone.
    let fake = FakeAdmin::start(Behaviour::StatsOnly).await?;
    let drainer = start_drainer(&fake).await?;
    let stats_flushed_at = |uptime| {
        format!(
            r#"{{"stats":[{{"name":"server.total_connections","value":0}},
                {{"name":"server.uptime","value":{uptime}}}]}}"#
        )
    };
    fake.override_response("/stats", stats_flushed_at(60));
    let hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    sleep(8 * SECOND).await;
    assert!(hooks.is_waiting());
    let flushed_at = hooks.called_at().elapsed();
    fake.override_response("/stats", stats_flushed_at(120));
    assert_took(hooks.wait_for_return().await?, flushed_at);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

#[tokio::test]
async fn unreadable_listener_dump_is_logged_with_its_reason() -> Result<()> {
    let cases = [
        (Behaviour::StatsOnly, "admin.allow_paths"),
        (
            Behaviour::LargeListenerDump(5 << 20),
            "more than 4194304 bytes",
        ),
    ];
    for_each_case(cases, |(behaviour, expected)| async move {
        let fake = FakeAdmin::start(behaviour).await?;
        let drainer = start_drainer(&fake).await?;
        let line = drainer
            .wait_for_log("Cannot read Envoy's /config_dump", TIMEOUT)
            .await?;
        let message = line["message"].as_str().unwrap_or_default();
        for reason in ["admin.allow_paths", "more than 4194304 bytes"] {
            assert_eq!(message.contains(reason), reason == expected, "{message}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn other_service_at_admin_address_is_logged() -> Result<()> {
    let behaviours = [Behaviour::UnrelatedPage, Behaviour::Status(404)];
    for_each_case(behaviours, |behaviour| async move {
        let fake = FakeAdmin::start(behaviour).await?;
        let drainer = start_drainer(&fake).await?;
        let line = drainer
            .wait_for_log("admin interface cannot be read", 3 * SECOND)
            .await?;
        assert_eq!(line["level"], "ERROR");
        assert!(
            fake.calls("/healthcheck").is_empty(),
            "another service was called"
        );
        assert_took(drainer.drain_pod().await?, DEADLINE);
        assert_eq!(drainer.termination_message()?["outcome"], "deadline");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn health_is_restored_after_any_fault() -> Result<()> {
    let behaviours = [
        Behaviour::Status(500),
        Behaviour::Status(404),
        Behaviour::NoResponse,
        Behaviour::TruncatedResponse,
        Behaviour::ConnectionRefused,
    ];
    for_each_case(behaviours, |behaviour| async move {
        let mut fake = FakeAdmin::start(Behaviour::Normal).await?;
        // A drainer that ended in a drain has failed it.
        let client = Client::new(fake.address());
        client.post("/healthcheck/fail").await?;
        fake.set_behaviour(behaviour).await?;
        let _drainer = start_drainer(&fake).await?;
        sleep(2 * SECOND).await;
        assert!(!fake.is_live());
        fake.set_behaviour(Behaviour::Normal).await?;
        let is_restored = || async { Ok(fake.is_live()) };
        wait_until("health is restored", TIMEOUT, is_restored).await
    })
    .await
}
