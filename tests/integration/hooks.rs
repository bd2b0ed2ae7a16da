//! The hooks on the drainer's port: every waiting hook is answered, and invalid requests disturb no other.

use std::fmt::Debug;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeBounds;
use std::time::Duration;

use anyhow::Result;
use drainer::{AdminAddress, DrainPhase};
use tests::binaries;
use tests::drainer::{Drainer, DrainerBuilder, HookCall, quick_drainer};
use tests::envoy::envoy;
use tests::http::Client;
use tests::listener::http;
use tests::parallel::for_each_case;
use tests::process::{Signal, raise_open_file_limit};
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_at_most};
use tests::until::wait_until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// A drainer without an Envoy: its hooks wait until the deadline.
fn drainer_without_envoy(deadline: Duration) -> Result<DrainerBuilder> {
    // A free port may be that of another test's Envoy later, which this drainer would drain.
    let address = AdminAddress::Tcp((Ipv4Addr::LOCALHOST, 1).into());
    let drainer = quick_drainer(&address)?;
    Ok(drainer.timing(|timing| timing.drain_timeout = deadline))
}

/// Waits until so many files of the drainer are open, each connection among them.
async fn wait_for_files(drainer: &Drainer, number: impl RangeBounds<usize> + Debug) -> Result<()> {
    let reached = || async { Ok(number.contains(&drainer.process().open_descriptors()?)) };
    wait_until(&format!("{number:?} open files"), TIMEOUT, reached).await
}

/// Sends bytes to the drainer, and returns its whole response, which ends when it closes the connection.
async fn send(address: SocketAddr, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(bytes).await?;
    read_response(&mut stream).await
}

async fn read_response(stream: &mut TcpStream) -> Result<String> {
    let mut response = Vec::new();
    match timeout(TIMEOUT, stream.read_to_end(&mut response)).await? {
        // Bytes that the drainer has not read cause a reset after the response, or instead of it.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => drop(other?),
    }
    Ok(String::from_utf8_lossy(&response).into_owned())
}

