//! The drainer API: whose requests the webhook answers, at which rate, and what drainers make of the answers.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{Defaults, DrainerApiDefaults, WEBHOOK_AUDIENCE};
use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use drainer::{Config, DrainPhase, Progress, WebhookAccess};
use hyper::{Response, StatusCode};
use kubernetes::load_config;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tests::api_server::FakeApiServer;
use tests::binaries;
use tests::drainer::{Drainer, quick_drainer};
use tests::drainer_token::{MemoryApiServer, pod_token, review_token, slice, token_with};
use tests::envoy::{Envoy, web_envoy};
use tests::envoy_versions::EnvoyBinary;
use tests::https::{HttpsClient, drainer_request};
use tests::raw_connection::RawConnection;
use tests::review::{AdmissionResult, defaults};
use tests::test_ca::{Leaf, TestCa, base64_of_pem};
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_between};
use tests::webhook::{Webhook, admission_response, review};
use tests::webhook_process::WebhookProcess;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};
use webhook::api_clients::DrainerApiClient;
use webhook::drainer_api::{ApiServer, Features, PodIdentity, RequestError, TooLarge};

/// A token of the pod with this UID.
pub(super) fn token(uid: &str, signature: &str) -> String {
    pod_token("shop", "edge-1", uid, signature)
}

/// A file with the token of the pod with this UID.
fn token_file(uid: &str) -> Result<NamedTempFile> {
    let file = NamedTempFile::new()?;
    fs::write(file.path(), token(uid, "valid"))?;
    Ok(file)
}

/// The reports that were taken, each with its pod.
type Reports = Arc<Mutex<Vec<(PodIdentity, Vec<u8>)>>>;

/// A webhook with a drainer API.
pub(super) struct DrainerApiServer {
    webhook: Webhook,
    pub(super) cluster: MemoryApiServer,
    address: SocketAddr,
    client: HttpsClient,
    reports: Reports,
    token_file: NamedTempFile,
}

impl DrainerApiServer {
    pub(super) async fn start(replacement: bool, takes_reports: bool) -> Self {
        let cluster = MemoryApiServer::default();
        let reports = Reports::default();
        let (api, sink) = (cluster.clone(), Arc::clone(&reports));
        let report = move |pod: &PodIdentity, report: &[u8]| {
            if !report.starts_with(b"{") {
                return Err(RequestError::InvalidReport("not JSON".to_owned()));
            }
            sink.lock().unwrap().push((pod.clone(), report.to_vec()));
            Ok(())
        };
        let features = Features {
            replacement,
            report: takes_reports.then(|| Box::new(report) as _),
        };
        let (webhook, address) = Webhook::start_with_drainer_api(api, features).await;
        Self {
            client: HttpsClient::new(address, &webhook.ca).unwrap(),
            webhook,
            cluster,
            address,
            reports,
            token_file: token_file("7").unwrap(),
        }
    }

    /// How the drainer of a pod calls it.
    pub(super) fn access(&self) -> WebhookAccess {
        WebhookAccess {
            address: format!("localhost:{}", self.address.port()),
            ca: base64_of_pem(&self.webhook.ca),
            token: self.token_file.path().to_owned(),
            reports: true,
            ..WebhookAccess::default()
        }
    }

    /// The reports so far.
    pub(super) fn reports(&self) -> Vec<Value> {
        let reports = self.reports.lock().unwrap();
        let reports = reports.iter().map(|(_, json)| serde_json::from_slice(json));
        reports.collect::<Result<_, _>>().unwrap()
    }

    /// Sends a request with a token on a new connection.
    async fn send(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: impl Into<Bytes>,
    ) -> (StatusCode, String) {
        let request = drainer_request(method, path, token, body);
        let response = timeout(TIMEOUT, self.client.send(request)).await;
        let response = response.expect("in time").expect("a response");
        let body = String::from_utf8_lossy(response.body()).into_owned();
        (response.status(), body)
    }

