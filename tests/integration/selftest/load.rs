//! Tests of the support code: the load generator counts what servers did to its requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use tests::envoy::{Envoy, envoy_with_upstream};
use tests::listener::{http, http3, tcp};
use tests::load::FailureKind::{self, BadResponse, CutInFlight, CutOnReused, Refused, TimedOut};
use tests::load::{EchoLoad, Report, load};
use tests::parallel::run_in_parallel;
use tests::process::Signal;
use tests::service::{Endpoint, Service};
use tests::timing::SECOND;
use tests::upstream::accept;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

const ECHO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\ntwo cups and a saucer";

/// What a scripted server does with a request.
#[derive(Debug, Clone, Copy)]
struct Reply {
    delay: Duration,
    response: &'static str,
    /// Whether the connection is then closed.
    closes: bool,
}

/// The reply to the nth request of a connection.
type Script = fn(usize) -> Reply;

/// A server that counts the POSTs of each connection.
struct ScriptedServer {
    service: Arc<Service>,
    posts: Arc<Mutex<Vec<usize>>>,
    tasks: JoinSet<()>,
}

const fn reply(response: &'static str) -> Reply {
    Reply {
        delay: Duration::ZERO,
        response,
        closes: false,
    }
}

const fn reply_and_close(response: &'static str) -> Reply {
    Reply {
        closes: true,
        ..reply(response)
    }
}

const fn reply_after(delay: Duration) -> Reply {
    Reply {
        delay,
        ..reply(ECHO)
    }
}

