//! `envoy-drainer serve` as a program: its flags, its signals and its log.

use std::fs;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::api_server::FakeApiServer;
use tests::binaries;
use tests::http::Client;
use tests::https::HttpsClient;
use tests::process::{Process, Signal};
use tests::review::ReviewBuilder;
use tests::test_ca::{Leaf, TestCa};
use tests::timing::TIMEOUT;
use tests::until::wait_until;
use tests::webhook::{admission_response, assert_injected, assert_injects, review};
use tests::webhook_process::WebhookProcess;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

fn serve(flags: &[&str]) -> Command {
    let mut command = Command::new(binaries::envoy_drainer().unwrap());
    command.args(["serve", "--image=drainer:test"]).args(flags);
    command
}

/// Starts it with a certificate of its own, and waits until it is ready.
async fn start(flags: &[&str]) -> WebhookProcess {
    let program = binaries::envoy_drainer().unwrap();
    let started = WebhookProcess::run(None, |addresses| {
        let mut command = addresses.serve(&program, "drainer:test");
        command.args(flags);
        command
    });
    started.await.unwrap()
}

async fn assert_admits(program: &WebhookProcess) {
    let response = program.https.inject(review("fine").bytes()).await;
    assert_injected(&response.unwrap(), "fine");
}

async fn metrics(program: &WebhookProcess) -> String {
    let metrics = Client::from(program.metrics).get("/metrics").await;
    metrics.unwrap().body
}

async fn wait_until_not_ready(program: &WebhookProcess) {
    let health = Client::from(program.health);
    let not_ready = wait_until("it is not ready", TIMEOUT, async || {
        Ok(health.get("/readyz").await?.status != StatusCode::OK)
    });
    not_ready.await.unwrap();
}

#[tokio::test]
async fn both_signals_shut_down_after_the_delay() {
    // Long enough for two requests meanwhile on a busy machine.
    let delay = Duration::from_secs(5);
    for signal in [Signal::TERM, Signal::INT] {
        let program = start(&["--shutdown-delay=5s"]).await;
        assert_admits(&program).await;
        let started = Instant::now();
        program.process.signal(signal);
        assert_admits(&program).await;
        wait_until_not_ready(&program).await;
        let status = program.process.wait_within(TIMEOUT).await.unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(started.elapsed() >= delay);
    }
}

#[tokio::test]
async fn second_signal_terminates_at_once() {
    let program = start(&["--shutdown-delay=10m"]).await;
    program.process.signal(Signal::TERM);
    wait_until_not_ready(&program).await;
    program.process.signal(Signal::TERM);
    let status = program.process.wait_within(TIMEOUT).await.unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(program.process.log().contains("second signal"));
}

#[tokio::test]
async fn log_has_a_line_per_request_and_no_content() {
    let program = start(&["--log-format=json"]).await;
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
        let response = program.https.inject(review.bytes()).await.unwrap();
        assert_eq!(admission_response(&response)["allowed"], allowed, "{uid}");
    }
    let log = program.process.log();
    assert!(!log.contains("hunter2"), "{log}");
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.filter(|line: &Value| !line["outcome"].is_null());
    let lines: Vec<_> = lines.collect();
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
        let program = start(&[format, "--log-level=debug"]).await;
        let long = |start: &str| json!(format!("{start}{}", "\u{e9}".repeat(BYTES / 2)));
        let hostile = review("x")
            .with("/request/uid", json!("u".repeat(UID)))
            .with("/request/namespace", long("n\n\u{1b}]0;owned\u{7}"))
            .with("/request/name", long("\r{\"level\":\"ERROR\"}\n"));
        let response = program.https.inject(hostile.bytes()).await.unwrap();
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
        let metrics = metrics(&program).await;
        assert!(metrics.contains(refused), "{metrics}");
    }
}

#[tokio::test]
async fn review_flood_does_not_flood_the_log() {
    const REVIEWS: usize = 1_000;
    let program = start(&[]).await;
    let mut connection = program.https.connect().await.unwrap();
    let started = Instant::now();
    for _ in 0..REVIEWS {
        assert_injects(&mut connection, "x").await;
    }
    assert_admits(&program).await;
    let log = program.process.log();
    let is_outcome = |line: &&str| line.contains("\"outcome\":");
    let lines = log.lines().filter(is_outcome).count();
    let most = 200 + 20 * (1 + started.elapsed().as_secs() as usize);
    assert!((200..=most).contains(&lines), "{lines} of {most}");
    let counted = format!("code=\"\"}} {}", REVIEWS + 1);
    let metrics = metrics(&program).await;
    assert!(metrics.contains(&counted), "{metrics}");
}

