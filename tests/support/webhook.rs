//! The webhook's server in the test's process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use admission::{InvalidReview, ReviewResponse, admit_workload};
use bytes::Bytes;
use flags::serve::MinVersion;
use hyper::{Response, StatusCode};
use pki::clock::wall_clock;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use webhook::certificates::testing_api::{CertResolver, issue};
use webhook::drainer_api::{self, ApiServer, Features};
use webhook::metrics::registry;
use webhook::server::{self, DrainerApiPort, Limits, Server, ServerPorts};

use crate::http::Client;
use crate::https::{HttpsClient, HttpsConnection, inject_request};
use crate::review::{self, ReviewBuilder, defaults};
use crate::timing::TIMEOUT;

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A running server, which is aborted when this is dropped.
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
    /// The CA of the server's certificate, PEM.
    pub ca: String,
    /// Starts the graceful shutdown.
    pub shutdown: Option<oneshot::Sender<()>>,
    /// The task of the server.
    pub task: JoinHandle<()>,
}

/// A server before its start, and the PEM of its CA.
///
/// # Panics
/// When no certificate can be issued.
pub fn server(limits: Limits) -> (Server, String) {
    let names = vec!["localhost".to_owned()];
    let (ca, leaf) = issue(&names, wall_clock()).expect("localhost is a DNS name");
    let server = Server {
        admissions: vec![
            ("/inject", Box::new(admit)),
            (
                "/workloads",
                Box::new(|body| admit_workload(body, &defaults())),
            ),
        ],
        resolver: Arc::new(CertResolver::new(leaf)),
        tls_min_version: MinVersion::Tls13,
        client_ca: None,
        limits,
        registry: registry(),
        drainer_api: None,
        events: None,
    };
    (server, ca.pem())
}

/// The product's admission with the tests' defaults.
///
/// # Errors
/// As [`review::admit`].
pub fn admit(body: &[u8]) -> Result<ReviewResponse, InvalidReview> {
    review::admit(body, &defaults())
}

/// The review of a pod that requests a drainer and gets one.
pub fn review(uid: &str) -> ReviewBuilder {
    let pod = serde_json::from_str(include_str!("webhook/pod.json")).expect("the file is JSON");
    ReviewBuilder::for_pod(&pod).with("/request/uid", uid)
}

/// The review of a pod that requests a drainer and is skipped for its hook, made by the controller of this UID.
pub fn skipped_review(namespace: &str, owner_uid: &str) -> ReviewBuilder {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "edge-7f", "uid": owner_uid,
        "controller": true});
    let hook = json!({"preStop": {"sleep": {"seconds": 5}}});
    review("skipped")
        .with("/request/namespace", namespace)
        .with("/request/object/metadata/ownerReferences", json!([owner]))
        .with("/request/object/spec/containers/0/lifecycle", hook)
}

/// Sends [`review()`] on a connection, and asserts that the response is its.
///
/// # Panics
/// When it is not.
pub async fn assert_injects(connection: &mut HttpsConnection, uid: &str) -> Response<Bytes> {
    let response = connection.send(inject_request(review(uid).bytes())).await;
    let response = response.expect("a response");
    assert_injected(&response, uid);
    response
}

/// Parses the `response` of an AdmissionReview.
///
/// # Panics
/// When it is not an AdmissionReview.
pub fn admission_response(response: &Response<Bytes>) -> Value {
    assert_eq!(response.status(), StatusCode::OK, "{:?}", response.body());
    assert_eq!(response.headers()["content-type"], "application/json");
    let mut review: Value = serde_json::from_slice(response.body()).expect("JSON");
    review["response"].take()
}

/// Asserts that this is the response to [`review()`].
///
/// # Panics
/// When it is not.
pub fn assert_injected(response: &Response<Bytes>, uid: &str) {
    let response = admission_response(response);
    assert_eq!(response["uid"], uid);
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patchType"], "JSONPatch");
}

// === impl Webhook ===

impl Webhook {
    /// Starts a server with these limits.
    ///
    /// # Panics
    /// When it cannot start.
    pub async fn start(limits: Limits) -> Self {
        let (server, ca_pem) = server(limits);
        Self::run(server, ca_pem).await
    }

    /// Starts a server with the drainer API as well, and returns the port for drainers.
    ///
    /// # Panics
    /// When it cannot start.
    pub async fn start_with_drainer_api(
        api: impl ApiServer,
        features: Features,
    ) -> (Self, SocketAddr) {
        let (mut server, ca_pem) = server(Limits::default());
        let listener = server::listen(ANY_PORT).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let metrics = drainer_api::Metrics::register(&mut server.registry);
        server.drainer_api = Some(DrainerApiPort {
            listener,
            failed_handshakes: metrics.failed_handshakes.clone(),
            router: Box::new(move || Ok(drainer_api::router(api, features, &metrics))),
            limits: drainer_api::limits(Duration::ZERO),
        });
        (Self::run(server, ca_pem).await, address)
    }

    /// Starts this server, whose certificate this CA has issued.
    ///
    /// # Panics
    /// When it cannot start.
    pub async fn run(server: Server, ca_pem: String) -> Self {
        let [tls, health, metrics] =
            [ANY_PORT; 3].map(|any| server::listen(any).expect("a free port"));
        let address = |listener: &TcpListener| listener.local_addr().expect("it is bound");
        let [tls_address, health_address, metrics_address] = [&tls, &health, &metrics].map(address);
        let (shutdown, receiver) = oneshot::channel();
        let listeners = ServerPorts {
            tls,
            health,
            metrics,
        };
        let task = tokio::spawn(async move {
            let shutdown = async {
                // The sender is dropped at the end of a test.
                let _ = receiver.await;
            };
            let result = server::run(listeners, server, shutdown).await;
            result.expect("the server runs");
        });
        Self {
            https: HttpsClient::new(tls_address, &ca_pem).expect("the CA is PEM"),
            address: tls_address,
            health: health_address.into(),
            metrics: metrics_address.into(),
            ca: ca_pem,
            shutdown: Some(shutdown),
            task,
        }
    }

    /// Starts the graceful shutdown.
    pub fn stop(&mut self) {
        if let Some(shutdown) = self.shutdown.take() {
            // Fails if the server has stopped already.
            let _ = shutdown.send(());
        }
    }

    /// Sends [`review()`] on a new connection.
    ///
    /// # Panics
    /// Without a response.
    pub async fn inject(&self, uid: &str) -> Response<Bytes> {
        let response = self.https.inject(review(uid).bytes()).await;
        response.expect("a response")
    }

    /// Asserts that the server admits a pod on a new connection.
    ///
    /// # Panics
    /// When it does not.
    pub async fn assert_admits(&self) {
        let response = timeout(TIMEOUT, self.inject("fine")).await;
        assert_injected(&response.expect("in time"), "fine");
    }

    /// Reads the metric with this name and labels; `None` if it does not exist.
    ///
    /// # Panics
    /// When the metrics cannot be read.
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
