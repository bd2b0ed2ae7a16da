//! TLS as clients see it: versions, protocols, and a certificate that is replaced under load.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flags::serve::MinVersion;
use pki::clock::wall_clock;
use rustls::crypto::ring;
use tests::https::{HttpsClient, inject_request};
use tests::test_ca::{Leaf, TestCa};
use tests::timing::TIMEOUT;
use tests::webhook::{Webhook, assert_injected, inject, review, server};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use webhook::certificates::testing_api::{
    Bundle, CertResolver, CertificateReconciler, Cluster, Metrics, Mode, Secret, SecretData,
    StoreError, Webhooks,
};
use webhook::metrics::{encode, registry};
use webhook::server::{Limits, Server};

#[tokio::test]
async fn client_of_another_ca_closes_the_connection() {
    let server = Webhook::start(Limits::default()).await;
    let other_ca = TestCa::new().unwrap();
    let https = HttpsClient::new(server.address, other_ca.pem()).unwrap();
    let error = https.connect_tls().await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    server.assert_admits().await;
}

#[tokio::test]
async fn http_1_1_is_the_only_protocol() {
    let server = Webhook::start(Limits::default()).await;
    for (protocols, agreed) in [
        (["h2", "http/1.1"].as_slice(), Some(Some("http/1.1"))),
        (&[], Some(None)),
        (&["h2"], None),
    ] {
        let https = server.https.clone().with_protocols(protocols);
        let stream = https.connect_tls().await.ok();
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
async fn tls_1_2_is_rejected_unless_allowed() {
    for (min_version, allowed) in [(MinVersion::Tls13, false), (MinVersion::Tls12, true)] {
        let (server, authority) = server(Limits::default());
        let server = Server {
            tls_min_version: min_version,
            ..server
        };
        let server = Webhook::run(server, authority).await;
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|it| it.tls13().is_none());
        let old = HttpsClient::with_provider(server.address, &server.ca, provider).unwrap();
        assert_eq!(old.inject(review("old").bytes()).await.is_ok(), allowed);
        server.assert_admits().await;
    }
}

/// A cluster with the TLS Secret and a webhook.
#[derive(Clone)]
struct MemoryCluster {
    secret: watch::Sender<Secret>,
    webhooks: Arc<Mutex<Webhooks>>,
}

impl MemoryCluster {
    fn new(secret: SecretData) -> Self {
        let (secret, _) = watch::channel(Secret {
            resource_version: "1".to_owned(),
            data: secret,
            rotate: None,
        });
        let webhooks = Webhooks {
            resource_version: "1".to_owned(),
            bundles: vec![("pods".to_owned(), Bundle::default())],
            written_at: None,
        };
        Self {
            secret,
            webhooks: Arc::new(Mutex::new(webhooks)),
        }
    }

    fn set(&self, data: SecretData) {
        self.secret.send_modify(|secret| secret.data = data);
    }
}

impl Cluster for MemoryCluster {
    async fn secret(&self) -> Result<Option<Secret>, StoreError> {
        Ok(Some(self.secret.borrow().clone()))
    }

    async fn create_secret(&self) -> Result<(), StoreError> {
        unreachable!("the Secret exists")
    }

    async fn write_secret(&self, _: &Secret, _: SecretData) -> Result<(), StoreError> {
        unreachable!("another issuer writes the Secret")
    }

    async fn webhooks(&self) -> Result<Option<Webhooks>, StoreError> {
        Ok(Some(self.webhooks.lock().unwrap().clone()))
    }

    async fn write_bundles(&self, webhooks: &Webhooks) -> Result<(), StoreError> {
        webhooks.clone_into(&mut self.webhooks.lock().unwrap());
        Ok(())
    }

    async fn has_endpoint(&self) -> bool {
        unreachable!("another issuer writes the Secret")
    }

    async fn changed(&self) {
        // A change before this call may be missed, so it is read again soon.
        let _ = timeout(Duration::from_millis(50), self.secret.subscribe().changed()).await;
    }
}

fn secret_data(ca: &TestCa, leaf: &Leaf) -> SecretData {
    let keys = [
        ("ca.crt", ca.pem()),
        ("tls.crt", &leaf.certificate),
        ("tls.key", &leaf.key),
    ];
    keys.map(|(key, pem)| (key.to_owned(), pem.into())).into()
}

#[tokio::test]
async fn certificate_swapped_under_load_fails_no_handshake() {
    let authority = TestCa::new().unwrap();
    let leaves: Vec<_> = (0..3).map(|_| authority.issue_leaf().unwrap()).collect();
    let cluster = MemoryCluster::new(secret_data(&authority, &leaves[0]));
    let serving = Arc::new(CertResolver::default());
    let mut registry = registry();
    let metrics = Metrics::register(&mut registry);
    let mode = Mode::Secret {
        activation_delay: Duration::from_secs(120),
    };
    let mut reconciler = CertificateReconciler::new(cluster.clone(), Vec::new(), mode);
    let first = reconciler.reconcile(wall_clock(), &serving, &metrics).await;
    assert!(first.failures.is_empty(), "{:?}", first.failures);
    let (server, _) = server(Limits::default());
    let server = Server {
        resolver: Arc::clone(&serving),
        ..server
    };
    let server = Webhook::run(server, authority.pem().to_owned()).await;
    let follower = tokio::spawn(async move { reconciler.run(&serving, &metrics).await });

    // Each client opens one connection after the other, and reports the certificate of each.
    let (reports, mut served_certificates) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (https, reports) = (server.https.clone(), reports.clone());
        clients.spawn(async move {
            loop {
                let mut connection = https.connect().await.expect("a handshake");
                let response = connection.send(inject_request(review("x").bytes())).await;
                assert_injected(&response.expect("an answer"), "x");
                if reports.send(connection.certificate().to_vec()).is_err() {
                    return;
                }
            }
        });
    }
    drop(reports);
    let mut kept = server.https.connect().await.unwrap();
    for (swap, leaf) in leaves.iter().enumerate() {
        if swap > 0 {
            cluster.set(secret_data(&authority, leaf));
        }
        let served = async {
            while served_certificates
                .recv()
                .await
                .expect("clients are running")
                != leaf.der
            {}
        };
        timeout(TIMEOUT, served)
            .await
            .expect("the new certificate is served");
    }
    // From now on only the last one is served, except to connections that were being opened.
    let mut stale = 0;
    for _ in 0..50 {
        let certificate = served_certificates
            .recv()
            .await
            .expect("clients are running");
        stale += usize::from(certificate != leaves[2].der);
    }
    assert!(stale < clients.len(), "{stale}");
    drop(served_certificates);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    // A connection from before still works.
    let response = inject(&mut kept, "kept").await;
    assert_injected(&response, "kept");
    assert_eq!(kept.certificate(), leaves[0].der);

    let has_reloads = |result: &str, wanted: u32| {
        let line =
            format!("envoy_drainer_certificate_reloads_total{{result=\"{result}\"}} {wanted}\n");
        encode(&registry).contains(&line)
    };
    assert!(has_reloads("ok", 3), "{}", encode(&registry));
    assert!(has_reloads("failed", 0), "{}", encode(&registry));
    let no_key = Leaf {
        key: "no key".to_owned(),
        ..authority.issue_leaf().unwrap()
    };
    cluster.set(secret_data(&authority, &no_key));
    let refused = async {
        while has_reloads("failed", 0) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, refused).await.expect("it is counted");
    server.assert_admits().await;
    follower.abort();
}
