//! The admission server over real sockets and TLS: responses, limits, eviction, shutdown.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use admission::{InvalidReview, ReviewResponse};
use bytes::Bytes;
use drainer::AdminAddress;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, kx_group};
use serde_json::{Value, json};
use tests::http::Client;
use tests::https::{HttpsClient, inject_request, post_request};
use tests::timing::{TIMEOUT, assert_took};
use tests::webhook::{
    Webhook, admission_response, admit, assert_injected, assert_injects, review, server,
    skipped_review,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;
use webhook::events;
use webhook::server::{Limits, Server};

/// A timeout that tests wait for.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

const MIB: usize = 1 << 20;

const IN_FLIGHT: &str = "envoy_drainer_requests_in_flight";

/// Starts a server with changed limits.
async fn start(change: impl FnOnce(&mut Limits)) -> Webhook {
    let mut limits = Limits::default();
    change(&mut limits);
    Webhook::start(limits).await
}

/// A server with this admission, and the PEM of its CA.
fn server_with_admission<F>(limits: Limits, admission: F) -> (Server, String)
where
    F: Fn(&[u8]) -> Result<ReviewResponse, InvalidReview> + Send + Sync + 'static,
{
    let (usual, authority) = server(limits);
    let admissions = vec![("/inject", Box::new(admission) as _)];
    let server = Server {
        admissions,
        ..usual
    };
    (server, authority)
}

fn closes(response: &Response<Bytes>) -> bool {
    let connection = response.headers().get("connection");
    connection.is_some_and(|value| value == "close")
}

/// Waits until something happens, which is described for the message if it does not.
async fn wait_for<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let happened = timeout(TIMEOUT, happens).await;
    happened.unwrap_or_else(|_| panic!("within {TIMEOUT:?}: {what}"))
}

/// Asserts that the body is one line, as the API server logs it.
fn assert_sentence(response: &Response<Bytes>) {
    let text = std::str::from_utf8(response.body()).unwrap();
    let is_line = text.ends_with('\n') && text.lines().count() == 1;
    assert!(is_line, "{text:?}");
}

/// Sends bytes, and then returns what is received until the server closes the connection. All bytes must be accepted:
/// the API server's client takes a failed write for a failed request, whatever the response.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    let exchange = async {
        let written = stream.write_all(bytes).await;
        written.expect("the server reads it all");
        stream.flush().await.expect("the server reads it all");
        read_until_closed(&mut stream).await
    };
    wait_for("the server closes", exchange).await
}

