//! The drainer in the place of Envoy Gateway's shutdown manager, with its command lines, ports and paths.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use drainer::AdminAddress;
use tests::binaries;
use tests::envoy::envoy;
use tests::http::Client;
use tests::listener::http;
use tests::port::Port;
use tests::process::{Process, Signal};
use tests::raw_connection::RawConnection;
use tests::timing::{SECOND, TIMEOUT, assert_took};
use tests::until::wait_until;
use tokio::process::Command;
use tokio::time::Instant;

fn manager(program: &Path, args: &str, log: &Path) -> Result<Process> {
    let mut command = Command::new(program);
    command.args(args.split(' ')).env_clear();
    Process::start(args, command, log)
}

#[tokio::test]
async fn drain_needs_both_hooks_and_takes_the_flags_of_the_own_one() -> Result<()> {
    let claim = |number| Port::claim(number).context("another test has the port");
    let (admin, port) = (claim(19000)?, claim(19002)?);
    let envoy = envoy()?.listener(http("web")?).admin_port(admin);
    let envoy = envoy.start().await?;
    let dir = tempfile::tempdir()?;
    let (program, log) = (dir.path().join("envoy-gateway"), dir.path().join("log"));
    symlink(binaries::drainer()?, &program)?;
    let serve = "envoy shutdown-manager --ready-timeout=610s";
    let drainer = manager(&program, serve, &log)?;
    let client = Client::new(AdminAddress::Tcp(([127, 0, 0, 1], port.number()).into()));
    let client = client.with_timeout(TIMEOUT);
    let healthy = || async {
        Ok(client
            .get("/healthz")
            .await
            .is_ok_and(|it| it.status == 200))
    };
    wait_until("the manager is healthy", TIMEOUT, healthy).await?;

    // Any client can call Envoy's hook.
    let called_at = Instant::now();
    assert_eq!(client.get("/shutdown/ready").await?.status, 200);
    assert_took(called_at.elapsed(), 10 * SECOND);
    assert_eq!(envoy.admin().state().await?, "LIVE");

    let _connection = RawConnection::open_idle(envoy.address("web")).await?;
    let hook = "envoy shutdown --drain-timeout=5s --min-drain-duration 1s --new=1";
    let hook = manager(&program, hook, &dir.path().join("hook"))?;
    let called_at = Instant::now();
    assert_eq!(client.get("/shutdown/ready").await?.status, 200);
    assert_took(called_at.elapsed(), 5 * SECOND);
    assert!(hook.wait_within(TIMEOUT).await?.success());
    assert_eq!(envoy.admin().state().await?, "DRAINING");
    drainer.signal(Signal::TERM);
    assert!(drainer.wait_within(TIMEOUT).await?.success());
    assert!(drainer.log().contains("invalid flag `--new`: unknown"));
    Ok(())
}
