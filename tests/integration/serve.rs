//! `envoy-drainer serve` as a program: its flags, its signals and its log.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::api_server::FakeApiServer;
use tests::binaries;
use tests::http::Client;
use tests::https::{HttpsClient, inject_request};
use tests::port::Port;
use tests::process::{Process, Signal};
use tests::review::ReviewBuilder;
use tests::test_ca::{Leaf, TestCa};
use tests::timing::TIMEOUT;
use tests::webhook::{admission_response, assert_injected, review};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// A running `envoy-drainer serve`.
struct ServeProcess {
    process: Process,
    https: HttpsClient,
    health: Client,
    metrics: Client,
    _ports: [Port; 3],
    _dir: TempDir,
}

fn serve(flags: &[&str]) -> Command {
    let mut command = Command::new(binaries::envoy_drainer().unwrap());
    command.args(["serve", "--image=drainer:test"]).args(flags);
    command
}

impl ServeProcess {
    /// Starts it with a certificate of its own, and waits until it is ready.
    async fn start(flags: &[&str]) -> Self {
        let ports = [(); 3].map(|()| Port::free().unwrap());
        let [tls, health, metrics] = ports
            .each_ref()
            .map(|port| format!("127.0.0.1:{}", port.number()));
        let dir = tempfile::tempdir().unwrap();
        let authority = dir.path().join("ca.crt");
        let mut command = serve(flags);
        command
            .args([
                "--listen",
                &tls,
                "--health-listen",
                &health,
                "--metrics-listen",
                &metrics,
                "--tls-name=localhost",
            ])
            .arg("--tls-ca-out")
            .arg(&authority);
        let log = dir.path().join("log");
        let process = Process::start("envoy-drainer", command, &log).unwrap();
        let [health, metrics] =
            [health, metrics].map(|port| Client::from(port.parse::<SocketAddr>().unwrap()));
        let ready = async {
            while !health
                .get("/readyz")
                .await
                .is_ok_and(|ready| ready.status == StatusCode::OK)
            {
                assert!(process.is_running(), "it ended");
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TIMEOUT, ready).await.expect("it is ready");
        let authority = fs::read_to_string(authority).unwrap();
        Self {
            process,
            https: HttpsClient::new(tls.parse().unwrap(), &authority).unwrap(),
            health,
            metrics,
            _ports: ports,
            _dir: dir,
        }
    }

    async fn assert_admits(&self) {
        let response = self
            .https
            .send(inject_request(review("fine").bytes()))
            .await;
        assert_injected(&response.unwrap(), "fine");
    }
}

#[tokio::test]
async fn both_signals_shut_down_after_the_delay() {
    // Long enough for two requests meanwhile on a busy machine.
    let delay = Duration::from_secs(5);
    for signal in [Signal::TERM, Signal::INT] {
        let program = ServeProcess::start(&["--shutdown-delay=5s"]).await;
        program.assert_admits().await;
        let started = Instant::now();
        program.process.signal(signal);
        program.assert_admits().await;
        let not_ready = async {
            while program.health.get("/readyz").await.unwrap().status == StatusCode::OK {}
        };
        timeout(TIMEOUT, not_ready).await.expect("it is not ready");
        let status = program.process.wait_within(TIMEOUT).await.unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(started.elapsed() >= delay);
    }
}

#[tokio::test]
async fn metrics_include_the_certificate() {
    let program = ServeProcess::start(&[]).await;
    let metrics = program.metrics.get("/metrics").await.unwrap().body;
    for wanted in [
        "envoy_drainer_certificate_expiration_timestamp_seconds{kind=\"leaf\"} ",
        "envoy_drainer_certificate_reloads_total{result=\"ok\"} 0",
    ] {
        assert!(metrics.contains(wanted), "{metrics}");
    }
}

#[tokio::test]
async fn second_signal_terminates_at_once() {
    let program = ServeProcess::start(&["--shutdown-delay=10m"]).await;
    program.process.signal(Signal::TERM);
    let not_ready =
        async { while program.health.get("/readyz").await.unwrap().status == StatusCode::OK {} };
    timeout(TIMEOUT, not_ready).await.expect("it is not ready");
    program.process.signal(Signal::TERM);
    let status = program.process.wait_within(TIMEOUT).await.unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(program.process.log().contains("second signal"));
}

#[tokio::test]
async fn log_has_a_line_per_request_and_no_content() {
    let program = ServeProcess::start(&["--log-format=json"]).await;
    let secretive = |annotations: Value| {
        let container = json!({
            "name": "envoy",
            "image": "envoy",
            "env": [{ "name": "PASSWORD", "value": "hunter2" }],
            "lifecycle": { "preStop": { "sleep": { "seconds": 5 } } },
        });
        ReviewBuilder::for_pod(&json!({
            "metadata": { "generateName": "edge-", "annotations": annotations },
            "spec": { "containers": [container] },
        }))
    };
    let prefix = |key: &str| format!("envoy-drainer.dev/{key}");
    let annotations =
        |key: &str, value: &str| json!({ prefix("inject"): "true", prefix(key): value });
    for (uid, annotations, allowed) in [
        ("injected", annotations("existing-hook", "replace"), true),
        ("skipped", annotations("existing-hook", "keep"), true),
        ("denied", annotations("port", "0"), false),
        ("silent", json!({}), true),
    ] {
        let review = secretive(annotations).with("/request/uid", uid);
        let response = program
            .https
            .send(inject_request(review.bytes()))
            .await
            .unwrap();
        assert_eq!(admission_response(&response)["allowed"], allowed, "{uid}");
    }
    let log = program.process.log();
    assert!(!log.contains("hunter2"), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| !line["outcome"].is_null())
        .collect();
    let facts = |line: &Value| {
        ["outcome", "code", "namespace", "name", "level"]
            .map(|key| line[key].as_str().unwrap_or("").to_owned())
    };
    let facts: Vec<_> = lines.iter().map(facts).collect();
    // A request's uid is no reader's business.
    assert!(lines.iter().all(|line| line["uid"].is_null()), "{log}");
    let wanted = [
        ["injected", "", "shop", "edge-", "INFO"],
        ["skipped", "DRN008", "shop", "edge-", "INFO"],
        ["denied", "DRN020", "shop", "edge-", "INFO"],
    ];
    assert_eq!(facts, wanted.map(|line| line.map(str::to_owned)));
}

#[tokio::test]
async fn log_lines_stay_short() {
    const LONGEST: usize = 253;
    // As long as admission reads a text, and a uid.
    const BYTES: usize = 200 << 10;
    const UID: usize = 256;
    for format in ["--log-format=json", "--log-format=text"] {
        let program = ServeProcess::start(&[format, "--log-level=debug"]).await;
        let long = |start: &str| json!(format!("{start}{}", "\u{e9}".repeat(BYTES / 2)));
        let hostile = review("x")
            .with("/request/uid", json!("u".repeat(UID)))
            .with("/request/namespace", long("n\n\u{1b}]0;owned\u{7}"))
            .with("/request/name", long("\r{\"level\":\"ERROR\"}\n"));
        let response = program
            .https
            .send(inject_request(hostile.bytes()))
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let log = program.process.log();
        let admissions = log.lines().filter(|line| line.contains("Admission"));
        assert_eq!(admissions.count(), 1, "{format}");
        for line in log.lines() {
            // Escaped, a byte may become six.
            assert!(line.len() < 3 * 6 * LONGEST, "{format}: {}", line.len());
            assert!(!line.contains(char::is_control), "{line:?}");
            assert!(!line.contains("uuu"), "{line}");
        }
        let refused = "envoy_drainer_admissions_total{outcome=\"injected\",code=\"\"} 1";
        let metrics = program.metrics.get("/metrics").await.unwrap().body;
        assert!(metrics.contains(refused), "{metrics}");
    }
}

#[tokio::test]
async fn review_flood_does_not_flood_the_log() {
    const REVIEWS: usize = 1_000;
    let program = ServeProcess::start(&[]).await;
    let mut connection = program.https.connect().await.unwrap();
    let started = Instant::now();
    for _ in 0..REVIEWS {
        let response = connection
            .send(inject_request(review("x").bytes()))
            .await
            .unwrap();
        assert_injected(&response, "x");
    }
    // Those that were dropped are reported later with another.
    sleep(Duration::from_secs(1)).await;
    program.assert_admits().await;
    let log = program.process.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("\"outcome\":"))
        .count();
    let most = 200 + 20 * (1 + started.elapsed().as_secs() as usize);
    assert!((200..=most).contains(&lines), "{lines} of {most}");
    assert!(log.contains("Admission log lines dropped"), "{log}");
    let counted = format!("code=\"\"}} {}", REVIEWS + 1);
    let metrics = program.metrics.get("/metrics").await.unwrap().body;
    assert!(metrics.contains(&counted), "{metrics}");
}