/// Returns what is received until the connection is closed or reset.
async fn read_until_closed(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The head of a request.
fn request_head(more: &str) -> String {
    format!(
        "POST /inject HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{more}\r\n\r\n"
    )
}

#[tokio::test]
async fn pod_is_injected_over_verified_keep_alive_tls() {
    let server = start(|_| {}).await;
    let mut connection = server.https.connect().await.unwrap();
    for uid in ["first", "second", "third"] {
        assert!(!closes(&assert_injects(&mut connection, uid).await));
    }
    let injected = "envoy_drainer_admissions_total{outcome=\"injected\",code=\"\"}";
    assert_eq!(server.metric(injected).await, Some(3.0));
    assert_eq!(server.metric(IN_FLIGHT).await, Some(0.0));
}

#[tokio::test]
async fn invalid_reviews_are_bad_requests() {
    let server = start(|_| {}).await;
    let mut connection = server.https.connect().await.unwrap();
    let changed = |pointer, value: Value| review("x").with(pointer, value).bytes();
    let other_version = json!("admission.k8s.io/v1beta1");
    let table: [(&str, Vec<u8>); 10] = [
        ("nothing", Vec::new()),
        ("no JSON", b"{".to_vec()),
        ("no text", vec![0, 159, 146, 150]),
        ("half a review", review("x").bytes()[..200].to_vec()),
        ("a list", b"[]".to_vec()),
        ("wrong kind", changed("/kind", json!("Pod"))),
        ("wrong version", changed("/apiVersion", other_version)),
        ("no request", changed("/request", Value::Null)),
        ("empty uid", changed("/request/uid", json!(""))),
        ("no uid", changed("/request/uid", Value::Null)),
    ];
    for (what, body) in table {
        let response = connection.send(inject_request(body)).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{what}");
        assert_sentence(&response);
        assert_injects(&mut connection, "fine").await;
    }
    let rejected = "envoy_drainer_requests_rejected_total{status=\"400\"}";
    assert_eq!(server.metric(rejected).await, Some(10.0));
}

#[tokio::test]
async fn workloads_get_warnings_only() {
    let server = start(|_| {}).await;
    let mut connection = server.https.connect().await.unwrap();
    let pod = json!({
        "metadata": {"annotations": {"envoy-drainer.dev/inject": "maybe"}},
        "spec": {"containers": [{"name": "envoy"}]},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "edge"}, "spec": {"template": pod},
    });
    let review = review("w").with("/request/object", deployment);
    let request = post_request("/workloads", review.bytes());
    let response = connection.send(request).await.unwrap();
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    let warning = body["response"]["warnings"][0].as_str().unwrap();
    let start = "DRN020: its pods will be denied: `envoy-drainer.dev/inject`";
    assert!(warning.starts_with(start), "{warning}");
    let nothing_else = json!({"uid": "w", "allowed": true, "warnings": [warning]});
    assert_eq!(body["response"], nothing_else);
    let warned = "envoy_drainer_admissions_total{outcome=\"warned\",code=\"DRN020\"}";
    assert_eq!(server.metric(warned).await, Some(1.0));
    let garbage = connection.send(post_request("/workloads", "{")).await;
    assert_eq!(garbage.unwrap().status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn other_paths_methods_and_content_types_are_rejected() {
    let server = start(|_| {}).await;
    let mut connection = server.https.connect().await.unwrap();
    let table = "\
POST / application/json | 404
POST /inject/ application/json | 404
GET /readyz application/json | 404
GET /metrics application/json | 404
GET /inject application/json | 405
PUT /inject application/json | 405
POST /inject | 415
POST /inject text/plain | 415
POST /inject application/yaml | 415
POST /inject application/json; charset=utf-8 | 200
POST /inject Application/JSON | 200
POST /inject?timeout=5s application/json | 200";
    for row in table.lines() {
        let (request, wanted) = row.split_once(" | ").unwrap();
        let mut words = request.splitn(3, ' ');
        let builder = Request::builder()
            .method(words.next().unwrap())
            .uri(words.next().unwrap())
            .header("host", "localhost");
        let builder = match words.next() {
            Some(content_type) => builder.header("content-type", content_type),
            None => builder,
        };
        let request = builder.body(Full::from(review("x").bytes())).unwrap();
        let response = connection.send(request).await.unwrap();
        assert_eq!(response.status().as_str(), wanted, "{row}");
    }
}

#[tokio::test]
async fn p384_is_no_key_exchange_group() {
    let server = start(|_| {}).await;
    for (group, wanted) in [
        (kx_group::X25519, true),
        (kx_group::SECP256R1, true),
        (kx_group::SECP384R1, false),
    ] {
        let provider = CryptoProvider {
            kx_groups: vec![group],
            ..ring::default_provider()
        };
        let https = HttpsClient::with_provider(server.address, &server.ca, provider).unwrap();
        let answer = https.inject(review("x").bytes()).await;
        assert_eq!(answer.is_ok(), wanted, "{group:?}: {answer:?}");
    }
}

#[tokio::test]
async fn body_without_content_length_is_rejected() {
    let server = start(|_| {}).await;
    for bytes in [800, 8 * MIB] {
        let mut stream = server.https.connect_tls().await.unwrap();
        let head = request_head("transfer-encoding: chunked");
        stream.write_all(head.as_bytes()).await.unwrap();
        // The answer does not wait for the body.
        let mut answer = [0; 12];
        let read = wait_for("an answer", stream.read_exact(&mut answer)).await;
        read.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 411");
        // The body is not read, but the connection closed.
        let body = async {
            let chunk = format!("{bytes:x}\r\n{}\r\n", " ".repeat(bytes));
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
        };
        wait_for("the server closes", body).await;
        server.assert_admits().await;
    }
    let rejected = "envoy_drainer_requests_rejected_total{status=\"411\"}";
    assert_eq!(server.metric(rejected).await, Some(2.0));
}

/// A request with this much body, padded by spaces.
fn padded(size: usize) -> Vec<u8> {
    let mut body = review("padded").bytes();
    body.resize(size, b' ');
    let head = request_head(&format!("content-length: {size}\r\nconnection: close"));
    [head.as_bytes(), &body].concat()
}

#[tokio::test]
async fn body_limit_is_seven_mebibytes() {
    let server = start(|_| {}).await;
    for (size, wanted) in [
        (7 * MIB, "HTTP/1.1 200 OK\r\n"),
        (7 * MIB + 1, "HTTP/1.1 413 Payload Too Large\r\n"),
        (8 * MIB, "HTTP/1.1 413 Payload Too Large\r\n"),
        (12 * MIB, "HTTP/1.1 413 Payload Too Large\r\n"),
    ] {
        let stream = server.https.connect_tls().await.unwrap();
        let answer = exchange(stream, &padded(size)).await;
        assert!(answer.starts_with(wanted), "{size}: {answer}");
        server.assert_admits().await;
    }
}

#[tokio::test]
async fn slow_heads_and_bodies_time_out_beside_others() {
    let server = start(|limits| {
        limits.head_timeout = SHORT_TIMEOUT;
        limits.body_timeout = SHORT_TIMEOUT;
    })
    .await;
    let head = request_head("content-length: 5000").into_bytes();
    let half_a_body = [head.as_slice(), &review("slow").bytes()].concat();
    for (sent, wanted) in [
        (&head[..40], ""),
        (&head, "HTTP/1.1 408 "),
        (&half_a_body, "HTTP/1.1 408 "),
    ] {
        let started = Instant::now();
        let mut slow = server.https.connect_tls().await.unwrap();
        slow.write_all(sent).await.unwrap();
        let both = async { tokio::join!(read_until_closed(&mut slow), server.assert_admits()).0 };
        let answer = wait_for("the server closes", both).await;
        assert!(answer.starts_with(wanted), "{answer}");
        assert_eq!(answer.is_empty(), wanted.is_empty(), "{answer}");
        assert!(started.elapsed() >= SHORT_TIMEOUT);
    }
}

#[tokio::test]
async fn client_that_reads_slowly_is_disconnected() {
    let limits = Limits {
        write_timeout: SHORT_TIMEOUT,
        ..Limits::default()
    };
    let (server, authority) = server_with_admission(limits, |body| {
        let mut answer = admit(body)?;
        // More than the kernel takes on both sides.
        answer.body.resize(8 * MIB, b' ');
        Ok(answer)
    });
    let server = Webhook::run(server, authority).await;
    let review = review("slow").bytes();
    let head = request_head(&format!("content-length: {}", review.len()));
    let mut stream = server.https.connect_tls().await.unwrap();
    let request = [head.as_bytes(), &review].concat();
    stream.write_all(&request).await.unwrap();
    // It never pauses for as long as `SHORT_TIMEOUT`, but would take a minute to read all.
    let mut some = vec![0; 16 << 10];
    let reading = async {
        while stream.read_exact(&mut some).await.is_ok() {
            sleep(SHORT_TIMEOUT / 10).await;
        }
    };
    wait_for("the server resets the slow connection", reading).await;
    let closed = async { while server.metric(OPEN_CONNECTIONS).await != Some(0.0) {} };
    wait_for("its place is free", closed).await;
    server.assert_admits().await;
}

#[tokio::test]
async fn one_byte_records_end_the_connection() {
    let server = start(|limits| {
        // It is not ended for being slow.
        limits.body_timeout = 10 * TIMEOUT;
    })
    .await;
    let mut stream = server.https.connect_tls().await.unwrap();
    let head = request_head(&format!("content-length: {MIB}"));
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut sent = 0;
    let refused = async {
        for _ in 0..MIB / 256 {
            for _ in 0..256 {
                stream.get_mut().1.writer().write_all(b" ").unwrap();
            }
            if stream.flush().await.is_err() {
                return;
            }
            sent += 256;
        }
    };
    wait_for("the server reads", refused).await;
    assert!(sent < MIB, "the server read {sent} bytes");
    server.assert_admits().await;
}

#[tokio::test]
async fn connection_may_wait_for_its_first_request() {
    let server = start(|limits| {
        limits.handshake_timeout = SHORT_TIMEOUT;
        limits.plain_http_head_timeout = SHORT_TIMEOUT;
        limits.max_connections = 2;
    })
    .await;
    let mut spare = server.https.connect().await.unwrap();
    sleep(2 * SHORT_TIMEOUT).await;
    assert_injects(&mut spare, "first").await;
}

/// An address of this machine that is not where other clients of a test call from.
fn source_address(n: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 3, n).into()
}

#[tokio::test]
async fn evicted_connection_answers_its_request_or_its_first_one() {
    let server = start(|limits| limits.max_connections = 1).await;
    let (mut in_flight, rest) = send_half(&server).await;
    let mut first = server.https.connect().await.unwrap();
    in_flight.write_all(&rest).await.unwrap();
    let answer = read_until_closed(&mut in_flight).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("connection: close"));

    let mut idle = server.https.connect().await.unwrap();
    assert!(closes(&assert_injects(&mut first, "first").await));

    assert_injects(&mut idle, "x").await;
    let _new = server.https.connect().await.unwrap();
    wait_for("the idle connection is closed", idle.wait_until_closed()).await;
    assert_eq!(evicted_connections(&server, "in_flight").await, Some(1.0));
    assert_eq!(evicted_connections(&server, "idle").await, Some(2.0));
}

