//! TLS as clients see it: which versions, which certificate, and how it changes.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustls::version::{TLS12, TLS13};
use tests::https::{HttpsClient, inject_request};
use tests::test_ca::{TestCa, TlsSecretMount};
use tests::timing::TIMEOUT;
use tests::webhook::{Webhook, assert_injected, review, server};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use webhook::certificates::files::Files;
use webhook::certificates::resolver::CertResolver;
use webhook::certificates::source::{self, CertificateSource};
use webhook::kubernetes::CertificateStore;
use webhook::metrics::Metrics;
use webhook::server::{Limits, MinVersion, Server};

#[tokio::test]
async fn a_client_that_trusts_another_authority_goes_away() {
    let server = Webhook::start(Limits::default()).await;
    let other = TestCa::new().unwrap();
    let mistrusting = HttpsClient::new(server.address, other.pem()).unwrap();
    let error = mistrusting.connect_tls().await.unwrap_err();
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
        let https =
            HttpsClient::with_protocols(server.address, &server.ca, &[&TLS13], protocols).unwrap();
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
async fn tls_1_2_is_refused_unless_it_is_allowed() {
    for (min_version, allowed) in [(MinVersion::Tls13, false), (MinVersion::Tls12, true)] {
        let (server, authority) = server(Limits::default());
        let server = Server {
            tls_min_version: min_version,
            ..server
        };
        let server = Webhook::run(server, authority).await;
        let old = HttpsClient::with_protocols(server.address, &server.ca, &[&TLS12], &["http/1.1"])
            .unwrap();
        assert_eq!(
            old.send(inject_request(review("old").bytes()))
                .await
                .is_ok(),
            allowed
        );
        server.assert_admits().await;
    }
}

#[tokio::test]
async fn a_certificate_swapped_under_load_fails_no_handshake() {
    let authority = TestCa::new().unwrap();
    let leaves: Vec<_> = (0..3).map(|_| authority.issue_leaf().unwrap()).collect();
    let mut mount = TlsSecretMount::new(&leaves[0]).unwrap();
    let (files, first) = Files::open(mount.certificate(), mount.key()).unwrap();
    let serving = Arc::new(CertResolver::new(first));
    let (mut server, _) = server(Limits::default());
    let metrics = Metrics::register(&mut server.registry);
    let server = Server {
        resolver: Arc::clone(&serving),
        ..server
    };
    let server = Webhook::run(server, authority.pem().to_owned()).await;
    let follower = tokio::spawn(async move {
        source::run(
            CertificateSource::<CertificateStore>::Files(files),
            &serving,
            &metrics,
        )
        .await
    });

    // Each client makes one connection after the other, and tells the certificate it was shown.
    let (shown, mut seen) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (https, shown) = (server.https.clone(), shown.clone());
        clients.spawn(async move {
            loop {
                let mut connection = https.connect().await.expect("a handshake");
                let response = connection.send(inject_request(review("x").bytes())).await;
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
        timeout(TIMEOUT, served)
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
    let response = kept
        .send(inject_request(review("kept").bytes()))
        .await
        .unwrap();
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
    timeout(TIMEOUT, refused).await.expect("it is counted");
    server.assert_admits().await;
    follower.abort();
}