/// Whether a client that shows this certificate, or none, has a review answered.
async fn is_admitted(https: HttpsClient, leaf: Option<&Leaf>) -> bool {
    let https = match leaf {
        Some(leaf) => https.with_client_certificate(leaf).unwrap(),
        None => https,
    };
    let answer = timeout(TIMEOUT, https.send(inject_request(review("x").bytes()))).await;
    let answer = answer.expect("an answer or none, at once");
    answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
}

#[tokio::test]
async fn only_clients_of_the_client_ca_connect() {
    let [old, new, other] = [(); 3].map(|()| TestCa::new().unwrap());
    let [of_old, of_new, of_other] = [&old, &new, &other].map(|ca| ca.issue_leaf().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    fs::write(&file, old.pem()).unwrap();
    for version in ["1.2", "1.3"] {
        let flags = [
            format!("--client-ca={}", file.display()),
            format!("--tls-min-version={version}"),
        ];
        let program = ServeProcess::start(&flags.each_ref().map(String::as_str)).await;
        let https = || program.https.clone();
        assert!(is_admitted(https(), Some(&of_old)).await);
        assert!(!is_admitted(https(), Some(&of_other)).await);
        assert!(!is_admitted(https(), None).await);
        let failed = "envoy_drainer_tls_handshakes_failed_total 2";
        let metrics = program.metrics.get("/metrics").await.unwrap().body;
        assert!(metrics.contains(failed), "{metrics}");

        // A file that cannot be used changes nothing, and one that can is taken over.
        fs::write(&file, "nothing").unwrap();
        let logged = async {
            while !program.process.log().contains("Failed to reload client CA") {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(TIMEOUT, logged).await.expect("it is logged");
        assert!(is_admitted(https(), Some(&of_old)).await);
        assert!(!is_admitted(https(), None).await);
        fs::write(&file, [old.pem(), new.pem()].concat()).unwrap();
        let reloaded = async { while !is_admitted(https(), Some(&of_new)).await {} };
        timeout(TIMEOUT, reloaded).await.expect("it is reloaded");
        assert!(is_admitted(https(), Some(&of_old)).await);
        assert!(!is_admitted(https(), Some(&of_other)).await);
        fs::write(&file, old.pem()).unwrap();
    }
}

#[tokio::test]
async fn invalid_flags_fail_at_startup() {
    for (flags, wanted) in [
        (vec![], "give one source of a certificate"),
        (vec!["--tls-ca-out=x"], "give one source of a certificate"),
        (
            vec!["--ca-secret=s", "--tls-name=a"],
            "give one source of a certificate",
        ),
        (
            vec!["--tls-name=a", "--tls-cert=x"],
            "unexpected argument '--tls-cert'",
        ),
        (
            vec!["--tls-name=a", "--tls-ca-out=/nowhere/x"],
            "cannot write /nowhere/x",
        ),
        (
            vec!["--tls-name=a", "--client-ca=/nowhere/x"],
            "cannot read /nowhere/x",
        ),
        (
            vec!["--tls-name=a", "--client-ca=/dev/null"],
            "/dev/null contains no certificate",
        ),
        (
            vec!["--tls-name=a", "--listen=192.0.2.1:1"],
            "cannot listen on 192.0.2.1:1",
        ),
        (
            vec!["--tls-name=a", "--drain-timeout=1s"],
            "less than min-drain-duration",
        ),
        (
            vec!["--tls-name=a", "--shutdown-delay=5"],
            "invalid duration `5`",
        ),
    ] {
        let output = timeout(TIMEOUT, serve(&flags).kill_on_drop(true).output()).await;
        let output = output.expect("it ends").unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{flags:?}");
        assert!(stderr.contains(wanted), "{flags:?}: {stderr}");
    }
}

#[tokio::test]
async fn settings_may_come_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let ports = [Port::free().unwrap(), Port::free().unwrap()];
    let [tls, plain] = ports
        .each_ref()
        .map(|port| format!("127.0.0.1:{}", port.number()));
    let ca = dir.path().join("ca.crt");
    let mut command = Command::new(binaries::envoy_drainer().unwrap());
    command
        .arg("serve")
        .env("ENVOY_DRAINER_IMAGE", "drainer:from-the-environment")
        .env("ENVOY_DRAINER_LISTEN", &tls)
        .env("ENVOY_DRAINER_HEALTH_LISTEN", &plain)
        .env("ENVOY_DRAINER_METRICS_LISTEN", "127.0.0.1:0")
        .env("ENVOY_DRAINER_TLS_NAME", "localhost")
        .env("ENVOY_DRAINER_TLS_CA_OUT", &ca);
    let process = Process::start("envoy-drainer", command, &dir.path().join("log")).unwrap();
    let response = async {
        loop {
            assert!(process.is_running(), "it ended");
            let trusted = fs::read_to_string(&ca).unwrap_or_default();
            // The file may not be written yet.
            let https = HttpsClient::new(tls.parse().unwrap(), &trusted);
            let review = inject_request(review("fine").bytes());
            match async { https?.send(review).await }.await {
                Ok(response) => break response,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let response = timeout(TIMEOUT, response).await.expect("it serves");
    let patch = admission_response(&response)["patch"]
        .as_str()
        .map(|patch| STANDARD.decode(patch));
    let patch = String::from_utf8(patch.unwrap().unwrap()).unwrap();
    assert!(patch.contains("drainer:from-the-environment"), "{patch}");
}

/// Starts it with the cluster that a kubeconfig tells of.
fn start_with_kubeconfig(api: &FakeApiServer, dir: &TempDir) -> Process {
    let kubeconfig = dir.path().join("kubeconfig");
    fs::write(&kubeconfig, api.kubeconfig()).unwrap();
    let mut command = serve(&[
        "--listen=127.0.0.1:0",
        "--health-listen=127.0.0.1:0",
        "--metrics-listen=127.0.0.1:0",
        "--release-namespace=ns",
        "--ca-secret=s",
        "--webhook-configuration=w",
        "--tls-name=localhost",
        "--ca-lifetime=1h",
        "--leaf-lifetime=1m",
        "--ca-activation-delay=1s",
        "--shutdown-delay=5s",
    ]);
    command.env("KUBECONFIG", kubeconfig);
    Process::start("envoy-drainer", command, &dir.path().join("log")).unwrap()
}

#[tokio::test]
async fn secret_content_is_never_logged() {
    let api = FakeApiServer::start().await.unwrap();
    // Not base64, so that it cannot be decoded.
    api.set_response(200, &json!({ "metadata": {}, "data": { "k": "?deep" } }));
    let dir = tempfile::tempdir().unwrap();
    let process = start_with_kubeconfig(&api, &dir);
    let logged = async {
        while !process.log().contains("Failed to reconcile certificate") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, logged).await.expect("it is logged");
    let log = process.log();
    assert!(!log.contains("deep"), "{log}");
    assert!(log.contains("invalid response"), "{log}");
}

#[tokio::test]
async fn shutdown_stops_calls_to_the_api_server() {
    let api = FakeApiServer::start().await.unwrap();
    api.set_response(
        404,
        &json!({ "kind": "Status", "status": "Failure", "code": 404 }),
    );
    let dir = tempfile::tempdir().unwrap();
    let process = start_with_kubeconfig(&api, &dir);
    let polled = async {
        while api.take_requests().len() < 2 {
            sleep(Duration::from_millis(600)).await;
        }
    };
    timeout(TIMEOUT, polled)
        .await
        .expect("it polls each second");
    process.signal(Signal::TERM);
    // Calls in flight may still arrive.
    sleep(Duration::from_secs(1)).await;
    drop(api.take_requests());
    sleep(Duration::from_secs(2)).await;
    assert!(process.is_running(), "it serves on");
    assert_eq!(api.take_requests().len(), 0);
}
