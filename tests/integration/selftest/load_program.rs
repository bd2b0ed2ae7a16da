//! Tests of the support code: `envoy-drainer load` reports what a real Envoy did to its requests.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use ::load::job::{JobLine, LoadJob};
use anyhow::{Context, Result, bail};
use tests::binaries;
use tests::envoy::{envoy_with_upstream, web_envoy};
use tests::envoy_versions::newest;
use tests::http::Client;
use tests::listener::{http, http3};
use tests::load::FailureKind::{CutInFlight, Refused};
use tests::load::{EchoLoad, Report, load};
use tests::outbound_report::OutboundReport;
use tests::port::Port;
use tests::process::Signal;
use tests::timing::{SECOND, TIMEOUT};
use tests::until::wait_until;
use tests::upstream::Upstream;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Starts the program with this load of a target, until SIGTERM if there is no duration.
fn start(load: EchoLoad, target: SocketAddr, duration: Option<Duration>) -> Result<Child> {
    let job = LoadJob {
        load: load.into_load(),
        connect_to: Some(target.into()),
        duration,
        skips_failing: false,
    };
    Command::new(binaries::envoy_drainer()?)
        .arg("load")
        .arg(serde_json::to_string(&job)?)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting the load")
}

/// Sends SIGTERM to the program.
fn terminate(program: &Child) -> Result<()> {
    let pid = program.id().and_then(|pid| pid.try_into().ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.context("the program has exited")?, Signal::TERM)?;
    Ok(())
}

/// Returns the report, which is the last line.
async fn report(load: Child) -> Result<Report> {
    let output = timeout(TIMEOUT, load.wait_with_output()).await??;
    assert!(output.status.success(), "{}", output.status);
    let last = output.stdout.trim_ascii_end().rsplit(|byte| *byte == b'\n');
    match serde_json::from_slice(last.take(1).next().unwrap_or_default())? {
        JobLine::Ended(report) => Ok(report),
        line => bail!("{line:?} is no report"),
    }
}

#[tokio::test]
async fn every_kind_of_client_reaches_its_rate_once_the_target_responds() -> Result<()> {
    let tcp = load().keep_alive(100.0).connection_per_request(20.0);
    let tcp = tcp.slow(8.0, 3 * SECOND / 10).http2(50.0);
    let of_tcp = "keep-alive | one connection per request | 0.3 s responses | HTTP/2";
    // Without a TCP listener.
    let quic = load().http3(50.0).slow_http3(10.0, 3 * SECOND / 10);
    let of_quic = "HTTP/3 | HTTP/3, 0.3 s responses";
    for (load, listener, names) in [(tcp, http("web")?, of_tcp), (quic, http3("web")?, of_quic)] {
        let envoy = envoy_with_upstream().await?.listener(listener);
        let load = start(load, envoy.address("web"), Some(2 * SECOND))?;
        sleep(SECOND / 2).await;
        let _envoy = envoy.start().await?;
        let report = report(load).await?;
        let kinds: Vec<_> = report.kinds.iter().map(|kind| &*kind.name).collect();
        assert_eq!(kinds.join(" | "), names);
        assert_eq!(report.failed(), 0, "{report}");
        assert!(report.reached() > 0.95, "{report}");
        assert!(report.elapsed >= 2 * SECOND, "{report}");
    }
    Ok(())
}

#[tokio::test]
async fn report_at_sigterm_shows_a_killed_envoy() -> Result<()> {
    let envoy = web_envoy(&newest()?).await?;
    let load = start(load().slow(20.0, SECOND), envoy.address("web"), None)?;
    sleep(2 * SECOND).await;
    envoy.signal(Signal::KILL);
    sleep(SECOND / 2).await;
    terminate(&load)?;
    let report = report(load).await?;
    assert!(report.failed_of_kind(CutInFlight) >= 10, "{report}");
    assert!(report.failed_of_kind(Refused) >= 5, "{report}");
    let first = &report.kinds[0].details[0];
    assert!(first.at > 0.5, "{report}");
    Ok(())
}

#[tokio::test]
async fn app_finishes_its_requests_after_it_stops_listening() -> Result<()> {
    let upstream = Upstream::start().await?;
    let port = Port::free()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
    let report_file = tempfile::NamedTempFile::new()?;
    let mut app = Command::new(binaries::pod_tools()?)
        .args(["app", &address.to_string(), &upstream.http().to_string()])
        .args(["--takes", "1s", "--report"])
        .arg(report_file.path())
        .kill_on_drop(true)
        .spawn()?;
    let is_listening = || async { Ok(TcpStream::connect(address).await.is_ok()) };
    wait_until("the app listens", TIMEOUT, is_listening).await?;

    let client = Client::from(address);
    let in_flight = tokio::spawn(async move { client.get("/").await });
    sleep(SECOND / 2).await;
    terminate(&app)?;
    wait_until("the app stops listening", SECOND / 4, || async {
        Ok(!is_listening().await?)
    })
    .await?;
    assert_eq!(in_flight.await??.status, 200);
    assert!(timeout(TIMEOUT, app.wait()).await??.success());
    let report = std::fs::read_to_string(report_file.path())?;
    // The second call of that request.
    let expected = OutboundReport {
        sent: 1,
        ..OutboundReport::default()
    };
    assert_eq!(serde_json::from_str::<OutboundReport>(&report)?, expected);
    Ok(())
}