#[tokio::test]
async fn one_address_cannot_exclude_others() {
    let server = start(|limits| limits.max_connections = 8).await;
    let mut known = server.https.connect().await.unwrap();
    assert_injects(&mut known, "x").await;
    let flood = server.https.clone().with_source(source_address(1));
    let mut connections = Vec::new();
    for _ in 0..20 {
        let mut connection = flood.connect().await.unwrap();
        assert_injects(&mut connection, "x").await;
        connections.push(connection);
    }
    // Beyond the seven slots that no other address needed, each new connection evicted one of its own.
    assert_eq!(evicted_connections(&server, "idle").await, Some(13.0));
    for uid in ["one", "other"] {
        let https = server.https.clone().with_source(source_address(2));
        let answer = https.inject(review(uid).bytes()).await;
        assert_injected(&answer.unwrap(), uid);
    }
    assert_injects(&mut known, "again").await;
    let full = "envoy_drainer_connections_full_seconds_total{port=\"webhook\"}";
    assert!(server.metric(full).await.is_some());
}

const OPEN_CONNECTIONS: &str = "envoy_drainer_connections{port=\"webhook\"}";

/// How many connections made room, for this reason.
async fn evicted_connections(server: &Webhook, reason: &str) -> Option<f64> {
    let name = "envoy_drainer_connections_evicted_total";
    let name = format!("{name}{{port=\"webhook\",reason=\"{reason}\"}}");
    server.metric(&name).await
}

