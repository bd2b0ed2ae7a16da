//! The admission server over real sockets and real TLS: what it answers to whom, and that it goes on.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode};
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use tests::authority::{Authority, Mount};
use tests::https::{Https, inject};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;
use webhook::admission::{self, Answer, Defaults, NotAReview};
use webhook::certificates::files::Files;
use webhook::certificates::self_made::SelfMade;
use webhook::certificates::{self, Serving, Source, wall_clock};
use webhook::report::Report;
use webhook::server::{self, Limits, Listeners, MinVersion, Server};

/// More than anything here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);

/// A time-out that is waited for.
const SHORT: Duration = Duration::from_secs(1);

const MIB: usize = 1 << 20;

/// A server in this process.
struct Running {
    https: Https,
    tls: SocketAddr,
    plain: SocketAddr,
    authority: String,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

fn admit(body: &[u8]) -> Result<Answer, NotAReview> {
    admission::answer(body, &Defaults::new("drainer:test", "envoy-drainer"))
}

async fn start(limits: Limits) -> Running {
    start_with(admit, limits, MinVersion::Tls13).await
}

async fn start_with(
    admit: impl Fn(&[u8]) -> Result<Answer, NotAReview> + Send + Sync + 'static,
    limits: Limits,
    tls_min_version: MinVersion,
) -> Running {
    let (self_made, first) = SelfMade::try_new(vec!["localhost".into()], wall_clock()).unwrap();
    let server = Server {
        admit: Box::new(admit),
        serving: Arc::new(Serving::new(first)),
        tls_min_version,
        limits,
        report: Arc::new(Report::new()),
    };
    run(server, self_made.ca_pem()).await
}

async fn run(server: Server, authority: &str) -> Running {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let listeners = Listeners {
        tls: bind().await.unwrap(),
        plain: bind().await.unwrap(),
    };
    let tls = listeners.tls.local_addr().unwrap();
    let plain = listeners.plain.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::spawn(server::run(listeners, server, async {
        let _ = stopped.await;
    }));
    Running {
        https: Https::new(tls, authority).unwrap(),
        tls,
        plain,
        authority: authority.to_owned(),
        stop,
        ended,
    }
}

impl Running {
    /// Admits a pod on a new connection, as a client that did nothing wrong.
    async fn admits(&self) {
        let response = timeout(PATIENCE, self.https.send(inject(review("fine")))).await;
        assert_injected(&response.unwrap().unwrap(), "fine");
    }

    /// Asks the plain port, and returns the whole answer.
    async fn plain(&self, path: &str) -> String {
        let stream = TcpStream::connect(self.plain).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        ask(stream, request.as_bytes()).await
    }

    /// The value of a metric's line.
    async fn metric(&self, line: &str) -> Option<f64> {
        let metrics = self.plain("/metrics").await;
        let found = metrics.lines().find_map(|found| found.strip_prefix(line));
        found.map(|value| value.trim().parse().unwrap())
    }
}

/// A pod that asks for a drainer, and gets one.
fn pod_review(uid: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "namespace": "shop",
            "operation": "CREATE",
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "generateName": "edge-",
                    "annotations": { "envoy-drainer.dev/inject": "true" },
                },
                "spec": {
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{ "name": "envoy", "image": "envoyproxy/envoy:v1.36.2" }],
                },
            },
        },
    })
}

fn review(uid: &str) -> String {
    pod_review(uid).to_string()
}

/// A review with one thing changed.
fn changed(change: impl FnOnce(&mut Value)) -> String {
    let mut review = pod_review("changed");
    change(&mut review);
    review.to_string()
}

fn answer(response: &Response<Bytes>) -> Value {
    assert_eq!(response.status(), StatusCode::OK, "{:?}", response.body());
    assert_eq!(response.headers()["content-type"], "application/json");
    let review: Value = serde_json::from_slice(response.body()).unwrap();
    review["response"].clone()
}