    async fn report(&self, uid: &str, report: impl Into<Bytes>) -> (StatusCode, String) {
        let token = token(uid, "valid");
        self.send("POST", "/report", Some(&token), report).await
    }

    async fn ask(&self, token: &str) -> (StatusCode, String) {
        self.send("GET", "/replacement", Some(token), "").await
    }
}

#[tokio::test]
async fn only_pods_with_a_token_for_the_webhook_are_answered() {
    let drainer_api = DrainerApiServer::start(true, true).await;
    let slices = vec![slice(&[("7", false), ("8", false)])];
    drainer_api.cluster.set_slices(slices);
    let kubernetes = json!({"namespace": "shop", "pod": {"name": "edge-1", "uid": "7"}});
    let with_audience = |audience: &str| {
        let claims = json!({"aud": [audience], "kubernetes.io": kubernetes});
        token_with(&claims, "valid")
    };
    let api_server = with_audience("https://kubernetes.default.svc");
    for (token, want) in [
        (None, StatusCode::UNAUTHORIZED),
        (Some("junk".to_owned()), StatusCode::UNAUTHORIZED),
        (Some(api_server), StatusCode::UNAUTHORIZED),
        (Some(token("7", "forged")), StatusCode::UNAUTHORIZED),
        (Some(token("7", "valid")), StatusCode::OK),
    ] {
        for (method, path, body) in [("GET", "/replacement", ""), ("POST", "/report", "{}")] {
            let (status, text) = drainer_api.send(method, path, token.as_deref(), body).await;
            let want = match want {
                StatusCode::OK if method == "POST" => StatusCode::NO_CONTENT,
                want => want,
            };
            assert_eq!(status, want, "{method} {path} {token:?}: {text}");
        }
    }
    // Only tokens that may be valid are reviewed, and each once.
    assert_eq!(drainer_api.cluster.reviews.load(Ordering::Relaxed), 2);
    let (_, answer) = drainer_api.ask(&token("7", "valid")).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let want = json!({"services": 1, "unready": ["edge"], "terminating": true});
    assert_eq!(answer, want);
}