#[tokio::test]
async fn endless_head_is_rejected() {
    let server = start(|_| {}).await;
    let endless = request_head(&format!("x-long: {}", "x".repeat(MIB)));
    let stream = server.https.connect_tls().await.unwrap();
    let answer = exchange(stream, endless.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    server.assert_admits().await;
}

#[tokio::test]
async fn clients_without_tls_are_rejected() {
    let server = start(|limits| limits.handshake_timeout = SHORT_TIMEOUT).await;
    let connect = || async { TcpStream::connect(server.address).await.unwrap() };

    // A TLS record with no handshake in it, a record cut short, bytes that are nothing, and HTTP without TLS.
    let record = b"\x16\x03\x01\x00\x04\xff\xff\xff\xff";
    let http = request_head("connection: close");
    for garbage in [
        &record[..],
        b"\x16\x03\x01\x40\x00\x01",
        &[0; 64],
        http.as_bytes(),
    ] {
        let answer = exchange(connect().await, garbage).await;
        assert!(!answer.contains("HTTP"), "{answer}");
        server.assert_admits().await;
    }

    let started = Instant::now();
    let mut silent = connect().await;
    let both = async { tokio::join!(read_until_closed(&mut silent), server.assert_admits()).0 };
    assert_eq!(wait_for("the silent connection is closed", both).await, "");
    assert!(started.elapsed() >= SHORT_TIMEOUT);
    let failed = "envoy_drainer_tls_handshakes_failed_total";
    assert_eq!(server.metric(failed).await, Some(5.0));
}

#[tokio::test]
async fn old_connection_is_closed_by_its_next_response() {
    let server = start(|limits| limits.max_connection_age = 3 * SHORT_TIMEOUT).await;
    let mut connection = server.https.connect().await.unwrap();
    assert!(!closes(&assert_injects(&mut connection, "x").await));
    sleep(3 * SHORT_TIMEOUT).await;
    assert!(closes(&assert_injects(&mut connection, "x").await));
    wait_for("it is closed", connection.wait_until_closed()).await;
}

#[tokio::test]
async fn idle_connection_times_out() {
    let server = start(|limits| limits.head_timeout = SHORT_TIMEOUT).await;
    let mut connection = server.https.connect().await.unwrap();
    assert_injects(&mut connection, "x").await;
    let started = Instant::now();
    wait_for("the connection is closed", connection.wait_until_closed()).await;
    assert!(started.elapsed() >= SHORT_TIMEOUT / 2);
}

#[tokio::test]
async fn probes_and_metrics_have_their_own_ports() {
    let server = start(|_| {}).await;
    for (client, path, wanted) in [
        (&server.health, "/healthz", StatusCode::OK),
        (&server.health, "/readyz", StatusCode::OK),
        (&server.health, "/metrics", StatusCode::NOT_FOUND),
        (&server.health, "/inject", StatusCode::NOT_FOUND),
        (&server.metrics, "/metrics", StatusCode::OK),
        (&server.metrics, "/readyz", StatusCode::NOT_FOUND),
    ] {
        let answer = client.get(path).await.unwrap();
        assert_eq!(answer.status, wanted, "{path}");
    }
}

#[tokio::test]
async fn metrics_are_open_metrics_with_those_of_the_process() {
    let server = Webhook::start(Limits::default()).await;
    let stream = TcpStream::connect(plain_address(&server.metrics)).await;
    let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";
    let answer = exchange(stream.unwrap(), request).await;
    for text in [
        "\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n",
        "\n# TYPE envoy_drainer_tls_handshakes_failed counter\n",
        "\nprocess_cpu_seconds_total ",
        "\nprocess_open_fds ",
        "\nprocess_resident_memory_bytes ",
        "\nprocess_start_time_seconds ",
        "\n# EOF\n",
    ] {
        assert!(answer.contains(text), "{text} in {answer}");
    }
}

fn plain_address(client: &Client) -> SocketAddr {
    let AdminAddress::Tcp(address) = client.address() else {
        unreachable!("it is TCP");
    };
    *address
}

#[tokio::test]
async fn plain_connection_serves_one_request_at_once() {
    let server = start(|_| {}).await;
    for (client, path) in [(&server.health, "/healthz"), (&server.metrics, "/metrics")] {
        let stream = TcpStream::connect(plain_address(client)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        let answer = exchange(stream, request.as_bytes()).await.to_lowercase();
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        for sent in [&b""[..], b"GET /heal"] {
            let started = Instant::now();
            let mut slow = TcpStream::connect(plain_address(client)).await.unwrap();
            slow.write_all(sent).await.unwrap();
            wait_for(path, read_until_closed(&mut slow)).await;
            assert_took(started.elapsed(), Limits::default().plain_http_head_timeout);
        }
    }
}

#[tokio::test]
async fn probes_are_answered_beside_a_flood() {
    let server = start(|limits| {
        // None goes by itself.
        limits.plain_http_head_timeout = 10 * TIMEOUT;
        limits.max_plain_http_connections = 8;
    })
    .await;
    let mut flood = Vec::new();
    for _ in 0..20 {
        let stream = TcpStream::connect(plain_address(&server.health)).await;
        flood.push(stream.unwrap());
        let probe = server.health.get("/readyz").await.unwrap();
        assert_eq!(probe.status, StatusCode::OK);
    }
    let first = wait_for("the first is closed", read_until_closed(&mut flood[0]));
    assert_eq!(first.await, "");
}

#[tokio::test]
async fn busy_admission_thread_fails_readiness_only() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let (server, authority) = server_with_admission(Limits::default(), move |body| {
        let _ = released.lock().unwrap().recv();
        admit(body)
    });
    // A thread of its own, as the program has it; this one would wait with it.
    let (started, clients) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let webhook = Webhook::run(server, authority).await;
            let clients = (webhook.https.clone(), webhook.health.clone());
            started.send(clients).unwrap();
            let _ = ended.await;
        });
    });
    let (https, health) = clients.await.unwrap();
    let call = tokio::spawn(async move { https.inject(review("x").bytes()).await });
    let wait_for = async |wanted| {
        let reached = async {
            while health.get("/readyz").await.unwrap().status != wanted {
                let alive = health.get("/healthz").await.unwrap();
                assert_eq!(alive.status, StatusCode::OK);
                sleep(Duration::from_millis(50)).await;
            }
        };
        wait_for("the status changes", reached).await;
    };
    wait_for(StatusCode::SERVICE_UNAVAILABLE).await;
    release.send(()).unwrap();
    wait_for(StatusCode::OK).await;
    assert_injected(&call.await.unwrap().unwrap(), "x");
    end.send(()).unwrap();
    thread.join().unwrap();
}