fn assert_injected(response: &Response<Bytes>, uid: &str) {
    let answer = answer(response);
    assert_eq!(answer["uid"], uid);
    assert_eq!(answer["allowed"], true);
    assert_eq!(answer["patchType"], "JSONPatch");
}

fn closes(response: &Response<Bytes>) -> bool {
    response
        .headers()
        .get("connection")
        .is_some_and(|value| value == "close")
}

/// One sentence, as it is read in the API server's log.
fn assert_sentence(response: &Response<Bytes>) {
    let text = std::str::from_utf8(response.body()).unwrap();
    assert!(
        text.ends_with('\n') && text.lines().count() == 1,
        "{text:?}"
    );
}

/// Sends bytes and returns what comes back until the other side closes.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    let asked = async {
        // The server may have closed before it has read all.
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        heard(&mut stream).await
    };
    timeout(PATIENCE, asked).await.expect("the server closes")
}

/// What comes until the other side closes, in whatever way.
async fn heard(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// The head of a request whose body is still to come.
fn head(more: &str) -> String {
    format!(
        "POST /inject HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{more}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_pod_gets_its_drainer_over_verified_tls_and_the_connection_lives_on() {
    let server = start(Limits::default()).await;
    let mut connection = server.https.connect().await.unwrap();
    for uid in ["first", "second", "third"] {
        let response = connection.send(inject(review(uid))).await.unwrap();
        assert_injected(&response, uid);
        assert!(!closes(&response));
    }
    let injected = "envoy_drainer_admissions_total{outcome=\"injected\",code=\"\"}";
    assert_eq!(server.metric(injected).await, Some(3.0));
    assert_eq!(
        server.metric("envoy_drainer_requests_in_flight").await,
        Some(0.0)
    );
}

#[tokio::test]
async fn what_is_no_review_is_a_bad_request_with_a_sentence() {
    let server = start(Limits::default()).await;
    let mut connection = server.https.connect().await.unwrap();
    let table: Vec<(&str, Bytes)> = vec![
        ("nothing", "".into()),
        ("no JSON", "{".into()),
        ("no text", Bytes::from_static(&[0, 159, 146, 150])),
        ("half a review", review("x")[..200].to_owned().into()),
        ("a list", "[]".into()),
        ("wrong kind", changed(|r| r["kind"] = "Pod".into()).into()),
        (
            "wrong version",
            changed(|r| r["apiVersion"] = "admission.k8s.io/v1beta1".into()).into(),
        ),
        ("no request", changed(|r| r["request"] = Value::Null).into()),
        (
            "empty uid",
            changed(|r| r["request"]["uid"] = "".into()).into(),
        ),
        (
            "no uid",
            changed(|r| r["request"]["uid"] = Value::Null).into(),
        ),
    ];
    for (what, body) in table {
        let response = connection.send(inject(body)).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{what}");
        assert_sentence(&response);
        let fine = connection.send(inject(review("fine"))).await.unwrap();
        assert_injected(&fine, "fine");
    }
    let refused = "envoy_drainer_requests_refused_total{status=\"400\"}";
    assert_eq!(server.metric(refused).await, Some(10.0));
}

#[tokio::test]
async fn what_is_not_the_creation_of_a_pod_is_allowed_untouched() {
    let server = start(Limits::default()).await;
    let mut connection = server.https.connect().await.unwrap();
    for body in [
        changed(|r| r["request"]["operation"] = "PATCH".into()),
        changed(|r| r["request"]["operation"] = "".into()),
        changed(|r| r["request"]["operation"] = "DELETE".into()),
        changed(|r| r["request"]["kind"]["kind"] = "Service".into()),
        changed(|r| r["request"]["subResource"] = "binding".into()),
        changed(|r| r["request"]["object"] = Value::Null),
    ] {
        let response = connection.send(inject(body.clone())).await.unwrap();
        let wanted = json!({ "uid": "changed", "allowed": true });
        assert_eq!(answer(&response), wanted, "{body}");
    }
}

#[tokio::test]
async fn other_paths_methods_and_content_types_are_refused() {
    let server = start(Limits::default()).await;
    let mut connection = server.https.connect().await.unwrap();
    let request = |method, path, content_type: Option<&str>| {
        let builder = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        let builder = content_type
            .into_iter()
            .fold(builder, |b, t| b.header("content-type", t));
        builder.body(Full::from(review("x"))).unwrap()
    };
    let json = Some("application/json");
    for (method, path, content_type, wanted) in [
        (Method::POST, "/", json, StatusCode::NOT_FOUND),
        (Method::POST, "/inject/", json, StatusCode::NOT_FOUND),
        (Method::GET, "/readyz", json, StatusCode::NOT_FOUND),
        (Method::GET, "/metrics", json, StatusCode::NOT_FOUND),
        (Method::GET, "/inject", json, StatusCode::METHOD_NOT_ALLOWED),
        (Method::PUT, "/inject", json, StatusCode::METHOD_NOT_ALLOWED),
        (
            Method::POST,
            "/inject",
            None,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            Method::POST,
            "/inject",
            Some("text/plain"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            Method::POST,
            "/inject",
            Some("application/yaml"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            Method::POST,
            "/inject",
            Some("application/json; charset=utf-8"),
            StatusCode::OK,
        ),
        (
            Method::POST,
            "/inject",
            Some("Application/JSON"),
            StatusCode::OK,
        ),
        (Method::POST, "/inject?timeout=5s", json, StatusCode::OK),
    ] {
        let what = format!("{method} {path} {content_type:?}");
        let response = connection.send(request(method, path, content_type)).await;
        assert_eq!(response.unwrap().status(), wanted, "{what}");
    }
}

#[tokio::test]
async fn a_body_may_have_seven_mebibytes_and_no_byte_more() {
    let server = start(Limits::default()).await;
    let padded = |size: usize| {
        let mut body = review("padded").into_bytes();
        body.resize(size, b' ');
        body
    };
    let response = server.https.send(inject(padded(7 * MIB))).await.unwrap();
    assert_injected(&response, "padded");
    for size in [7 * MIB + 1, 8 * MIB] {
        let response = server.https.send(inject(padded(size))).await.unwrap();
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE, "{size}");
        assert_sentence(&response);
        server.admits().await;
    }
}

#[tokio::test]
async fn a_body_that_does_not_say_its_size_is_bounded_too() {
    let server = start(Limits::default()).await;
    for (mebibytes, wanted) in [(6, "200 OK"), (8, "413 Payload Too Large")] {
        let mut request = head("transfer-encoding: chunked\r\nconnection: close").into_bytes();
        let review = review("chunked");
        request.extend(format!("{:x}\r\n{review}\r\n", review.len()).bytes());
        for _ in 0..mebibytes {
            request.extend(format!("{MIB:x}\r\n").bytes());
            request.resize(request.len() + MIB, b' ');
            request.extend(b"\r\n");
        }
        request.extend(b"0\r\n\r\n");
        let answer = ask(server.https.open().await.unwrap(), &request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {wanted}\r\n")),
            "{mebibytes}: {answer}"
        );
        server.admits().await;
    }
}

#[tokio::test]
async fn slow_heads_and_slow_bodies_are_ended_while_others_are_served() {
    let server = start(Limits {
        head: SHORT,
        body: SHORT,
        ..Limits::default()
    })
    .await;
    let head = head("content-length: 5000");
    let slow = [&head[..40], &head, &format!("{head}{}", review("slow"))];
    for (sent, wanted) in slow.into_iter().zip(["", "HTTP/1.1 408 ", "HTTP/1.1 408 "]) {
        let started = Instant::now();
        let mut slow = server.https.open().await.unwrap();
        slow.write_all(sent.as_bytes()).await.unwrap();
        let answer = timeout(PATIENCE, async {
            tokio::join!(heard(&mut slow), server.admits()).0
        });
        let answer = answer.await.expect("the server closes");
        assert!(answer.starts_with(wanted), "{sent}: {answer}");
        assert!(!answer.is_empty() || wanted.is_empty(), "{sent}");
        assert!(started.elapsed() >= SHORT, "{sent}");
    }
}

#[tokio::test]
async fn a_head_that_does_not_end_is_refused() {
    let server = start(Limits::default()).await;
    let endless = head(&format!("x-long: {}", "x".repeat(MIB)));
    let answer = ask(server.https.open().await.unwrap(), endless.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    server.admits().await;
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_or_dropped() {
    let server = start(Limits {
        handshake: SHORT,
        ..Limits::default()
    })
    .await;
    let connect = || async { TcpStream::connect(server.tls).await.unwrap() };

    let answer = ask(connect().await, head("content-length: 0").as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.0 400 Bad Request\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("HTTPS server.\n"), "{answer}");
    server.admits().await;

    // A TLS record with no handshake in it, a record cut short, and bytes that are nothing.
    let garbage: [&[u8]; 3] = [
        b"\x16\x03\x01\x00\x04\xff\xff\xff\xff",
        b"\x16\x03\x01\x40\x00\x01",
        &[0; 64],
    ];
    for garbage in garbage {
        let answer = ask(connect().await, garbage).await;
        assert!(!answer.contains("HTTP"), "{answer}");
        server.admits().await;
    }

    let started = Instant::now();
    let mut silent = connect().await;
    let heard = timeout(PATIENCE, async {
        tokio::join!(heard(&mut silent), server.admits()).0
    });
    assert_eq!(heard.await.expect("the server closes"), "");
    assert!(started.elapsed() >= SHORT);
    assert_eq!(
        server
            .metric("envoy_drainer_tls_handshakes_failed_total")
            .await,
        Some(5.0)
    );
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_goes_away() {
    let server = start(Limits::default()).await;
    let other = Authority::new().unwrap();
    let mistrusting = Https::new(server.tls, other.pem()).unwrap();
    let error = mistrusting.open().await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    server.admits().await;
}

#[tokio::test]
async fn http_1_1_is_the_only_protocol() {
    let server = start(Limits::default()).await;
    for (protocols, agreed) in [
        (["h2", "http/1.1"].as_slice(), Some(Some("http/1.1"))),
        (&[], Some(None)),
        (&["h2"], None),
    ] {
        let https = Https::offering(server.tls, &server.authority, &[&TLS13], protocols).unwrap();
        let stream = https.open().await.ok();
        let chosen = stream
            .as_ref()
            .map(|stream| stream.get_ref().1.alpn_protocol());
        assert_eq!(
            chosen,
            agreed.map(|name| name.map(str::as_bytes)),
            "{protocols:?}"
        );
    }
}

#[tokio::test]
async fn tls_1_2_is_refused_unless_it_is_allowed() {
    for (min_version, allowed) in [(MinVersion::Tls13, false), (MinVersion::Tls12, true)] {
        let server = start_with(admit, Limits::default(), min_version).await;
        let old = Https::offering(server.tls, &server.authority, &[&TLS12], &["http/1.1"]).unwrap();
        assert_eq!(old.send(inject(review("old"))).await.is_ok(), allowed);
        server.admits().await;
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let server = start(Limits {
        connections: 2,
        ..Limits::default()
    })
    .await;
    let mut first = server.https.connect().await.unwrap();
    let mut second = server.https.connect().await.unwrap();
    let https = server.https.clone();
    let mut third = tokio::spawn(async move { https.send(inject(review("third"))).await });
    let waited = timeout(SHORT, &mut third).await;
    assert!(waited.is_err(), "no place yet");
    for connection in [&mut first, &mut second] {
        assert_injected(&connection.send(inject(review("x"))).await.unwrap(), "x");
    }
    drop(first);
    let response = timeout(PATIENCE, third).await.unwrap().unwrap().unwrap();
    assert_injected(&response, "third");
    server.plain("/healthz").await;
}

#[tokio::test]
async fn an_old_connection_is_closed_by_its_next_answer_and_never_while_it_is_idle() {
    let server = start(Limits {
        age: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.https.connect().await.unwrap();
    let mut ask = async || connection.send(inject(review("x"))).await.unwrap();
    assert!(!closes(&ask().await));
    sleep(SHORT * 3 / 2).await;
    let last = ask().await;
    assert_injected(&last, "x");
    assert!(closes(&last));
    timeout(PATIENCE, connection.closed()).await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_the_end() {
    let server = start(Limits {
        head: SHORT,
        ..Limits::default()
    })
    .await;
    let mut connection = server.https.connect().await.unwrap();
    connection.send(inject(review("x"))).await.unwrap();
    let started = Instant::now();
    timeout(PATIENCE, connection.closed()).await.unwrap();
    assert!(started.elapsed() >= SHORT / 2);
}

#[tokio::test]
async fn the_plain_port_serves_the_kubelet_and_prometheus() {
    let server = start(Limits {
        head: SHORT,
        ..Limits::default()
    })
    .await;
    for (path, wanted) in [
        ("/healthz", "HTTP/1.1 200 "),
        ("/readyz", "HTTP/1.1 200 "),
        ("/inject", "HTTP/1.1 404 "),
    ] {
        let answer = server.plain(path).await;
        assert!(answer.starts_with(wanted), "{path}: {answer}");
    }
    let metrics = server.plain("/metrics").await;
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let mut slow = TcpStream::connect(server.plain).await.unwrap();
    slow.write_all(b"GET /heal").await.unwrap();
    timeout(PATIENCE, heard(&mut slow))
        .await
        .expect("the server closes");
}

/// A request whose head and half of whose body were sent, and the half that was not.
async fn half_sent(server: &Running) -> (TlsStream<TcpStream>, String) {
    let review = review("slow");
    let (half, rest) = review.split_at(review.len() / 2);
    let request = format!(
        "{}{half}",
        head(&format!("content-length: {}", review.len()))
    );
    let mut stream = server.https.open().await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let in_flight = async {
        while server.metric("envoy_drainer_requests_in_flight").await != Some(1.0) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, in_flight)
        .await
        .expect("it is seen in flight");
    (stream, rest.to_owned())
}

#[tokio::test]
async fn the_end_is_told_first_and_then_waits_for_what_is_in_flight() {
    let server = start(Limits {
        shutdown_delay: SHORT * 2,
        body: PATIENCE,
        finish: PATIENCE,
        ..Limits::default()
    })
    .await;
    let mut busy = server.https.connect().await.unwrap();
    busy.send(inject(review("x"))).await.unwrap();
    let mut idle = server.https.connect().await.unwrap();
    let (mut slow, rest) = half_sent(&server).await;

    // Told to end, it says so at once, and serves on.
    let Running {
        https,
        plain,
        stop,
        ended,
        ..
    } = server;
    stop.send(()).unwrap();
    let not_ready = async {
        loop {
            let stream = TcpStream::connect(plain).await.unwrap();
            let request = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            let answer = ask(stream, request).await;
            if answer.starts_with("HTTP/1.1 503 ") {
                break;
            }
        }
    };
    timeout(SHORT, not_ready).await.expect("not ready at once");
    let response = busy.send(inject(review("x"))).await.unwrap();
    assert_injected(&response, "x");
    assert!(closes(&response));
    let response = https.send(inject(review("late"))).await.unwrap();
    assert_injected(&response, "late");
    assert!(closes(&response));

    // After the delay idle connections are closed and new ones refused.
    timeout(PATIENCE, idle.closed()).await.unwrap();
    let refused = async { while https.open().await.is_ok() {} };
    timeout(PATIENCE, refused).await.expect("no new connection");

    // What is in flight is answered, and only then does the server end.
    assert!(!ended.is_finished());
    slow.write_all(rest.as_bytes()).await.unwrap();
    let answer = timeout(PATIENCE, heard(&mut slow)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    timeout(PATIENCE, ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_end_does_not_wait_for_ever() {
    let server = start(Limits {
        shutdown_delay: Duration::ZERO,
        body: PATIENCE * 2,
        finish: SHORT,
        ..Limits::default()
    })
    .await;
    let (mut slow, _) = half_sent(&server).await;
    let started = Instant::now();
    server.stop.send(()).unwrap();
    timeout(PATIENCE, server.ended).await.unwrap().unwrap();
    assert!(started.elapsed() >= SHORT);
    assert_eq!(timeout(PATIENCE, heard(&mut slow)).await.unwrap(), "");
}

#[tokio::test]
async fn a_panic_costs_one_answer_and_nothing_else() {
    fn panics(body: &[u8]) -> Result<Answer, NotAReview> {
        assert!(!body.starts_with(b"panic"));
        admit(body)
    }
    let server = start_with(panics, Limits::default(), MinVersion::Tls13).await;
    let mut connection = server.https.connect().await.unwrap();
    for _ in 0..3 {
        let response = connection.send(inject("panic")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_sentence(&response);
        let fine = connection.send(inject(review("fine"))).await.unwrap();
        assert_injected(&fine, "fine");
    }
}

#[tokio::test]
async fn a_certificate_swapped_under_load_fails_no_handshake() {
    let authority = Authority::new().unwrap();
    let leaves: Vec<_> = (0..3).map(|_| authority.leaf().unwrap()).collect();
    let mut mount = Mount::new(&leaves[0]).unwrap();
    let (files, first) = Files::open(mount.certificate(), mount.key()).unwrap();
    let serving = Arc::new(Serving::new(first));
    let report = Arc::new(Report::new());
    let server = Server {
        admit: Box::new(admit),
        serving: Arc::clone(&serving),
        tls_min_version: MinVersion::Tls13,
        limits: Limits::default(),
        report: Arc::clone(&report),
    };
    let server = run(server, authority.pem()).await;
    let follower =
        tokio::spawn(
            async move { certificates::follow(Source::Files(files), &serving, &report).await },
        );

    // Each client makes one connection after the other, and tells the certificate it was shown.
    let (shown, mut seen) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (https, shown) = (server.https.clone(), shown.clone());
        clients.spawn(async move {
            loop {
                let mut connection = https.connect().await.expect("a handshake");
                let response = connection.send(inject(review("x"))).await;
                assert_injected(&response.expect("an answer"), "x");
                if shown.send(connection.certificate().to_vec()).is_err() {
                    return;
                }
            }
        });
    }
    drop(shown);
    let mut kept = server.https.connect().await.unwrap();
    for (swap, leaf) in leaves.iter().enumerate() {
        if swap > 0 {
            mount.write(leaf).unwrap();
        }
        let served = async { while seen.recv().await.expect("clients go on") != leaf.der {} };
        timeout(PATIENCE, served)
            .await
            .expect("the new one is served");
    }
    // From now on it is the last one alone, but for connections that were being made meanwhile.
    let mut stale = 0;
    for _ in 0..50 {
        let certificate = seen.recv().await.expect("clients go on");
        stale += usize::from(certificate != leaves[2].der);
    }
    assert!(stale < clients.len(), "{stale}");
    drop(seen);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    // A connection that was there before is still good.
    let response = kept.send(inject(review("kept"))).await.unwrap();
    assert_injected(&response, "kept");
    assert_eq!(kept.certificate(), leaves[0].der);

    let reloads =
        |result| format!("envoy_drainer_certificate_reloads_total{{result=\"{result}\"}}");
    assert_eq!(server.metric(&reloads("ok")).await, Some(2.0));
    fs::write(mount.key(), "no key").unwrap();
    let refused = async {
        while server.metric(&reloads("failed")).await != Some(1.0) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, refused).await.expect("it is counted");
    server.admits().await;
    follower.abort();
}
