//! Servers that are no Envoy: a drain waits for what the kernel knows to be in flight on their ports.

use std::time::Duration;

use anyhow::Result;
use drainer::{Config, Progress};
use serde_json::json;
use tests::drainer::{Drainer, quick_drainer};
use tests::raw_connection::RawConnection;
use tests::timing::{SECOND, assert_took_at_most, assert_took_between};
use tests::upstream::Upstream;

const IDLE_EXIT: Duration = Duration::from_secs(2);

/// A request whose response does not begin in the jiffy of the kernel in which it came.
const REQUEST: &str = "/?ms=50";

/// Starts a server and its drainer, which waits for no minimum and no quiet period.
async fn start(change: impl FnOnce(&mut Config)) -> Result<(Upstream, Drainer)> {
    let server = Upstream::start().await?;
    let port = server.http().port().to_string().parse()?;
    let drainer = quick_drainer(&drainer::AdminAddress::default())?.with_config(|config| {
        config.admin_address = None;
        config.server_ports = vec![port];
        config.settings.timing.idle_exit = Some(IDLE_EXIT);
        change(config);
    });
    Ok((server, drainer.start().await?))
}

#[tokio::test]
async fn request_is_waited_for_to_its_end() -> Result<()> {
    let (server, drainer) = start(|_| {}).await?;
    let mut client = RawConnection::open_idle(server.http()).await?;
    let request = tokio::spawn(async move {
        let response = client.get("/?ms=5000").await;
        drop(client);
        response
    });
    tokio::time::sleep(SECOND).await;
    assert_took_between(drainer.drain_pod().await?, 3 * SECOND, 6 * SECOND);
    request.await??;
    let want = json!({"outcome": "drained", "witness": "kernel", "remaining": {"connections": 0}});
    drainer.assert_message(&want)
}

#[tokio::test]
async fn silent_connections_are_left_open_and_told() -> Result<()> {
    let (server, drainer) = start(|_| {}).await?;
    let mut client = RawConnection::open(server.http()).await?;
    client.get(REQUEST).await?;
    assert_took_at_most(drainer.drain_pod().await?, IDLE_EXIT + SECOND);
    let port = server.http().port().to_string();
    let remaining = json!({"connections": 1, "inFlight": 0, "byListener": {port: 1}});
    drainer.assert_message(&json!({"outcome": "silent", "remaining": remaining}))
}

#[tokio::test]
async fn server_without_its_ports_is_a_plain_delay() -> Result<()> {
    let (server, drainer) = start(|config| {
        config.settings.timing.min_drain_duration = 2 * SECOND;
        config.server_ports = vec![config.settings.port.to_string().parse().unwrap()];
    })
    .await?;
    let _client = RawConnection::open_idle(server.http()).await?;
    let is_told = |status: &Progress| status.unknown.is_some();
    drainer.wait_for_status("it is told", is_told).await?;
    let took = drainer.drain_pod().await?;
    assert_took_between(took, 2 * SECOND, 3 * SECOND);
    drainer.assert_message(&json!({"outcome": "unreachable"}))
}