#[tokio::test]
async fn thousand_hooks_are_answered_after_sigterm() -> Result<()> {
    // This process holds the clients' ends.
    raise_open_file_limit()?;
    let drainer = drainer_without_envoy(20 * SECOND)?.start().await?;
    drainer.process().limit_open_files()?;

    let drainer_hook = drainer.call_drainer_hook()?;
    let mut hooks = Vec::new();
    while hooks.len() < 999 {
        // Above a hundred pending requests, the drainer waits only 200 ms for each.
        hooks.extend((0..37).map(|_| drainer.call_envoy_hook()));
        wait_for_files(&drainer, hooks.len() + 1..).await?;
    }
    drainer.signal(Signal::TERM);
    sleep(SECOND).await;
    // It still accepts hooks.
    let late = drainer.call_envoy_hook();
    assert!(hooks.iter().all(HookCall::is_waiting));
    assert!(drainer_hook.is_waiting() && late.is_waiting());
    assert_took(drainer_hook.wait_for_return().await?, 20 * SECOND);
    for hook in hooks.iter().chain([&late]) {
        hook.wait_for_return().await?;
    }
    let status = drainer.process().wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn wrong_token_gets_403_and_changes_nothing() -> Result<()> {
    let envoy = envoy()?.listener(http("web")?).start().await?;
    let drainer = quick_drainer(envoy.admin_address())?.start().await?;
    let client = Client::from(drainer.address());
    let correct = drainer.builder().config().hook_path();
    let wrong = correct.replace("0123", "3210");
    assert_ne!(correct, wrong);
    let shorter = &correct[..correct.len() - 1];
    let longer = format!("{correct}0");
    let upper = correct.to_ascii_uppercase().replace("/DRAINED", "/drained");
    let other_container = format!("{wrong}/app");
    let table = [
        (wrong.as_str(), 403),
        (shorter, 403),
        (&longer, 403),
        (&upper, 403),
        ("/drained/", 403),
        (&other_container, 403),
        ("/drained", 404),
        ("/", 404),
        // The drainer's own hook and its status, which are served on its Unix socket alone.
        ("/drain", 404),
        ("/status", 404),
    ];
    for (path, status) in table {
        assert_eq!(client.get(path).await?.status, status, "{path}");
    }
    assert_eq!(client.post(&correct).await?.status, 404);
    // Since the hook of Envoy alone, the phase would be another one.
    assert_eq!(drainer.status().await?.phase, DrainPhase::Standby);
    assert_eq!(envoy.admin().state().await?, "LIVE");
    Ok(())
}

#[tokio::test]
async fn closed_hook_connections_leave_no_open_files() -> Result<()> {
    let drainer = drainer_without_envoy(12 * SECOND)?.start().await?;
    let before = drainer.process().open_descriptors()?;
    let hooks = drainer.call_pod_hooks()?;
    for _ in 0..3 {
        let closing: Vec<_> = (0..100).map(|_| drainer.call_envoy_hook()).collect();
        wait_for_files(&drainer, before + 100..).await?;
        drop(closing);
        wait_for_files(&drainer, ..=before + 3).await?;
    }
    assert_took(hooks.wait_for_return().await?, 12 * SECOND);
    Ok(())
}

#[tokio::test]
async fn malformed_and_slow_requests_disturb_no_hook() -> Result<()> {
    let drainer = drainer_without_envoy(9 * SECOND)?.start().await?;
    let address = drainer.address();
    let before = drainer.process().open_descriptors()?;
    let hooks = drainer.call_pod_hooks()?;

    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n", "y".repeat(4000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(40));
    let garbage: [&[u8]; 5] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        long.as_bytes(),
        many.as_bytes(),
    ];
    for bytes in garbage {
        let response = send(address, bytes).await?;
        let request = bytes[..bytes.len().min(40)].escape_ascii();
        let is_rejected = response.is_empty() || response.starts_with("HTTP/1.1 400 ");
        assert!(is_rejected, "{request}: {response}");
    }
    // A byte at a time, and nothing at all: both connections are closed after two seconds.
    let mut silent = TcpStream::connect(address).await?;
    let mut slow = TcpStream::connect(address).await?;
    let start = Instant::now();
    slow.write_all(b"GET /dra").await?;
    let (mut slow_response, mut slow_head) = slow.split();
    let drip = async {
        loop {
            sleep(SECOND / 4).await;
            if slow_head.write_all(b"x").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut response = Vec::new();
    tokio::select! {
        () = drip => {}
        read = timeout(TIMEOUT, slow_response.read_to_end(&mut response)) => drop(read?),
    }
    assert_took(start.elapsed(), 2 * SECOND);
    assert_eq!(read_response(&mut silent).await?, "");
    // Only the hooks are connected.
    wait_for_files(&drainer, ..=before + 3).await?;
    assert_took(hooks.wait_for_return().await?, 9 * SECOND);
    Ok(())
}

#[tokio::test]
async fn port_in_use_is_bound_once_free() -> Result<()> {
    let cases = [
        (false, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        (false, (Ipv6Addr::UNSPECIFIED, 0).into()),
        (true, (Ipv4Addr::UNSPECIFIED, 0).into()),
    ];
    for_each_case(cases, |(host_network, address)| async move {
        let other_listener = TcpListener::bind(address).await?;
        let port = other_listener.local_addr()?.port();
        let sidecar = drainer_without_envoy(3 * SECOND)?.with_config(|config| {
            config.settings.port = port.try_into().expect("a bound port is not zero");
            config.host_network = host_network;
        });
        // It runs, and serves its Unix socket.
        let drainer = sidecar.start().await?;
        let cannot_listen = "Cannot listen for Envoy's hook";
        let line = drainer.wait_for_log(cannot_listen, TIMEOUT).await?;
        assert_eq!(line["level"], "ERROR");
        let address = line["address"].as_str().unwrap_or_default();
        assert!(address.ends_with(&format!(":{port}")), "{address}");
        sleep(2 * SECOND).await;
        assert_eq!(drainer.status().await?.phase, DrainPhase::Standby);
        drop(other_listener);
        let freed_at = Instant::now();
        let listens = "Listening for Envoy's hook";
        drainer.wait_for_log(listens, TIMEOUT).await?;
        assert_took_at_most(freed_at.elapsed(), SECOND);
        assert_took(drainer.drain_pod().await?, 3 * SECOND);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn admin_address_of_another_host_is_denied() -> Result<()> {
    let sidecar = drainer_without_envoy(SECOND)?;
    for flag in [
        "--admin-address=169.254.169.254:80",
        "--admin-hints=127.0.0.1:1,10.0.0.7:80",
    ] {
        let mut args = sidecar.serve_args();
        args.push(flag.to_owned());
        let serve = sidecar.run("drainer", &args)?;
        let status = serve.wait_within(TIMEOUT).await?;
        assert_eq!(status.code(), Some(64));
        let log = serve.log();
        assert!(log.contains("it is not a loopback address"), "{log}");
    }
    Ok(())
}

#[tokio::test]
async fn host_network_port_is_reachable_from_node_only() -> Result<()> {
    for host_network in [false, true] {
        let sidecar =
            drainer_without_envoy(SECOND)?.with_config(|config| config.host_network = host_network);
        let drainer = sidecar.start().await?;
        let port = drainer.address().port();
        // To a listener on 127.0.0.1, 127.0.0.2 is as foreign as the node's own address.
        let other_address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), port));
        let is_refused = TcpStream::connect(other_address).await.is_err();
        assert_eq!(is_refused, host_network);
        let response = Client::from(drainer.address()).get("/drained/x").await?;
        assert_eq!(response.status, 403);
    }
    Ok(())
}

#[tokio::test]
async fn ipv4_is_served_where_bindv6only_is_set() -> Result<()> {
    let sidecar = drainer_without_envoy(SECOND)?;
    let port = sidecar.config().settings.port;
    // The setting is that of a network namespace.
    let script = format!(
        r#"ip link set lo up && command -v curl > /dev/null && echo 1 > /proc/sys/net/ipv6/bindv6only || exit 77
        "$@" >&2 & trap 'kill $!' EXIT
        curl --silent --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:{port}/drained/x"#
    );
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script, "sh"])
        .arg(binaries::drainer()?)
        .args(sidecar.serve_args())
        .output();
    let output = timeout(TIMEOUT, output).await??;
    let (response, log) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || log.starts_with("unshare: ") {
        println!("skipped: no network namespace of its own: {log}");
        return Ok(());
    }
    let response = String::from_utf8_lossy(&response);
    assert!(response.ends_with("wrong token\n"), "{response}{log}");
    Ok(())
}

#[tokio::test]
async fn drain_command_waits_briefly_for_restarted_drainer() -> Result<()> {
    let sidecar = drainer_without_envoy(SECOND)?;
    let waiting = sidecar.run("drain", &["drain"])?;
    let without_drainer = drainer_without_envoy(SECOND)?;
    let start = Instant::now();
    let failing = without_drainer.run("drain", &["drain"])?;
    sleep(SECOND / 2).await;
    let drainer = sidecar.start().await?;
    let _envoy = drainer.call_envoy_hook();
    let status = waiting.wait_within(TIMEOUT).await?;
    assert!(status.success(), "{status}");
    // Without a drainer, the command fails with an error: a failed hook lets the kubelet send SIGTERM.
    let status = failing.wait_within(TIMEOUT).await?;
    assert_eq!(status.code(), Some(1));
    assert!(start.elapsed() >= 3 * SECOND);
    let log = failing.log();
    let error = "drainer: cannot call the drainer at port ";
    assert!(log.starts_with(error), "{log}");
    Ok(())
}

#[tokio::test]
async fn status_command_prints_text_and_json() -> Result<()> {
    let drainer = drainer_without_envoy(60 * SECOND)?.start().await?;
    let json = r#"{"phase":{"name":"standby"},"#;
    for (args, start) in [
        (&["status"][..], "phase        standby"),
        (&["status", "-o", "json"], json),
    ] {
        let status = drainer.builder().run("status", args)?;
        assert!(status.wait_within(TIMEOUT).await?.success());
        let log = status.log();
        let mut lines = log.lines();
        assert!(lines.any(|line| line.starts_with(start)), "{log}");
    }
    Ok(())
}
