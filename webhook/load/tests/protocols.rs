//! Each protocol against a real server in this process: what is answered, and what a cut looks like.

#![expect(
    clippy::unwrap_used,
    reason = "tests may panic, and so may their helpers"
)]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use load::{ClientKind, Clients, FailureKind, Load, Report, RequestOptions, RunningLoad};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// A server on a free port, which stops when it is dropped.
struct Server {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

// === impl Server ===

impl Server {
    async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
            }
        });
        Self {
            address,
            _tasks: tasks,
        }
    }

    /// Starts clients with 50 requests per second.
    fn start_load(&self, kind: ClientKind, scheme: &str, path: &str) -> RunningLoad {
        let url = format!("{scheme}://{}{path}", self.address);
        let load = Load {
            requests: RequestOptions::default(),
            clients: vec![Clients {
                name: "test".to_owned(),
                kind,
                url: url.parse().unwrap(),
                rate: 50.0,
            }],
            request_timeout: Duration::from_secs(5),
        };
        load.start(None)
    }

    /// Sends 50 requests per second for a second.
    async fn load(&self, kind: ClientKind, scheme: &str, path: &str) -> Report {
        let running = self.start_load(kind, scheme, path);
        sleep(Duration::from_secs(1)).await;
        let report = running.stop().await;
        assert!(report.sent() >= 45, "{report}");
        report
    }
}

/// Accepts TLS with this protocol (ALPN), for a certificate that no client trusts.
fn acceptor(protocol: &[u8]) -> TlsAcceptor {
    let generated = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(generated.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![generated.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Answers calls of gRPC with the status that the method's name is.
async fn answer_grpc(
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    assert_eq!(request.headers()["content-type"], "application/grpc");
    assert_eq!(request.headers()["te"], "trailers");
    let status = request
        .uri()
        .path()
        .trim_start_matches("/test.Test/")
        .to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(*body, [0; 5], "an empty message");
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_str(&status).unwrap());
    let body = Full::new(body).with_trailers(async { Some(Ok(trailers)) });
    Ok(Response::new(body))
}

#[tokio::test]
async fn grpc_over_tls_wants_the_status_ok() {
    let tls = acceptor(b"h2");
    let server = Server::start(move |stream| {
        let tls = tls.clone();
        async move {
            let stream = TokioIo::new(tls.accept(stream).await.unwrap());
            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // The client closes the connection.
            let _ = http2
                .serve_connection(stream, service_fn(answer_grpc))
                .await;
        }
    })
    .await;
    let report = server.load(ClientKind::Grpc, "https", "/test.Test/0").await;
    assert_eq!(report.failed(), 0, "{report}");
    // UNAVAILABLE: what a proxy answers without a backend.
    let report = server
        .load(ClientKind::Grpc, "https", "/test.Test/14")
        .await;
    assert_eq!(
        report.failed_of_kind(FailureKind::BadResponse),
        report.sent(),
        "{report}"
    );
    let detail = &report.kinds[0].details[0].failure.detail;
    assert!(detail.contains("14"), "{detail}");
}

#[tokio::test]
async fn http1_over_tls_offers_no_http2() {
    let tls = acceptor(b"http/1.1");
    let server = Server::start(move |stream| {
        let tls = tls.clone();
        async move {
            let stream = TokioIo::new(tls.accept(stream).await.unwrap());
            let answer = async |request: Request<Incoming>| {
                assert!(
                    request.headers()["host"]
                        .to_str()
                        .unwrap()
                        .starts_with("127.0.0.1:")
                );
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"tea"))))
            };
            let http1 = hyper::server::conn::http1::Builder::new();
            let _ = http1.serve_connection(stream, service_fn(answer)).await;
        }
    })
    .await;
    for kind in [ClientKind::KeepAlive, ClientKind::ConnectionPerRequest] {
        let report = server.load(kind, "https", "/").await;
        assert_eq!(report.failed(), 0, "{report}");
    }
    // The server speaks no HTTP/2, and says so in the handshake.
    let report = server.load(ClientKind::Http2, "https", "/").await;
    assert_eq!(
        report.failed_of_kind(FailureKind::Refused),
        report.sent(),
        "{report}"
    );
}