/// Whether a client that shows this certificate, or none, has a review answered.
async fn is_admitted(https: HttpsClient, leaf: Option<&Leaf>) -> bool {
    let https = match leaf {
        Some(leaf) => https.with_client_certificate(leaf).unwrap(),
        None => https,
    };
    let answer = timeout(TIMEOUT, https.inject(review("x").bytes())).await;
    let answer = answer.expect("an answer or none, at once");
    answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
}

#[tokio::test]
async fn only_clients_of_the_client_ca_connect() {
    let [old, new, other] = [(); 3].map(|()| TestCa::new().unwrap());
    let [of_old, of_new, of_other] = [&old, &new, &other].map(|ca| ca.issue_leaf().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    fs::write(&file, [old.pem(), new.pem()].concat()).unwrap();
    for version in ["1.2", "1.3"] {
        let flags = [
            format!("--client-ca={}", file.display()),
            format!("--tls-min-version={version}"),
        ];
        let program = start(&flags.each_ref().map(String::as_str)).await;
        let https = || program.https.clone();
        assert!(is_admitted(https(), Some(&of_old)).await);
        assert!(is_admitted(https(), Some(&of_new)).await);
        assert!(!is_admitted(https(), Some(&of_other)).await);
        assert!(!is_admitted(https(), None).await);
        // The client learns of it first.
        let failed = "envoy_drainer_tls_handshakes_failed_total 2";
        let counted = wait_until(failed, TIMEOUT, async || {
            Ok(metrics(&program).await.contains(failed))
        });
        counted.await.unwrap();
    }
}

#[tokio::test]
async fn invalid_flags_fail_at_startup() {
    let table = "\
--tls-ca-out=x | give one source of a certificate
 | give one source of a certificate
--ca-secret=s --tls-name=a | give one source of a certificate
--tls-name=a --tls-cert=x | unexpected argument '--tls-cert'
--tls-name=a --tls-ca-out=/nowhere/x | cannot write /nowhere/x
--tls-name=a --client-ca=/nowhere/x | cannot read /nowhere/x
--tls-name=a --client-ca=/dev/null | /dev/null contains no certificate
--tls-name=a --listen=192.0.2.1:1 | cannot listen on 192.0.2.1:1
--tls-name=a --drain-timeout=1s | less than min-drain-duration
--tls-name=a --shutdown-delay=5 | invalid duration `5`";
    for row in table.lines() {
        let (flags, wanted) = row.split_once(" | ").unwrap();
        let flags: Vec<_> = flags.split_whitespace().collect();
        let output = timeout(TIMEOUT, serve(&flags).kill_on_drop(true).output()).await;
        let output = output.expect("it ends").unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{flags:?}");
        assert!(stderr.contains(wanted), "{flags:?}: {stderr}");
    }
}

/// Starts it with the cluster that a kubeconfig tells of.
fn start_with_kubeconfig(api: &FakeApiServer, dir: &TempDir) -> Process {
    let flags = "--listen=127.0.0.1:0 --health-listen=127.0.0.1:0 --metrics-listen=127.0.0.1:0 --release-namespace=ns \
        --ca-secret=s --webhook-configuration=w --tls-name=localhost --ca-lifetime=1h --leaf-lifetime=1m \
        --ca-activation-delay=1s --shutdown-delay=5s";
    let mut command = serve(&Vec::from_iter(flags.split(' ')));
    command.env("KUBECONFIG", api.kubeconfig());
    Process::start("envoy-drainer", command, &dir.path().join("log")).unwrap()
}

#[tokio::test]
async fn secret_content_is_never_logged() {
    let api = FakeApiServer::start().await.unwrap();
    // Not base64, so that it cannot be decoded.
    api.set_response(200, &json!({ "metadata": {}, "data": { "k": "?deep" } }));
    let dir = tempfile::tempdir().unwrap();
    let process = start_with_kubeconfig(&api, &dir);
    let logged = process.wait_for_log("Failed to reconcile certificate");
    logged.await.unwrap();
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
