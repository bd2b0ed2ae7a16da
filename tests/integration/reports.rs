//! Reports: what drainers tell the webhook and when, and the metrics and Events that follow.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};
use drainer::{AdminAddress, DrainPhase, HealthFailureDelay, WebhookAccess};
use hyper::StatusCode;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tests::api_server::{FakeApiServer, RecordedRequest};
use tests::drainer::{Drainer, DrainerBuilder, drainer, quick_drainer};
use tests::drainer_token::review_token;
use tests::envoy::{Envoy, proxy, web_envoy};
use tests::envoy_versions::EnvoyBinary;
use tests::http::Client;
use tests::https::inject_request;
use tests::listener::{http, tcp};
use tests::port::Port;
use tests::process::Signal;
use tests::raw_connection::RawConnection;
use tests::test_ca::TestCa;
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_at_most};
use tests::until::wait_until;
use tests::webhook::skipped_review;
use tokio::time::{Instant, sleep};

use super::drain::{listener_stat, slow_request, wait_for_active_requests};
use super::drainer_api::{DrainerApiServer, ServeProcess};

/// The webhook, with reports, in a cluster where a Deployment's pod is being evicted.
struct Reporting {
    webhook: ServeProcess,
    events: Vec<RecordedRequest>,
}

/// Answers what is not a GET request: an Event is applied, and a token reviewed.
fn apply_or_review(body: Value) -> (u16, Value) {
    match &body["kind"] {
        Value::String(kind) if kind == "Event" => (200, json!({ "metadata": {} })),
        _ => review_token(body),
    }
}

fn owned_by(uid: &str, kind: &str, name: &str, owner_uid: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": owner_uid,
        "controller": true});
    json!({"metadata": {"uid": uid, "ownerReferences": [owner]}})
}

