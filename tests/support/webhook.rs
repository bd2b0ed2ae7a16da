//! An admission server in the test's own process.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use webhook::admission::{InvalidReview, ReviewResponse, admit_workload};
use webhook::certificates::testing_api::{CertResolver, InMemoryCa};
use webhook::clock::wall_clock;
use webhook::metrics::registry;
use webhook::server::{self, Limits, Metrics, MinVersion, Server, ServerPorts};

use crate::http::Client;
use crate::https::{HttpsClient, inject_request};
use crate::review::{self, ReviewBuilder, defaults};
use crate::timing::TIMEOUT;

/// A running server, which ends when this is dropped.
#[derive(Debug)]
pub struct Webhook {
    /// A client of the TLS port.
    pub https: HttpsClient,
    /// The TLS port.
    pub address: SocketAddr,
    /// A client of the port for probes.
    pub health: Client,
    /// A client of the port for metrics.
    pub metrics: Client,
    /// The authority of the server's certificate, PEM.
    pub ca: String,
    /// Told, the server ends gracefully.
    pub shutdown: Option<oneshot::Sender<()>>,
    /// The server's own task.
    pub task: JoinHandle<()>,
}

/// What a test's server serves with, but for what the test says otherwise.
///
/// # Panics
/// When no certificate can be made.
#[must_use]
pub fn server(limits: Limits) -> (Server, String) {
    let names = vec!["localhost".to_owned()];
    let (self_made, first) = InMemoryCa::try_new(names, wall_clock()).expect("localhost is a name");
    let mut registry = registry();
    let server = Server {
        admit: Box::new(admit),
        admit_workload: Box::new(|body| admit_workload(body, &defaults())),
        resolver: Arc::new(CertResolver::new(first)),
        tls_min_version: MinVersion::Tls13,
        client_ca: None,
        limits,
        metrics: Metrics::register(&mut registry),
        registry,
        events: None,
    };
    (server, self_made.ca_pem().to_owned())
}

/// The product's admission with the tests' defaults.
///
/// # Errors
/// As [`review::admit`].
pub fn admit(body: &[u8]) -> Result<ReviewResponse, InvalidReview> {
    review::admit(body, &defaults())
}

/// The review of a pod that asks for a drainer and gets one.
#[must_use]
pub fn review(uid: &str) -> ReviewBuilder {
    let pod = json!({
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
    });
    ReviewBuilder::for_pod(&pod).with("/request/uid", uid)
}

/// Reads the `response` of an admission's answer.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn admission_response(response: &Response<Bytes>) -> Value {
    assert_eq!(response.status(), StatusCode::OK, "{:?}", response.body());
    assert_eq!(response.headers()["content-type"], "application/json");
    let mut review: Value = serde_json::from_slice(response.body()).expect("JSON");
    review["response"].take()
}

/// Asserts that this is the answer to [`review()`].
///
/// # Panics
/// When it is not.
pub fn assert_injected(response: &Response<Bytes>, uid: &str) {
    let told = admission_response(response);
    assert_eq!(told["uid"], uid);
    assert_eq!(told["allowed"], true);
    assert_eq!(told["patchType"], "JSONPatch");
}

// === impl Webhook ===

impl Webhook {
    /// Starts a server with these limits.
    ///
    /// # Panics
    /// When it cannot start.
    pub async fn start(limits: Limits) -> Self {
        let (server, authority) = server(limits);
        Self::run(server, authority).await
    }

    /// Starts this server, whose certificate is of this authority.
    ///
    /// # Panics
    /// When it cannot start.
    pub async fn run(server: Server, ca_pem: String) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let [tls, health, metrics] = [any; 3].map(|any| server::listen(any).expect("a free port"));
        let address = |listener: &TcpListener| listener.local_addr().expect("it is bound");
        let [of_tls, of_health, of_metrics] = [&tls, &health, &metrics].map(address);
        let (stop, stopped) = oneshot::channel();
        let listeners = ServerPorts {
            tls,
            health,
            metrics,
        };
        let ended = tokio::spawn(async move {
            let stopped = async {
                // A test that is over drops the sender.
                let _ = stopped.await;
            };
            let served = server::run(listeners, server, stopped).await;
            served.expect("it can be served");
        });
        Self {
            https: HttpsClient::new(of_tls, &ca_pem).expect("the authority is PEM"),
            address: of_tls,
            health: of_health.into(),
            metrics: of_metrics.into(),
            ca: ca_pem,
            shutdown: Some(stop),
            task: ended,
        }
    }

    /// Tells the server to end.
    pub fn stop(&mut self) {
        if let Some(stop) = self.shutdown.take() {
            let _ = stop.send(());
        }
    }

    /// Asserts that the server goes on: it admits a pod on a new connection.
    ///
    /// # Panics
    /// When it does not.
    pub async fn assert_admits(&self) {
        let response = timeout(
            TIMEOUT,
            self.https.send(inject_request(review("fine").bytes())),
        );
        let response = response.await.expect("in time").expect("an answer");
        assert_injected(&response, "fine");
    }

    /// Reads the metric with this name and labels; `None` where there is none.
    ///
    /// # Panics
    /// When there are no metrics.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let metrics = self.metrics.get("/metrics").await.expect("metrics").body;
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}