impl ScriptedServer {
    async fn start(script: Script) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let posts = Arc::<Mutex<Vec<usize>>>::default();
        let mut tasks = JoinSet::new();
        let counts = Arc::clone(&posts);
        tasks.spawn(accept(listener, move |stream| {
            serve(stream, script, Arc::clone(&counts))
        }));
        let service = Arc::new(Service::new(Duration::ZERO));
        service.add_ready(Endpoint {
            tcp: Some(address),
            ..Endpoint::new("scripted", address)
        });
        Ok(Self {
            service,
            posts,
            tasks,
        })
    }

    /// The number of POSTs on each connection.
    fn posts(&self) -> Vec<usize> {
        self.posts.lock().unwrap().clone()
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

async fn serve(stream: TcpStream, script: Script, posts: Arc<Mutex<Vec<usize>>>) {
    let mut stream = BufReader::new(stream);
    let mut connection = None;
    for nth in 0.. {
        let Some(head) = head(&mut stream).await else {
            return;
        };
        let mut body = [0; 21];
        if head.starts_with("POST ") && stream.read_exact(&mut body).await.is_err() {
            return;
        }
        {
            let mut posts = posts.lock().unwrap();
            let index = *connection.get_or_insert_with(|| {
                posts.push(0);
                posts.len() - 1
            });
            posts[index] += 1;
        }
        let reply = script(nth);
        sleep(reply.delay).await;
        let written = stream.write_all(reply.response.as_bytes()).await;
        if written.is_err() || reply.closes {
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
async fn what_servers_do_is_counted_by_kind() -> Result<()> {
    const PARTIAL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\ntwo cups";
    const UNAVAILABLE: &str =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 21\r\n\r\ntwo cups and a saucer";
    const OTHER_BODY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 21\r\n\r\nsix cups and a saucer";
    let new = || load().connection_per_request(20.0);
    let both = || new().keep_alive(20.0);
    let impatient = both().request_timeout(SECOND / 5);
    // The script, the load, and how all of its requests fail; none if that is `None`.
    let table: [(&str, Script, EchoLoad, Option<FailureKind>); _] = [
        ("close", |_| reply_and_close(""), new(), Some(CutInFlight)),
        (
            "cut",
            |_| reply_and_close(PARTIAL),
            both(),
            Some(CutInFlight),
        ),
        ("status", |_| reply(UNAVAILABLE), both(), Some(BadResponse)),
        ("body", |_| reply(OTHER_BODY), both(), Some(BadResponse)),
        (
            "silence",
            |_| reply_after(60 * SECOND),
            impatient,
            Some(TimedOut),
        ),
        // The load has a tenth of a second to notice each connection that is closed while it is idle.
        (
            "idle",
            |_| reply_and_close(ECHO),
            load().keep_alive(100.0),
            None,
        ),
        // A slow server does not slow the load.
        ("slow", |_| reply_after(2 * SECOND), both(), None),
    ];
    let cases = table.map(|(name, script, load, kind)| {
        let case = async move {
            let report = ScriptedServer::start(script).await?.run(load).await;
            match kind {
                Some(kind) => assert_failed(&report, kind, report.sent()),
                None => {
                    assert_eq!(report.failed(), 0, "{report}");
                    assert!(report.reached() > 0.95, "{report}");
                }
            }
            Ok(())
        };
        (name.to_owned(), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn good_server_fails_no_request() -> Result<()> {
    let server = ScriptedServer::start(|_| reply(ECHO)).await?;
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
    let mut server = ScriptedServer::start(|_| reply(ECHO)).await?;
    server.tasks.shutdown().await;
    let all = load().connection_per_request(20.0).keep_alive(20.0);
    let all = all.http2(20.0).stream(20.0, SECOND);
    let empty_service = Arc::new(Service::new(Duration::ZERO));
    for service in [&empty_service, &server.service] {
        let running = all.clone().start(service);
        sleep(SECOND / 2).await;
        let report = running.stop().await;
        assert_failed(&report, Refused, report.sent());
        assert!(report.sent() >= 40, "{report}");
    }
    Ok(())
}

#[tokio::test]
async fn close_before_second_response_is_a_cut_on_reuse() -> Result<()> {
    let server = ScriptedServer::start(|nth| match nth {
        0 => reply(ECHO),
        _ => reply_and_close(""),
    })
    .await?;
    let report = server.run(load().keep_alive(100.0)).await;
    let cut: usize = server.posts().iter().map(|posts| posts - 1).sum();
    assert!(cut > 30, "{report}");
    assert_failed(&report, CutOnReused, cut as u64);
    Ok(())
}

#[tokio::test]
async fn connection_with_close_header_is_not_reused() -> Result<()> {
    const CLOSES: &str = "HTTP/1.1 200 OK\r\nConnection: foo, Close\r\ncontent-length: 21\r\n\r\ntwo cups and a saucer";
    let server = ScriptedServer::start(|_| reply(CLOSES)).await?;
    let report = server.run(load().keep_alive(100.0)).await;
    assert_eq!(report.failed(), 0, "{report}");
    assert!(server.posts().iter().all(|posts| *posts == 1));
    Ok(())
}

/// Starts an Envoy and a Service in front of it.
async fn start_envoy_with_service() -> Result<(Envoy, Arc<Service>)> {
    let envoy = envoy_with_upstream().await?.listener(http("web")?);
    let envoy = envoy.listener(tcp("stream")?).start().await?;
    let service = Arc::new(Service::new(Duration::ZERO));
    service.add_ready(Endpoint {
        tcp: Some(envoy.address("stream")),
        ..Endpoint::new("envoy", envoy.address("web"))
    });
    Ok((envoy, service))
}

#[tokio::test]
async fn streams_of_a_killed_envoy_are_cut_in_flight() -> Result<()> {
    for load in [load().http2(50.0), load().stream(50.0, 60 * SECOND)] {
        let (envoy, service) = start_envoy_with_service().await?;
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
    let (envoy, service) = start_envoy_with_service().await?;
    let running = load().stream(50.0, SECOND / 4).start(&service);
    sleep(SECOND).await;
    let report = running.stop().await;
    assert_eq!(report.failed(), 0, "{report}");
    let streams = envoy.admin().stat("tcp.stream.downstream_cx_total").await?;
    assert!(streams >= Some(3), "{streams:?}");
    Ok(())
}