impl Reporting {
    async fn start() -> Result<Self> {
        let api_server = FakeApiServer::start_cluster([].into(), apply_or_review).await?;
        let mut pod = owned_by("own", "ReplicaSet", "edge-7f", "8");
        pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True",
            "reason": "EvictionByEvictionAPI"}]);
        api_server.set_object("/api/v1/namespaces/shop/pods/edge-1", &pod);
        let replica_set = owned_by("8", "Deployment", "edge", "9");
        let path = "/apis/apps/v1/namespaces/shop/replicasets/edge-7f";
        api_server.set_object(path, &replica_set);
        let ca = TestCa::new()?;
        let webhook = ServeProcess::start_with_secret(api_server, &ca, &ca.issue_leaf()?).await?;
        Ok(Self {
            webhook,
            events: Vec::new(),
        })
    }

    /// The metrics without their prefix.
    async fn metrics(&self) -> Result<String> {
        let metrics = Client::from(self.webhook.server.metrics);
        let metrics = metrics.get("/metrics").await?;
        Ok(metrics.body.replace("envoy_drainer_", ""))
    }

    async fn wait_for_metric(&self, line: &str) -> Result<()> {
        wait_until(line, TIMEOUT, || async {
            Ok(self.metrics().await?.lines().any(|it| it == line))
        })
        .await
    }

    /// The Events that were written so far.
    fn events(&mut self) -> &[RecordedRequest] {
        let requests = self.webhook.api_server.take_requests();
        let events = requests.into_iter();
        self.events
            .extend(events.filter(|request| request.body["kind"] == "Event"));
        &self.events
    }

    /// The exit code of `drains --fail-on-cut` where a drainer has left this termination message.
    async fn fail_on_cut(&self, message: &Value) -> Result<Option<i32>> {
        let state = json!({"terminated": {"exitCode": 0, "message": message.to_string()}});
        let status = json!({"name": "envoy-drainer", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": state});
        let pod = json!({"metadata": {"name": "edge-1", "namespace": "shop"},
            "spec": {"containers": [{"name": "envoy-drainer"}]},
            "status": {"containerStatuses": [status]}});
        let api_server = &self.webhook.api_server;
        for (kind, items) in [("pods", json!([pod])), ("events", json!([]))] {
            let list = json!({"metadata": {"resourceVersion": "9"}, "items": items});
            api_server.set_object(&format!("/api/v1/namespaces/shop/{kind}"), &list);
        }
        let mut drains = api_server.command(&["drains"], &["-n", "shop", "--fail-on-cut"])?;
        Ok(drains.output().await?.status.code())
    }
}

/// A drainer with a deadline of 3 s.
fn short_drainer(envoy: &Envoy, access: WebhookAccess) -> Result<DrainerBuilder> {
    let drainer = quick_drainer(envoy.admin_address())?
        .timing(|timing| timing.drain_timeout = 3 * SECOND)
        .with_config(|config| config.webhook = access);
    Ok(drainer)
}

tests::for_each_envoy! {
    drain_reaches_metrics_and_its_workload, numbers_decide_what_was_cut, envoy_that_ends_without_its_hook_is_reported,
    only_terminating_pods_report_a_drain, no_hook_waits_for_a_report_and_the_exit_for_a_second,
}

async fn drain_reaches_metrics_and_its_workload(binary: EnvoyBinary) -> Result<()> {
    let mut reporting = Reporting::start().await?;
    let access = reporting.webhook.access().await?;
    assert!(access.reports, "{access:?}");
    let envoy = proxy(&binary, [http("web")?, tcp("stream")?]).await?;
    let mut stream = RawConnection::open_stream(envoy.address("stream")).await?;
    let cut = short_drainer(&envoy, access)?.start().await?;
    assert_took(cut.drain_pod().await?, 3 * SECOND);
    stream.ping().await.context("it was cut before SIGTERM")?;
    let name = listener_stat(&envoy, "stream");
    let remaining = json!({
        "connections": 1, "requests": 0, "upgrades": 0, "tcp": 1, "byListener": { &name: 1 },
    });
    assert_eq!(cut.termination_message()?["remaining"], remaining);
    let line = cut.find_log("Drain ended").context("no log line")?;
    assert_eq!(line["outcome"], "deadline");
    assert_eq!(line["remaining_tcp"], 1);
    let listeners = line["remaining_by_listener"].to_string();
    assert!(listeners.contains(&name), "{line}");
    for line in [
        r#"drains_total{outcome="deadline",cause="eviction",kind="Deployment"} 1"#,
        r#"drains_with_cuts_total{kind="Deployment"} 1"#,
        r#"drain_cuts_total{what="tcp"} 1"#,
        r#"drain_cuts_total{what="requests"} 0"#,
        r#"termination_duration_seconds_count{outcome="deadline"} 1"#,
        r#"drain_reports_total{result="ok"} 1"#,
        r#"event_writes_total{result="ok"} 1"#,
    ] {
        reporting.wait_for_metric(line).await?;
    }
    let [event] = reporting.events() else {
        panic!("{:?}", reporting.events)
    };
    let path = "PATCH /apis/events.k8s.io/v1/namespaces/shop/events/9.";
    assert!(event.request_line.starts_with(path), "{event:?}");
    let Value::String(note) = &event.body["note"] else {
        panic!("{event:?}")
    };
    let start = "The drain of pod edge-1 reached its deadline after 3.";
    assert!(note.starts_with(start), "{note}");
    assert!(note.ends_with(" s and cut 1 TCP connection"), "{note}");
    assert_eq!(event.body["reason"], "DrainCut");
    Ok(())
}

async fn numbers_decide_what_was_cut(binary: EnvoyBinary) -> Result<()> {
    let mut reporting = Reporting::start().await?;
    let access = reporting.webhook.access().await?;
    // Envoy is killed in mid-drain, with five requests.
    let envoy = web_envoy(&binary).await?;
    let drainer = short_drainer(&envoy, access.clone())?;
    let drainer = drainer.timing(|t| t.drain_timeout = 30 * SECOND);
    let drainer = drainer.start().await?;
    let _requests = [(); 5].map(|()| slow_request(envoy.client("web"), 30 * SECOND));
    wait_for_active_requests(&envoy, 5).await?;
    let hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_count(5).await?;
    envoy.signal(Signal::KILL);
    hooks.wait_for_return().await?;
    drainer.assert_message(&json!({"outcome": "gone", "remaining": {"requests": 5}}))?;
    for line in [
        r#"drains_total{outcome="gone",cause="eviction",kind="Deployment"} 1"#,
        r#"drains_with_cuts_total{kind="Deployment"} 1"#,
        r#"drain_cuts_total{what="requests"} 5"#,
        r#"event_writes_total{result="ok"} 1"#,
    ] {
        reporting.wait_for_metric(line).await?;
    }
    let note = reporting.events()[0].body["note"].to_string();
    assert!(note.contains("ended as gone after"), "{note}");
    assert!(note.ends_with(r#" s and cut 5 requests""#), "{note}");
    let message = drainer.termination_message()?;
    assert_eq!(reporting.fail_on_cut(&message).await?, Some(1));
    // One request may remain.
    let envoy = web_envoy(&binary).await?;
    let drainer = short_drainer(&envoy, access)?;
    let drainer = drainer.with_config(|config| config.settings.exit_at_connections = 1);
    let drainer = drainer.start().await?;
    let _request = slow_request(envoy.client("web"), 30 * SECOND);
    wait_for_active_requests(&envoy, 1).await?;
    drainer.drain_pod().await?;
    drainer.assert_message(&json!({"outcome": "drained", "remaining": {"requests": 1}}))?;
    let sum = r#"drain_cuts_total{what="requests"} 6"#;
    reporting.wait_for_metric(sum).await?;
    let mut message = drainer.termination_message()?;
    assert_eq!(reporting.fail_on_cut(&message).await?, Some(1));
    message["remaining"]["requests"] = json!(0);
    assert_eq!(reporting.fail_on_cut(&message).await?, Some(0), "idle");
    message["remaining"] = json!(null);
    assert_eq!(reporting.fail_on_cut(&message).await?, Some(3), "unknown");
    Ok(())
}

/// As if an init container had redirected the call of the hook to Envoy, whose response the kubelet takes for the hook's.
async fn envoy_that_ends_without_its_hook_is_reported(binary: EnvoyBinary) -> Result<()> {
    let reporting = Reporting::start().await?;
    let envoy = proxy(&binary, [http("web")?]).await?;
    let access = reporting.webhook.access().await?;
    let drainer =
        short_drainer(&envoy, access)?.timing(|timing| timing.min_drain_duration = SECOND);
    let drainer = drainer.start().await?;
    drainer.wait_for_envoy().await?;
    envoy.terminate().await?;
    drainer.call_drainer_hook()?.wait_for_return().await?;
    drainer.terminate().await?;
    let error = drainer.find_log("was never called");
    assert_eq!(error.unwrap()["level"], "ERROR");
    drainer.assert_message(&json!({"outcome": "hook-missed"}))?;
    let counted = r#"drains_total{outcome="hook-missed",cause="eviction",kind="Deployment"} 1"#;
    reporting.wait_for_metric(counted).await
}

#[tokio::test]
async fn forged_reports_are_limited_and_create_no_series() -> Result<()> {
    let reporting = Reporting::start().await?;
    let before = reporting.metrics().await?;
    let drain = json!({"outcome": "drained", "seconds": 1, "peak": 0});
    for forged in [
        json!({"drain": {"outcome": "edge", "seconds": 1, "peak": 0}}),
        json!({"drain": {"outcome": "drained", "seconds": -1, "peak": 0}}),
        json!({"setupWarnings": ["edge"]}),
        json!({"drain": drain, "setupWarnings": []}),
    ] {
        let response = reporting.webhook.report("forger", forged.to_string());
        let response = response.await?;
        let status = response.status();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{forged}: {response:?}");
    }
    let mut drain = drain;
    drain["kind"] = "edge".into();
    drain["namespace"] = "kube-system".into();
    let report = json!({"drain": drain}).to_string();
    let response = reporting.webhook.report("forger", report.clone()).await?;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    // One that names another UID than that of the Pod.
    let response = reporting.webhook.report("other", report).await?;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let unknown = r#"drains_total{outcome="drained",cause="unknown",kind="unknown"} 1"#;
    reporting.wait_for_metric(unknown).await?;
    let dropped = r#"drain_reports_total{result="dropped"} 1"#;
    reporting.wait_for_metric(dropped).await?;
    let after = reporting.metrics().await?;
    let series = |metrics: &str| -> Vec<String> {
        let metrics = metrics.lines();
        // Not those of the drainer API, which counts each request by its status.
        let lines = metrics.filter(|line| {
            let names = "drain_ drains_ termination_ replacement_waits setup_warnings";
            names.split(' ').any(|name| line.starts_with(name))
        });
        let names = lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()));
        names.filter(|name| !unknown.starts_with(name)).collect()
    };
    assert_eq!(series(&after), series(&before));
    Ok(())
}

/// As many as use up the limits of the namespace, and of all.
#[tokio::test]
async fn forged_reviews_leave_events_of_drains_their_limits() -> Result<()> {
    let mut reporting = Reporting::start().await?;
    let mut connection = reporting.webhook.server.https.connect().await?;
    for namespace in ["shop", "a", "b", "c", "d"] {
        for uid in 0..30 {
            let review = skipped_review(namespace, &format!("{namespace}-{uid}"));
            connection.send(inject_request(review.bytes())).await?;
        }
    }
    // Of 30 in each of five namespaces, 25 in each of four are allowed.
    reporting.wait_for_metric("events_dropped_total 50").await?;
    let remaining =
        json!({"connections": 1, "requests": 1, "upgrades": 0, "tcp": 0, "byListener": {}});
    let drain = json!({"outcome": "deadline", "seconds": 60, "peak": 1, "remaining": remaining});
    let report = json!({ "drain": drain }).to_string();
    let response = reporting.webhook.report("own", report).await?;
    let status = response.status();
    assert_eq!(status, StatusCode::NO_CONTENT, "{response:?}");
    wait_until("the drain has an Event", TIMEOUT, || {
        let events = reporting.events().iter();
        let is_written = { events }.any(|event| event.body["reason"] == "DrainCut");
        async move { Ok(is_written) }
    })
    .await
}

/// An Envoy without a stream, a webhook that records the reports of its drainer, and the drainer.
async fn recorded_drainer(binary: &EnvoyBinary) -> Result<(Envoy, DrainerApiServer, Drainer)> {
    let envoy = web_envoy(binary).await?;
    let webhook = DrainerApiServer::start(false, true).await;
    let drainer = short_drainer(&envoy, webhook.access())?;
    Ok((envoy, webhook, drainer.start().await?))
}

/// A port that accepts connections and never responds, and how a drainer calls it.
fn silent_webhook() -> Result<(TcpListener, WebhookAccess, NamedTempFile)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let token = NamedTempFile::new()?;
    let access = WebhookAccess {
        address: format!("localhost:{}", listener.local_addr()?.port()),
        ca: TestCa::new()?.base64(),
        token: token.path().to_owned(),
        reports: true,
        ..WebhookAccess::default()
    };
    Ok((listener, access, token))
}