#[tokio::test]
async fn pod_is_what_the_api_server_says() {
    let drainer_api = DrainerApiServer::start(true, true).await;
    let (status, _) = drainer_api.report("7", r#"{"uid": "8"}"#).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let reports = drainer_api.reports.lock().unwrap();
    let [(pod, report)] = &reports[..] else {
        panic!("{reports:?}")
    };
    let pod = (&*pod.namespace, &*pod.name, &*pod.uid);
    assert_eq!(pod, ("shop", "edge-1", "7"));
    assert_eq!(report, br#"{"uid": "8"}"#);
}

#[tokio::test]
async fn reports_have_at_most_16_kib() {
    let drainer_api = DrainerApiServer::start(true, true).await;
    let report = |length: usize| format!("{{{}", " ".repeat(length - 1));
    for (body, want) in [
        (report(16 << 10), StatusCode::NO_CONTENT),
        (report((16 << 10) + 1), StatusCode::PAYLOAD_TOO_LARGE),
        ("[]".to_owned(), StatusCode::BAD_REQUEST),
    ] {
        let length = body.len();
        let (status, text) = drainer_api.report("7", body).await;
        assert_eq!(status, want, "{length} bytes: {text}");
    }
}

#[tokio::test]
async fn features_that_are_off_have_no_path() {
    for (replacement, reports) in [(true, false), (false, true)] {
        let drainer_api = DrainerApiServer::start(replacement, reports).await;
        let valid = token("7", "valid");
        let (status, _) = drainer_api.ask(&valid).await;
        assert_eq!(status == StatusCode::OK, replacement, "{status}");
        let (status, _) = drainer_api.report("7", "{}").await;
        assert_eq!(status == StatusCode::NO_CONTENT, reports, "{status}");
        // Admissions are on the other port alone.
        let (status, _) = drainer_api
            .send("POST", "/inject", Some(&valid), "{}")
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn invalid_tokens_reach_the_api_server_at_a_limited_rate() {
    let drainer_api = DrainerApiServer::start(true, false).await;
    let valid = token("7", "valid");
    assert_eq!(drainer_api.ask(&valid).await.0, StatusCode::OK);
    let started = Instant::now();
    let mut statuses = Vec::new();
    let mut connection = drainer_api.client.connect().await.unwrap();
    for n in 0..500 {
        let token = token(&n.to_string(), "forged");
        let request = drainer_request("GET", "/replacement", Some(&token), "");
        statuses.push(connection.send(request).await.unwrap().status());
    }
    let reviews = drainer_api.cluster.reviews.load(Ordering::Relaxed);
    let refilled = usize::try_from(started.elapsed().as_millis() / 500).unwrap();
    assert!(reviews <= 1 + 30 + refilled, "{reviews} reviews");
    assert_eq!(statuses[0], StatusCode::UNAUTHORIZED);
    // Those that are not reviewed are refused.
    let refused = statuses.iter();
    let refused = refused.filter(|status| **status == StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.count() + reviews, 1 + statuses.len());
    // A pod that is known is answered all the same.
    assert_eq!(drainer_api.ask(&valid).await.0, StatusCode::OK);
}

#[tokio::test]
async fn requests_of_one_pod_are_limited() {
    let drainer_api = DrainerApiServer::start(true, false).await;
    let mut connection = drainer_api.client.connect().await.unwrap();
    let mut refused = 0;
    let started = Instant::now();
    for _ in 0..200 {
        let token = token("7", "valid");
        let request = drainer_request("GET", "/replacement", Some(&token), "");
        let status = connection.send(request).await.unwrap().status();
        refused += usize::from(status == StatusCode::TOO_MANY_REQUESTS);
    }
    let refilled = usize::try_from(started.elapsed().as_millis() / 250).unwrap();
    assert!(refused + refilled >= 180, "{refused} of 200 refused");
    let other = drainer_api.ask(&token("8", "valid")).await;
    assert_eq!(other.0, StatusCode::OK);
}

#[tokio::test]
async fn flood_on_the_drainer_api_keeps_no_admission_out() {
    let drainer_api = DrainerApiServer::start(true, false).await;
    let mut flood = Vec::new();
    for _ in 0..400 {
        // Each stays open without a handshake.
        flood.push(RawConnection::open(drainer_api.address).await.unwrap());
    }
    for _ in 0..20 {
        let started = Instant::now();
        drainer_api.webhook.assert_admits().await;
        assert_took_between(started.elapsed(), Duration::ZERO, SECOND);
    }
    let open = r#"envoy_drainer_connections{port="drainer-api"}"#;
    let open = drainer_api.webhook.metric(open).await;
    // Evicted ones, which may still complete their handshake, are 128 at most.
    assert!(open.is_some_and(|open| open <= 256.0), "{open:?}");
    let evicted = r#"envoy_drainer_connections_full_seconds_total{port="webhook"}"#;
    assert_eq!(drainer_api.webhook.metric(evicted).await, Some(0.0));
    // A pod gets through the flood as well.
    let (status, _) = drainer_api.ask(&token("7", "valid")).await;
    assert_eq!(status, StatusCode::OK);
}

/// The pod of [`tests::webhook::review`] with an annotation, admitted with a drainer API.
fn admit_with_drainer_api(annotation: &str, value: &str) -> AdmissionResult {
    let defaults = Defaults {
        drainer_api: Some(DrainerApiDefaults {
            address: "envoy-drainer.infra.svc:8443".to_owned(),
            ip: Some([10, 0, 0, 7].into()),
            ca: "AAAA".to_owned(),
            replacement: true,
            reports: false,
        }),
        ..defaults()
    };
    let annotations = json!({"envoy-drainer.dev/inject": "true", annotation: value});
    review("x")
        .with("/request/object/metadata/annotations", annotations)
        .with(
            "/request/object/spec/terminationGracePeriodSeconds",
            Value::Null,
        )
        .admit(&defaults)
}

#[test]
fn pod_with_a_wait_gets_a_token_for_the_drainer_alone() {
    let admitted = admit_with_drainer_api("envoy-drainer.dev/wait-for-replacement", "30s");
    assert_eq!(admitted.warnings, [""; 0]);
    let spec = &admitted.pod["spec"];
    // 30 s for the replacement, 60 s for the drain, and 15 s.
    assert_eq!(spec["terminationGracePeriodSeconds"], 105);
    let token = json!({
        "name": "envoy-drainer-token",
        "projected": {"sources": [{"serviceAccountToken":
            {"audience": "envoy-drainer", "expirationSeconds": 3600, "path": "token"}}]},
    });
    assert_eq!(spec["volumes"][1], token);
    let drainer = &spec["initContainers"][0];
    let mount = json!({"name": "envoy-drainer-token",
        "mountPath": "/var/run/secrets/envoy-drainer.dev", "readOnly": true});
    let mounts = drainer["volumeMounts"].as_array().unwrap();
    assert!(mounts.contains(&mount), "{mounts:?}");
    assert!(spec["containers"][0]["volumeMounts"].is_null());
    let args = drainer["args"].as_array().unwrap().iter().skip(1);
    let config = Config::parse(args.map(|arg| arg.as_str().unwrap().into())).unwrap();
    assert_eq!(config.settings.timing.wait_for_replacement, 30 * SECOND);
    let want = WebhookAccess {
        address: "envoy-drainer.infra.svc:8443".to_owned(),
        ip: Some([10, 0, 0, 7].into()),
        ca: "AAAA".to_owned(),
        ..WebhookAccess::default()
    };
    assert_eq!(config.webhook, want);
    let file = "/var/run/secrets/envoy-drainer.dev/token";
    assert_eq!(want.token.to_str(), Some(file));
}

#[test]
fn pod_without_a_wait_is_as_without_the_drainer_api() {
    let with = admit_with_drainer_api("envoy-drainer.dev/drain-delay", "0s");
    let pod = with.pod.to_string();
    assert!(!pod.contains("envoy-drainer-token"), "{pod}");
    assert!(!pod.contains("webhook"), "{pod}");
}

/// The program `envoy-drainer serve` with a drainer API, and a fake API server.
pub(super) struct ServeProcess {
    pub(super) server: WebhookProcess,
    pub(super) api_server: FakeApiServer,
    token_file: NamedTempFile,
}

/// The path of the Secret with the server's certificate.
pub(super) const TLS_SECRET: &str = "/api/v1/namespaces/infra/secrets/s";

/// That Secret with this certificate.
pub(super) fn tls_secret(ca: &TestCa, leaf: &Leaf) -> Value {
    let data = json!({
        "tls.crt": STANDARD.encode(&leaf.certificate),
        "tls.key": STANDARD.encode(&leaf.key),
        "ca.crt": STANDARD.encode(ca.pem()),
    });
    json!({"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "data": data})
}

/// The path of the list that the webhook reads.
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";

impl ServeProcess {
    /// Starts it with these endpoints of the Service.
    async fn start_with_pods(pods: &[(&str, bool)]) -> Result<Self> {
        let api_server = FakeApiServer::start_cluster([].into(), review_token).await?;
        let webhook = Self::start_with(api_server, None, &[]).await?;
        webhook.set_pods(pods);
        Ok(webhook)
    }

    /// Starts it with more flags, whose certificate this CA issues, or else one in its memory.
    pub(super) async fn start_with(
        api_server: FakeApiServer,
        ca_pem: Option<&str>,
        flags: &[&str],
    ) -> Result<Self> {
        let program = binaries::envoy_drainer()?;
        let webhook = WebhookProcess::run(None, |addresses| {
            let mut command = Command::new(program);
            command.args(match ca_pem {
                Some(_) => addresses.listen_args("drainer:test"),
                None => addresses.serve_args("drainer:test"),
            });
            if let Some(pem) = ca_pem {
                fs::write(&addresses.ca_file, pem).expect("the directory is writable");
            }
            command
                .args(["--shutdown-delay=0s", "--drainer-api-ip=127.0.0.1"])
                .args(addresses.drainer_api_args())
                .args(flags)
                .env("KUBECONFIG", api_server.kubeconfig());
            command
        });
        Ok(Self {
            server: webhook.await?,
            api_server,
            token_file: token_file("own")?,
        })
    }

    /// Starts it with the certificate in a Secret, and takes reports.
    pub(super) async fn start_with_secret(
        api_server: FakeApiServer,
        ca: &TestCa,
        leaf: &Leaf,
    ) -> Result<Self> {
        api_server.set_object(TLS_SECRET, &tls_secret(ca, leaf));
        let client_config = json!({"url": "https://localhost/inject",
            "caBundle": STANDARD.encode(ca.pem())});
        let configuration = json!({"metadata": {"name": "w"},
            "webhooks": [{"name": "a.b.c", "clientConfig": client_config, "sideEffects": "None",
                "admissionReviewVersions": ["v1"]}]});
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/w";
        api_server.set_object(path, &configuration);
        let flags = [
            "--drainer-api-reports=true",
            "--release-namespace=infra",
            "--tls-secret=s",
            "--webhook-configuration=w",
            "--ca-activation-delay=1s",
        ];
        Self::start_with(api_server, Some(ca.pem()), &flags).await
    }

    /// Sets the endpoints of the Service.
    fn set_pods(&self, pods: &[(&str, bool)]) {
        let list = json!({"kind": "EndpointSliceList", "metadata": {"resourceVersion": "1"},
            "items": [slice(pods)]});
        self.api_server.set_object(SLICES, &list);
    }

    /// Sends a report as the drainer of a pod with this UID.
    pub(super) async fn report(
        &self,
        uid: &str,
        report: impl Into<Bytes>,
    ) -> Result<Response<Bytes>> {
        let token = token(uid, "valid");
        let request = drainer_request("POST", "/report", Some(&token), report);
        self.server.drainer_api_https.send(request).await
    }

    /// How the drainer of a pod calls it that it admits now, with the paths of this machine.
    pub(super) async fn access(&self) -> Result<WebhookAccess> {
        let annotations = json!({
            "envoy-drainer.dev/inject": "true",
            "envoy-drainer.dev/wait-for-replacement": "60s",
        });
        let review = review("fine").with("/request/object/metadata/annotations", annotations);
        let review = review.bytes();
        let response = self.server.https.inject(review).await?;
        let response = admission_response(&response);
        let patch = response["patch"].as_str().context("no patch")?;
        let patch: Vec<Value> = serde_json::from_slice(&STANDARD.decode(patch)?)?;
        let mut values = patch.iter().map(|operation| &operation["value"]["args"]);
        let args = values.find_map(Value::as_array).context("no drainer")?;
        let args = args.iter().skip(1).filter_map(Value::as_str);
        Ok(WebhookAccess {
            token: self.token_file.path().to_owned(),
            ..Config::parse(args.map(Into::into))
                .map_err(|errors| anyhow!(errors.join("; ")))?
                .webhook
        })
    }
}

/// An Envoy, and its drainer that waits for up to so long.
async fn drainer_with_wait(
    binary: &EnvoyBinary,
    access: WebhookAccess,
    wait: Duration,
) -> Result<(Envoy, Drainer)> {
    let envoy = web_envoy(binary).await?;
    let drainer = quick_drainer(envoy.admin_address())?
        .timing(|timing| timing.wait_for_replacement = wait)
        .with_config(|config| config.webhook = access);
    Ok((envoy, drainer.start().await?))
}

tests::for_each_envoy! {
    drain_starts_once_another_endpoint_is_ready, wait_ends_at_its_limit_without_a_webhook,
    rotated_token_is_read_for_the_next_request, pod_without_other_endpoints_stays_healthy_to_the_end,
}

async fn pod_without_other_endpoints_stays_healthy_to_the_end(binary: EnvoyBinary) -> Result<()> {
    let webhook = ServeProcess::start_with_pods(&[]).await?;
    let drain = async |pods: &[(&str, bool)], access| {
        webhook.set_pods(pods);
        let (_envoy, drainer) = drainer_with_wait(&binary, access, Duration::ZERO).await?;
        drainer.wait_for_envoy().await?;
        drainer.drain_pod().await?;
        let outcome = drainer.termination_message()?["outcome"].clone();
        // An answer may be a second old.
        sleep(2 * SECOND).await;
        anyhow::Ok((drainer.accepted_calls().join(" "), outcome))
    };
    let access = webhook.access().await?;
    let silent = WebhookAccess {
        address: "localhost:1".to_owned(),
        ip: None,
        ..access.clone()
    };
    let alone: &[_] = &[("own", false), ("new", false)];
    let kept = (
        "/drain_listeners /healthcheck/fail".to_owned(),
        json!("idle"),
    );
    assert_eq!(drain(alone, access.clone()).await?, kept);
    let usual = (
        "/healthcheck/fail /drain_listeners".to_owned(),
        json!("drained"),
    );
    assert_eq!(
        drain(&[("own", false), ("new", true)], access.clone()).await?,
        usual
    );
    assert_eq!(drain(&[("another", true)], access).await?, usual);
    assert_eq!(drain(alone, silent).await?, usual);
    Ok(())
}

async fn drain_starts_once_another_endpoint_is_ready(binary: EnvoyBinary) -> Result<()> {
    let webhook = ServeProcess::start_with_pods(&[("own", false), ("new", false)]).await?;
    let (envoy, drainer) = drainer_with_wait(&binary, webhook.access().await?, 60 * SECOND).await?;
    let hooks = drainer.call_pod_hooks()?;
    drainer.wait_for_phase(DrainPhase::Delaying).await?;
    let want = "another ready endpoint of Service edge";
    let is_published = |status: &Progress| status.waiting_for.as_deref() == Some(want);
    drainer.wait_for_status(want, is_published).await?;
    sleep(3 * SECOND).await;
    // Envoy is still a healthy endpoint.
    assert_eq!(envoy.admin().state().await?, "LIVE");
    assert!(envoy.client("web").get("/").await.is_ok());
    webhook.set_pods(&[("own", false), ("new", true)]);
    let ready_at = Instant::now();
    hooks.wait_for_return().await?;
    // The drainer asks each second, and an answer may be a second old.
    assert_took_between(ready_at.elapsed(), Duration::ZERO, 3 * SECOND);
    let message = drainer.termination_message()?;
    assert_eq!(message["replacement"]["outcome"], "ready");
    envoy.terminate().await?;
    Ok(())
}

async fn wait_ends_at_its_limit_without_a_webhook(binary: EnvoyBinary) -> Result<()> {
    let webhook = ServeProcess::start_with_pods(&[("own", false)]).await?;
    let limit = 6 * SECOND;
    let wait = |access| drainer_with_wait(&binary, access, limit);
    let gone = WebhookAccess {
        address: "localhost:1".to_owned(),
        ..webhook.access().await?
    };
    let usual = webhook.access().await?;
    let with_ca = |ca| WebhookAccess {
        ca,
        ..usual.clone()
    };
    let (untrusted, without_ca) = (with_ca(TestCa::new()?.base64()), with_ca("*".to_owned()));
    let without_token = WebhookAccess {
        token: "/nonexistent".into(),
        ..usual.clone()
    };
    for (access, reason) in [
        (usual, "another ready endpoint of Service edge"),
        (gone, "Connection refused"),
        (untrusted, "invalid peer certificate"),
        (without_token, "the token /nonexistent"),
        (without_ca, "--webhook-ca: not base64"),
    ] {
        let (envoy, drainer) = wait(access).await?;
        let hooks = drainer.call_pod_hooks()?;
        assert_took(hooks.wait_for_return().await?, limit);
        let message = drainer.termination_message()?;
        let replacement = &message["replacement"];
        assert_eq!(replacement["outcome"], "timeout", "{message}");
        let waiting_for = replacement["waitingFor"].as_str().unwrap_or_default();
        assert!(waiting_for.contains(reason), "{reason}: {message}");
        envoy.terminate().await?;
    }
    Ok(())
}

async fn rotated_token_is_read_for_the_next_request(binary: EnvoyBinary) -> Result<()> {
    let webhook = ServeProcess::start_with_pods(&[("own", false)]).await?;
    let access = webhook.access().await?;
    let token_file = access.token.clone();
    let (envoy, drainer) = drainer_with_wait(&binary, access, 60 * SECOND).await?;
    let hooks = drainer.call_pod_hooks()?;
    for (token, want) in [
        (
            token("own", "valid"),
            "another ready endpoint of Service edge",
        ),
        (token("own", "forged"), "an answer of the webhook: 401"),
    ] {
        fs::write(&token_file, token)?;
        let is_published = |status: &Progress| {
            let waiting_for = status.waiting_for.as_ref();
            waiting_for.is_some_and(|it| it.starts_with(want))
        };
        drainer.wait_for_status(want, is_published).await?;
    }
    // No Service selects this one.
    fs::write(&token_file, token("other", "valid"))?;
    hooks.wait_for_return().await?;
    let message = drainer.termination_message()?;
    assert_eq!(message["replacement"]["outcome"], "no-service");
    envoy.terminate().await?;
    Ok(())
}

/// The drainer API's client of a fake API server.
async fn drainer_api_client(api_server: &FakeApiServer) -> Result<DrainerApiClient> {
    let kubeconfig = api_server.kubeconfig().to_owned();
    DrainerApiClient::from_config(load_config(Some(kubeconfig), None).await?)
}

#[tokio::test]
async fn pages_of_endpoints_are_read_up_to_a_limit() -> Result<()> {
    let api_server = FakeApiServer::start_cluster([].into(), review_token).await?;
    let client = drainer_api_client(&api_server).await?;
    let read = async |token| {
        let page = client.endpoint_slices("shop", token).await?;
        anyhow::Ok((page.slices.len(), page.next))
    };
    // Without such a path.
    let error = read(None).await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
    let set_page = |query: &str, next: &str, count: usize| {
        let items = vec![slice(&[("own", false)]); count];
        let page = json!({"metadata": {"continue": next}, "items": items});
        api_server.set_object(&format!("{SLICES}{query}"), &page);
    };
    set_page("", "next", 2);
    set_page("?continue=next", "", 3);
    assert_eq!(read(None).await?, (2, Some("next".to_owned())));
    assert_eq!(read(Some("next")).await?, (3, None));
    api_server.set_object(SLICES, &json!({"items": null}));
    assert_eq!(read(None).await?, (0, None));
    let padding = " ".repeat(5 << 20);
    api_server.set_object(SLICES, &json!({"items": [], "padding": padding}));
    let error = read(None).await.unwrap_err();
    let want = "a page of EndpointSlices: length limit exceeded";
    assert_eq!(error.downcast_ref(), Some(&TooLarge(want.to_owned())));
    Ok(())
}

#[tokio::test]
async fn token_is_reviewed_for_the_audience_of_drainers() -> Result<()> {
    let api_server = FakeApiServer::start_cluster([].into(), review_token).await?;
    let client = drainer_api_client(&api_server).await?;
    let pod = client.review_token(&token("7", "valid")).await?;
    assert_eq!(pod.map(|pod| pod.uid), Some("7".to_owned()));
    assert_eq!(client.review_token(&token("7", "forged")).await?, None);
    let requests = api_server.take_requests();
    let line = &requests[0].request_line;
    let path = "POST /apis/authentication.k8s.io/v1/tokenreviews";
    assert!(line.starts_with(path), "{line}");
    let audiences = &requests[0].body["spec"]["audiences"];
    assert_eq!(*audiences, json!([WEBHOOK_AUDIENCE]));
    Ok(())
}