/// Answers a request. Returns false at the end of the connection.
async fn answer(stream: &mut BufReader<TcpStream>) -> bool {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap() == 0 {
            return false;
        }
    }
    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ntea";
    stream.write_all(response).await.unwrap();
    true
}

#[tokio::test]
async fn idle_connections_are_opened_anew_once_the_server_closes_them() {
    // The requests of each connection, and the number of open connections.
    let requests = Arc::new(Mutex::new(Vec::new()));
    let open = Arc::new(());
    let (of_server, is_open) = (Arc::clone(&requests), Arc::clone(&open));
    let server = Server::start(move |stream| {
        let (requests, is_open) = (Arc::clone(&of_server), Arc::clone(&is_open));
        async move {
            let index = requests.lock().unwrap().len();
            requests.lock().unwrap().push(0);
            let mut stream = BufReader::new(stream);
            let mut serve = pin!(async {
                while answer(&mut stream).await {
                    requests.lock().unwrap()[index] += 1;
                }
            });
            // Closes the first five.
            let limit = Duration::from_millis(if index < 5 { 700 } else { 60_000 });
            let _ = timeout(limit, &mut serve).await;
            drop(is_open);
        }
    })
    .await;
    let open_connections = || Arc::strong_count(&open) - 2;
    let running = server.start_load(ClientKind::Idle, "http", "/");
    let all_are_replaced = async {
        while running.report().kinds[0].answered < 10 {
            sleep(Duration::from_millis(50)).await;
            assert!(open_connections() <= 5);
        }
    };
    timeout(Duration::from_secs(20), all_are_replaced)
        .await
        .unwrap();
    // No other request follows.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(open_connections(), 5);
    let report = running.stop().await;
    assert_eq!((report.sent(), report.failed()), (10, 0), "{report}");
    assert_eq!(*requests.lock().unwrap(), [1; 10]);
    // The client closes its connections.
    let all_are_closed = async {
        while open_connections() > 0 {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(20), all_are_closed)
        .await
        .unwrap();
}

#[tokio::test]
async fn idle_client_that_is_refused_tries_no_more_than_five_times_a_second() {
    let server = Server::start(async |stream| drop(stream)).await;
    let running = server.start_load(ClientKind::Idle, "http", "/");
    sleep(Duration::from_secs(1)).await;
    let report = running.stop().await;
    assert!((2..=6).contains(&report.sent()), "{report}");
    assert_eq!(report.failed(), report.sent(), "{report}");
}

#[tokio::test]
async fn pings_over_websocket_are_answered_until_the_connection_is_cut() {
    let session = Duration::from_millis(300);
    let kind = ClientKind::WebSocket { session };
    let server = Server::start(async |stream| {
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        // Reading answers pings.
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let report = server.load(kind, "http", "/ws").await;
    assert_eq!(report.failed(), 0, "{report}");

    let server = Server::start(async |stream| {
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        for _ in 0..3 {
            socket.next().await;
        }
    })
    .await;
    let report = server.load(kind, "http", "/ws").await;
    let cut = report.failed_of_kind(FailureKind::CutInFlight);
    assert!(cut >= 5 && cut == report.failed(), "{report}");
}

#[tokio::test]
async fn refused_upgrade_is_a_bad_response() {
    let server = Server::start(async |stream| {
        let answer = async |_: Request<Incoming>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        };
        let http1 = hyper::server::conn::http1::Builder::new();
        let _ = http1
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .await;
    })
    .await;
    let session = Duration::from_secs(1);
    let report = server
        .load(ClientKind::WebSocket { session }, "http", "/")
        .await;
    assert_eq!(
        report.failed_of_kind(FailureKind::BadResponse),
        report.sent(),
        "{report}"
    );
}