/// The number of connections that it has accepted.
fn connections(listener: &TcpListener) -> usize {
    std::iter::from_fn(|| listener.accept().ok()).count()
}

async fn only_terminating_pods_report_a_drain(binary: EnvoyBinary) -> Result<()> {
    // Both hooks: one report, that of the termination message.
    let (_envoy, webhook, drainer) = recorded_drainer(&binary).await?;
    drainer.drain_pod().await?;
    drainer.terminate().await?;
    let message = drainer.termination_message()?;
    assert_eq!(webhook.reports(), [json!({ "drain": message })]);
    // Envoy's hook alone, as before its restart; then SIGTERM to the drainer alone.
    let (listener, access, _token) = silent_webhook()?;
    let envoy = web_envoy(&binary).await?;
    let drainer = short_drainer(&envoy, access.clone())?.start().await?;
    let hook = drainer.call_envoy_hook();
    drainer.wait_for_phase(DrainPhase::Waiting).await?;
    envoy.terminate().await?;
    hook.wait_for_return().await?;
    drainer.terminate().await?;
    assert_eq!(connections(&listener), 0);
    // Without reports the webhook is not even connected to, but for the one question whether the pod is alone.
    let without_reports = WebhookAccess {
        reports: false,
        ..access
    };
    let at_once = HealthFailureDelay::After(Duration::ZERO);
    for (delay, questions) in [(HealthFailureDelay::Auto, 1), (at_once, 0)] {
        let envoy = tests::envoy::envoy()?.binary(&binary);
        let envoy = envoy.listener(http("web")?.modify_only()).start().await?;
        let drainer = short_drainer(&envoy, without_reports.clone())?
            .with_config(|config| config.settings.health_failure_delay = delay);
        let drainer = drainer.start().await?;
        drainer.wait_for_log("MODIFY_ONLY", TIMEOUT).await?;
        drainer.drain_pod().await?;
        drainer.terminate().await?;
        assert_eq!(connections(&listener), questions, "{delay}");
    }
    Ok(())
}

