//! Tests of the support code: the load generator counts what servers did to its requests.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::Result;
use tests::envoy::{Envoy, envoy, envoy_with_upstream};
use tests::listener::{DIRECT_PATH, http, http3, tcp};
use tests::load::FailureKind::{self, BadResponse, CutInFlight, CutOnReused, Refused, TimedOut};
use tests::load::{EchoLoad, Report, load};
use tests::process::Signal;
use tests::service::{Endpoint, Probe, Service};
use tests::timing::SECOND;
use tests::until::wait_until;
use tests::upstream::{Upstream, accept};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

const ECHO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\ntwo cups and a saucer";

/// What a scripted server does with a request.
#[derive(Debug, Clone, Copy)]
enum ServerAction {
    Respond(&'static str),
    RespondAndClose(&'static str),
    RespondAfter(Duration, &'static str),
    Close,
    NoResponse,
}

trait Script: Fn(usize) -> ServerAction + Copy + Send + 'static {}
impl<F: Fn(usize) -> ServerAction + Copy + Send + 'static> Script for F {}

/// A server that runs a script for the nth request of each connection, and counts the POSTs of each
/// connection. Probes are answered and not counted.
struct ScriptedServer {
    service: Arc<Service>,
    posts: Arc<Mutex<Vec<usize>>>,
    tasks: JoinSet<()>,
}

impl ScriptedServer {
    async fn start(script: impl Script) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let posts = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let counts = Arc::clone(&posts);
        tasks.spawn(accept(listener, move |stream| {
            serve(stream, script, Arc::clone(&counts))
        }));
        let service = Arc::new(Service::new(Duration::ZERO));
        service.add(
            Endpoint {
                name: "scripted".into(),
                http: address,
                tcp: Some(address),
            },
            Probe {
                path: "/ready".into(),
                period: 10 * SECOND,
                timeout: SECOND,
                failure_threshold: 1,
            },
        );
        service.wait_until_ready(1, 5 * SECOND).await?;
        Ok(Self {
            service,
            posts,
            tasks,
        })
    }

    /// The number of POSTs on each connection.
    fn posts(&self) -> Vec<usize> {
        lock(&self.posts).clone()
    }

    /// Runs a load for a second, and asserts that each request that it counted arrived once.
    async fn run(&self, load: EchoLoad) -> Report {
        let running = load.start(&self.service);
        sleep(SECOND).await;
        let report = running.stop().await;
        let received: usize = self.posts().iter().sum();
        assert_eq!(received as u64, report.sent(), "{report}");
        let finished: u64 = report.kinds.iter().map(|kind| kind.answered).sum();
        assert_eq!(finished + report.failed(), report.sent(), "{report}");
        report
    }
}

/// Locks the counts. Poisoning is a bug: a test does not continue after a panic.
fn lock(posts: &Mutex<Vec<usize>>) -> MutexGuard<'_, Vec<usize>> {
    posts.lock().expect("the lock is held for an addition only")
}

async fn serve(stream: TcpStream, script: impl Script, posts: Arc<Mutex<Vec<usize>>>) {
    let mut stream = BufReader::new(stream);
    let mut connection = None;
    for nth in 0.. {
        let Some(head) = head(&mut stream).await else {
            return;
        };
        if head.starts_with("GET /ready ") {
            let _ = stream.write_all(ECHO.as_bytes()).await;
            return;
        }
        if head.starts_with("POST ") {
            let mut body = [0; 21];
            if stream.read_exact(&mut body).await.is_err() {
                return;
            }
        }
        {
            let mut posts = lock(&posts);
            let index = *connection.get_or_insert_with(|| {
                posts.push(0);
                posts.len() - 1
            });
            posts[index] += 1;
        }
        let is_open = match script(nth) {
            ServerAction::Respond(response) => stream.write_all(response.as_bytes()).await.is_ok(),
            ServerAction::RespondAndClose(response) => {
                let _ = stream.write_all(response.as_bytes()).await;
                false
            }
            ServerAction::RespondAfter(pause, response) => {
                sleep(pause).await;
                stream.write_all(response.as_bytes()).await.is_ok()
            }
            ServerAction::Close => false,
            ServerAction::NoResponse => {
                sleep(60 * SECOND).await;
                false
            }
        };
        if !is_open {
            return;
        }
    }
}

/// Reads the lines up to the empty one. Returns `None` at the end of the connection.
async fn head(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// Asserts that so many requests failed with this kind, and none with another.
fn assert_failed(report: &Report, kind: FailureKind, count: u64) {
    assert_eq!(report.failed_of_kind(kind), count, "{kind}\n{report}");
    assert_eq!(report.failed(), count, "{report}");
}

#[tokio::test]
async fn good_server_fails_no_request() -> Result<()> {
    let server = ScriptedServer::start(|_| ServerAction::Respond(ECHO)).await?;
    let report = server
        .run(load().keep_alive(200.0).connection_per_request(20.0).idle())
        .await;
    assert_eq!(report.failed(), 0, "{report}");
    assert!(report.reached() > 0.95, "{report}");
    // Ten keep-alive connections, one idle, twenty for a request each. Slow responses make for more
    // keep-alive connections, but for far fewer than one per request.
    let connections = server.posts().len() as u64;
    let requests = report.sent();
    assert!(connections >= 30, "{connections} for {requests}");
    assert!(connections * 2 < requests, "{connections} for {requests}");
    Ok(())
}

#[tokio::test]
async fn closed_port_counts_as_refused() -> Result<()> {
    let empty_service = Arc::new(Service::new(Duration::ZERO));
    let running = load().connection_per_request(20.0).start(&empty_service);
    sleep(SECOND / 2).await;
    let report = running.stop().await;
    assert_failed(&report, Refused, report.sent());

    let mut server = ScriptedServer::start(|_| ServerAction::Respond(ECHO)).await?;
    server.tasks.shutdown().await;
    let load = load()
        .connection_per_request(20.0)
        .keep_alive(20.0)
        .http2(20.0);
    let running = load.stream(20.0, SECOND).start(&server.service);
    sleep(SECOND / 2).await;
    let report = running.stop().await;
    assert_failed(&report, Refused, report.sent());
    assert!(report.sent() >= 40, "{report}");
    Ok(())
}

#[tokio::test]
async fn close_on_new_connection_is_a_cut_in_flight() -> Result<()> {
    let server = ScriptedServer::start(|_| ServerAction::Close).await?;
    let report = server.run(load().connection_per_request(20.0)).await;
    assert_failed(&report, CutInFlight, report.sent());
    Ok(())
}

#[tokio::test]
async fn close_within_a_response_is_a_cut_in_flight() -> Result<()> {
    for load in [load().connection_per_request(20.0), load().keep_alive(20.0)] {
        let partial = "HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\ntwo cups";
        let server = ScriptedServer::start(move |_| ServerAction::RespondAndClose(partial)).await?;
        let report = server.run(load).await;
        assert_failed(&report, CutInFlight, report.sent());
    }
    Ok(())
}

#[tokio::test]
async fn close_before_second_response_is_a_cut_on_reuse() -> Result<()> {
    let server = ScriptedServer::start(|nth| match nth {
        0 => ServerAction::Respond(ECHO),
        _ => ServerAction::Close,
    })
    .await?;
    let report = server.run(load().keep_alive(100.0)).await;
    let cut: usize = server
        .posts
        .lock()
        .unwrap()
        .iter()
        .map(|posts| posts - 1)
        .sum();
    assert!(cut > 30, "{report}");
    assert_failed(&report, CutOnReused, cut as u64);
    Ok(())
}

#[tokio::test]
async fn connection_closed_while_idle_is_replaced() -> Result<()> {
    let server = ScriptedServer::start(|_| ServerAction::RespondAndClose(ECHO)).await?;
    // The load has a tenth of a second to notice each closed connection.
    let report = server.run(load().keep_alive(100.0)).await;
    assert_eq!(report.failed(), 0, "{report}");
    Ok(())
}

#[tokio::test]
async fn connection_with_close_header_is_not_reused() -> Result<()> {
    let server = ScriptedServer::start(|_| {
        ServerAction::Respond(
            "HTTP/1.1 200 OK\r\nConnection: foo, Close\r\ncontent-length: 21\r\n\r\ntwo cups and a saucer",
        )
    })
    .await?;
    let report = server.run(load().keep_alive(100.0)).await;
    assert_eq!(report.failed(), 0, "{report}");
    assert!(server.posts().iter().all(|posts| *posts == 1));
    Ok(())
}

#[tokio::test]
async fn wrong_status_or_body_is_a_bad_response() -> Result<()> {
    for invalid in [
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 21\r\n\r\ntwo cups and a saucer",
        "HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\nsix cups and a saucer",
    ] {
        let server = ScriptedServer::start(move |_| ServerAction::Respond(invalid)).await?;
        let report = server
            .run(load().keep_alive(20.0).connection_per_request(20.0))
            .await;
        assert_failed(&report, BadResponse, report.sent());
    }
    Ok(())
}

#[tokio::test]
async fn missing_response_is_a_timeout() -> Result<()> {
    let server = ScriptedServer::start(|_| ServerAction::NoResponse).await?;
    let load = load()
        .connection_per_request(20.0)
        .keep_alive(20.0)
        .request_timeout(SECOND / 5);
    let report = server.run(load).await;
    assert_failed(&report, TimedOut, report.sent());
    Ok(())
}

#[tokio::test]
async fn slow_server_does_not_slow_the_load() -> Result<()> {
    let server = ScriptedServer::start(|_| ServerAction::RespondAfter(SECOND * 2, ECHO)).await?;
    let report = server
        .run(load().connection_per_request(50.0).keep_alive(50.0))
        .await;
    assert_eq!(report.failed(), 0, "{report}");
    assert!(report.reached() > 0.95, "{report}");
    Ok(())
}

/// Starts an Envoy and a Service in front of it, and waits until Envoy is ready.
async fn start_envoy_with_service(upstream: &Upstream) -> Result<(Envoy, Arc<Service>)> {
    let envoy = envoy()?
        .upstream(upstream)
        .listener(http("web")?)
        .listener(tcp("stream")?)
        .start()
        .await?;
    let service = Arc::new(Service::new(Duration::ZERO));
    let endpoint = Endpoint {
        name: "envoy".into(),
        http: envoy.address("web"),
        tcp: Some(envoy.address("stream")),
    };
    let probe = Probe {
        path: DIRECT_PATH.into(),
        period: SECOND / 10,
        timeout: SECOND,
        failure_threshold: 100,
    };
    service.add(endpoint, probe);
    service.wait_until_ready(1, 5 * SECOND).await?;
    Ok((envoy, service))
}

#[tokio::test]
async fn goaway_moves_requests_and_fails_none() -> Result<()> {
    let upstream = Upstream::start().await?;
    let (envoy, service) = start_envoy_with_service(&upstream).await?;
    let running = load().http2(200.0).keep_alive(100.0).start(&service);
    sleep(SECOND).await;
    let connections = || envoy.admin().stat("http.web.downstream_cx_total");
    let before = connections().await?;
    envoy.admin().post("/healthcheck/fail").await?;
    wait_until("requests use new connections", 20 * SECOND, || async {
        Ok(connections().await? > before.map(|count| count + 200))
    })
    .await?;
    let report = running.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    Ok(())
}

#[tokio::test]
async fn streams_of_a_killed_envoy_are_cut_in_flight() -> Result<()> {
    for load in [load().http2(50.0), load().stream(50.0, 60 * SECOND)] {
        let upstream = Upstream::start().await?;
        let (envoy, service) = start_envoy_with_service(&upstream).await?;
        let running = load.start(&service);
        sleep(SECOND).await;
        assert_eq!(running.report().failed(), 0, "{}", running.report());
        assert!(service.open_connections("envoy") > 0);
        // Requests sent while Envoy hangs are in flight when it is killed.
        envoy.signal(Signal::STOP);
        sleep(SECOND / 5).await;
        envoy.signal(Signal::KILL);
        sleep(SECOND / 5).await;
        let report = running.stop().await;
        assert!(report.failed_of_kind(CutInFlight) >= 5, "{report}");
        assert!(report.failed_of_kind(Refused) > 5, "{report}");
        let expected = report.failed_of_kind(CutInFlight) + report.failed_of_kind(Refused);
        assert_eq!(report.failed(), expected, "{report}");
        assert_eq!(service.open_connections("envoy"), 0);
    }
    Ok(())
}

#[tokio::test]
async fn http3_requests_to_a_killed_envoy_time_out() -> Result<()> {
    let envoy = envoy_with_upstream().await?.listener(http3("web")?);
    let envoy = envoy.start().await?;
    let load = load().http3(50.0).request_timeout(SECOND);
    let running = load.start_at(envoy.address("web"));
    sleep(SECOND).await;
    assert_eq!(running.report().failed(), 0, "{}", running.report());
    envoy.signal(Signal::KILL);
    sleep(SECOND / 2).await;
    let report = running.stop().await;
    // UDP gives no notice of the end of a process.
    assert!(report.failed_of_kind(TimedOut) >= 5, "{report}");
    assert_eq!(report.failed(), report.failed_of_kind(TimedOut), "{report}");
    Ok(())
}

#[tokio::test]
async fn streams_close_after_their_duration_without_failure() -> Result<()> {
    let upstream = Upstream::start().await?;
    let (envoy, service) = start_envoy_with_service(&upstream).await?;
    let running = load().stream(50.0, SECOND / 4).start(&service);
    sleep(SECOND).await;
    let report = running.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    let streams = envoy.admin().stat("tcp.stream.downstream_cx_total").await?;
    assert!(streams >= Some(3), "{streams:?}");
    Ok(())
}