/// A request whose head and half of whose body were sent, and the half that was not.
async fn send_half(server: &Webhook) -> (TlsStream<TcpStream>, Vec<u8>) {
    let review = review("slow").bytes();
    let (half, rest) = review.split_at(review.len() / 2);
    let head = request_head(&format!("content-length: {}", review.len()));
    let mut stream = server.https.connect_tls().await.unwrap();
    let sent = [head.as_bytes(), half].concat();
    stream.write_all(&sent).await.unwrap();
    let in_flight = async {
        while server.metric(IN_FLIGHT).await != Some(1.0) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let counted = timeout(TIMEOUT, in_flight).await;
    counted.expect("it is in flight");
    (stream, rest.to_vec())
}

#[tokio::test]
async fn shutdown_waits_for_requests_in_flight() {
    let mut server = start(|limits| {
        limits.shutdown_delay = SHORT_TIMEOUT * 3;
        limits.body_timeout = TIMEOUT;
        limits.shutdown_grace = TIMEOUT;
    })
    .await;
    let mut busy = server.https.connect().await.unwrap();
    assert_injects(&mut busy, "x").await;
    let mut idle = server.https.connect().await.unwrap();
    let (mut slow, rest) = send_half(&server).await;

    // On shutdown, it is not ready and keeps serving.
    server.stop();
    let not_ready =
        async { while server.health.get("/readyz").await.unwrap().status == StatusCode::OK {} };
    wait_for("it is not ready", not_ready).await;
    assert!(!idle.is_closed());
    assert!(closes(&assert_injects(&mut busy, "x").await));
    let response = server.inject("late").await;
    assert_injected(&response, "late");
    assert!(closes(&response));

    // After the delay new connections are refused. An idle one is left to the client, which might be
    // sending: it is answered, and closed by that.
    let refused = async { while server.https.connect_tls().await.is_ok() {} };
    wait_for("no new connection", refused).await;
    assert!(closes(&assert_injects(&mut idle, "idle").await));

    // What is in flight is answered, and only then does the server end.
    assert!(!server.task.is_finished());
    slow.write_all(&rest).await.unwrap();
    let answer = wait_for("an answer", read_until_closed(&mut slow)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    wait_for("the server ends", &mut server.task).await.unwrap();
}

#[tokio::test]
async fn shutdown_is_bounded_in_time() {
    let mut server = start(|limits| {
        limits.shutdown_delay = Duration::ZERO;
        limits.head_timeout = SHORT_TIMEOUT;
        limits.body_timeout = TIMEOUT * 2;
        limits.shutdown_grace = SHORT_TIMEOUT;
    })
    .await;
    let (mut slow, _) = send_half(&server).await;
    let started = Instant::now();
    server.stop();
    let ended = wait_for("the server ends after its grace", &mut server.task).await;
    ended.unwrap();
    assert!(started.elapsed() >= SHORT_TIMEOUT * 2);
    let answer = wait_for("the slow request is cut", read_until_closed(&mut slow)).await;
    assert_eq!(answer, "");
}

#[tokio::test]
async fn full_event_queue_delays_no_admission() {
    let (mut server, ca) = server(Limits::default());
    let metrics = events::Metrics::register(&mut server.registry);
    let (sender, mut receiver) = events::queue(1, &metrics);
    server.events = Some(sender);
    let server = Webhook::run(server, ca).await;
    let skipped = skipped_review("shop", "2");
    let dropped = "envoy_drainer_events_dropped_total";
    for already in [0.0, 0.0, 1.0, 2.0] {
        assert_eq!(server.metric(dropped).await, Some(already));
        let answer = server.https.inject(skipped.bytes());
        let answer = wait_for("at once", answer).await.unwrap();
        assert_eq!(admission_response(&answer)["allowed"], true);
    }
    server.assert_admits().await;
    assert_eq!(receiver.recv().await.unwrap().owner.name, "edge-7f");
    // Without a receiver, the server keeps serving too.
    drop(receiver);
    let answer = server.https.inject(skipped.bytes()).await;
    assert_eq!(admission_response(&answer.unwrap())["allowed"], true);
    assert_eq!(server.metric(dropped).await, Some(4.0));
}

#[tokio::test]
async fn panic_costs_only_its_connection() {
    let (server, authority) = server_with_admission(Limits::default(), |body| {
        assert!(!body.starts_with(b"panic"));
        admit(body)
    });
    let server = Webhook::run(server, authority).await;
    let mut other = server.https.connect().await.unwrap();
    for _ in 0..3 {
        let mut connection = server.https.connect().await.unwrap();
        let cut = timeout(TIMEOUT, connection.send(inject_request("panic")));
        cut.await.expect("in time").unwrap_err();
        assert_injects(&mut other, "fine").await;
        server.assert_admits().await;
    }
    assert_eq!(server.metric(IN_FLIGHT).await, Some(0.0));
}