/// Not before an Envoy that only starts late would have responded.
#[tokio::test]
async fn unreadable_admin_interface_is_reported_once() -> Result<()> {
    let webhook = DrainerApiServer::start(false, true).await;
    let closed_port = Port::free()?;
    let admin = AdminAddress::Tcp((Ipv4Addr::LOCALHOST, closed_port.number()).into());
    let drainer = drainer(&admin)?.with_config(|config| config.webhook = webhook.access());
    let drainer = drainer.start().await?;
    let started = Instant::now();
    wait_until("a report", 70 * SECOND, || async {
        Ok(!webhook.reports().is_empty())
    })
    .await?;
    assert!(started.elapsed() > 55 * SECOND, "{:?}", started.elapsed());
    let status = drainer.status().await?;
    assert_eq!(status.admin, Some(admin.to_string()));
    assert_eq!(status.unknown.as_deref(), Some("connection refused"));
    sleep(3 * SECOND).await;
    let wanted = [json!({"setupWarnings": ["admin-unreadable"]})];
    assert_eq!(webhook.reports(), wanted);
    Ok(())
}

async fn no_hook_waits_for_a_report_and_the_exit_for_a_second(binary: EnvoyBinary) -> Result<()> {
    // It answers when Envoy's hook has returned. Were that to wait, there would be no answer within a second.
    let (_envoy, webhook, drainer) = recorded_drainer(&binary).await?;
    webhook.cluster.answers.send_replace(false);
    let _drainer_hook = drainer.call_drainer_hook()?;
    drainer.call_envoy_hook().wait_for_return().await?;
    webhook.cluster.answers.send_replace(true);
    drainer.terminate().await?;
    assert!(drainer.find_log("did not take the report").is_none());
    assert_eq!(webhook.reports().len(), 1);
    // It does not answer.
    let (listener, access, _token) = silent_webhook()?;
    let envoy = web_envoy(&binary).await?;
    let drainer = short_drainer(&envoy, access)?.start().await?;
    drainer.drain_pod().await?;
    let called = Instant::now();
    drainer.terminate().await?;
    assert_took_at_most(called.elapsed(), Duration::from_millis(1_500));
    let line = drainer.find_log("did not take the report");
    let line = line.expect("it is logged");
    let error = line["error"].as_str().unwrap_or_default();
    assert!(error.ends_with(": no response within 1s"), "{error}");
    assert_eq!(line["level"], "INFO");
    assert_eq!(connections(&listener), 2, "the question and the report");
    Ok(())
}
