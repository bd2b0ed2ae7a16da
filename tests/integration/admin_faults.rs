//! Faults of Envoy's admin interface as the drainer's program meets them: what they cost it, and what it prints of
//! them. What it decides is tested beside its state machine.

use std::time::Duration;

use anyhow::Result;
use drainer::{AdminAddress, DrainPhase};
use fake_envoy::{Behaviour, FakeEnvoy, Fault};
use rustix::process::getuid;
use tests::drainer::{Drainer, drainer, quick_drainer};
use tests::envoy::envoy;
use tests::memory::MemoryMetric;
use tests::timing::TIMEOUT;
use tests::until::wait_until;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The memory limit below which the webhook refuses to inject.
const MIN_MEMORY_LIMIT: u64 = 24 << 10;

/// The part of that limit which the kernel takes for 1,000 connections: 1.6 MiB, measured in a cgroup.
const SOCKETS: u64 = 2 << 10;

async fn start_drainer(envoy: &FakeEnvoy) -> Result<Drainer> {
    let admin = AdminAddress::Tcp(envoy.listen().await?);
    quick_drainer(&admin)?.optimized().await?.start().await
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
    let envoy = FakeEnvoy::new(|_| Behaviour::open(0).with(Fault::Status(400)));
    let drainer = start_drainer(&envoy).await?;
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
async fn all_faults_in_one_drain_fit_the_memory_limit() -> Result<()> {
    let envoy = FakeEnvoy::new(|_| Behaviour::open(1));
    let drainer = start_drainer(&envoy).await?;
    let hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    drainer.wait_for_count(1).await?;
    for fault in [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(404),
        Fault::Status(403),
        Fault::TruncatedResponse,
        Fault::TruncatedDocument,
        Fault::UnrelatedPage,
        Fault::NoResponse,
        Fault::Slow(Duration::from_secs(8)),
    ] {
        let before = envoy.calls("/").len();
        envoy.set_behaviour(Behaviour::open(0).with(fault));
        let is_called = || async { Ok(envoy.calls("/").len() > before) };
        wait_until("the next call", TIMEOUT, is_called).await?;
        assert!(hooks.is_waiting(), "{fault:?}");
    }
    envoy.set_behaviour(Behaviour::open(0));
    hooks.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    let peak = MemoryMetric::Peak.read(drainer.process())?;
    assert!(peak < MIN_MEMORY_LIMIT, "{peak} KiB");
    Ok(())
}

/// Statistics just below the bound of 4 MiB. The names of listeners have an escape, so that a reader
/// has to copy them.
fn largest_stats(connections: u64) -> Behaviour {
    let listeners = (0..).map(|listener| {
        let name = format!(r"listener.10.0.0.0\u005f{listener}.downstream_cx_active");
        (name, if listener == 0 { connections } else { 0 })
    });
    let admin = ["admin", "admin.main_thread"];
    let admin = admin.map(|name| (format!("listener.{name}.downstream_cx_active"), 1));
    let mut stats = r#"{"stats":["#.to_owned();
    for (name, value) in admin.into_iter().chain(listeners) {
        stats += &format!(r#"{{"name":"{name}","value":{value}}}"#);
        if stats.len() >= (4 << 20) - 4096 {
            break;
        }
        stats.push(',');
    }
    with_stats(stats + "]}")
}

fn with_stats(stats: String) -> Behaviour {
    Behaviour {
        stats: Some(stats),
        ..Behaviour::open(1)
    }
}

#[tokio::test]
async fn largest_statistics_and_a_flood_fit_the_memory_limit() -> Result<()> {
    let (busy, idle) = (largest_stats(1), largest_stats(0));
    let envoy = FakeEnvoy::new(move |_| busy.clone());
    let drainer = start_drainer(&envoy).await?;
    let mut connections = Vec::new();
    for _ in 0..950 {
        let mut connection = TcpStream::connect(drainer.address()).await?;
        let head = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(2000));
        connection.write_all(head.as_bytes()).await?;
        connections.push(connection);
    }
    let hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    drainer.wait_for_count(1).await?;
    envoy.set_behaviour(idle);
    hooks.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    let peak = MemoryMetric::Peak.read(drainer.process())?;
    println!("largest statistics and 950 connections: {peak} KiB");
    assert!(peak < MIN_MEMORY_LIMIT - SOCKETS, "{peak} KiB");
    Ok(())
}

#[tokio::test]
async fn smallest_statistics_fit_the_memory_limit() -> Result<()> {
    for smallest in ["{}", r#"["",1]"#] {
        let all = vec![smallest; (4 << 20) / (smallest.len() + 1) - 64].join(",");
        let behaviour = with_stats(format!(r#"{{"stats":[{all}]}}"#));
        let envoy = FakeEnvoy::new(move |_| behaviour.clone());
        let drainer = start_drainer(&envoy).await?;
        let _hooks = drainer.call_pod_hooks()?;
        wait_for_reads(&drainer, &envoy).await?;
        let peak = MemoryMetric::Peak.read(drainer.process())?;
        assert!(peak < MIN_MEMORY_LIMIT - SOCKETS, "{smallest}: {peak} KiB");
    }
    Ok(())
}

/// Waits until the drainer has read each response at least once since the drain began.
async fn wait_for_reads(drainer: &Drainer, envoy: &FakeEnvoy) -> Result<()> {
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    let before = envoy.calls("/stats").len();
    // A second poll means that the first response was read; the first poll may be from before the drain.
    wait_until("the drainer has polled twice", 6 * TIMEOUT, || async {
        Ok(envoy.calls("/stats").len() > before + 1 || drainer.termination_message().is_ok())
    })
    .await
}

#[tokio::test]
async fn one_byte_chunks_fit_the_memory_limit() -> Result<()> {
    let stats = format!(r#"{{"stats":[]{}}}"#, " ".repeat(1 << 20));
    let behaviour = with_stats(stats).with(Fault::OneByteChunks);
    let envoy = FakeEnvoy::new(move |_| behaviour.clone());
    let drainer = start_drainer(&envoy).await?;
    let _hooks = drainer.call_pod_hooks()?;
    wait_for_reads(&drainer, &envoy).await?;
    let peak = MemoryMetric::Peak.read(drainer.process())?;
    println!("one-byte chunks: {peak} KiB");
    // The drainer itself and the body twice; a frame for each byte would take thirty times the body.
    assert!(peak < 10 << 10, "{peak} KiB");
    Ok(())
}
