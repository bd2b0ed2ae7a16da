//! TLS as clients see it: versions, protocols, and a certificate that is replaced under load.

use anyhow::Result;
use flags::serve::MinVersion;
use rustls::crypto::ring;
use tests::api_server::FakeApiServer;
use tests::drainer_token::review_token;
use tests::http::Client;
use tests::https::{HttpsClient, inject_request};
use tests::test_ca::{Leaf, TestCa};
use tests::timing::TIMEOUT;
use tests::until::wait_until;
use tests::webhook::{Webhook, assert_injected, assert_injects, review, server};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use webhook::server::{Limits, Server};

use super::drainer_api::{ServeProcess, TLS_SECRET, tls_secret};

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

#[tokio::test]
async fn certificate_swapped_under_load_fails_no_handshake() -> Result<()> {
    let authority = TestCa::new()?;
    let leaves: Vec<_> = (0..3).map(|_| authority.issue_leaf().unwrap()).collect();
    let api_server = FakeApiServer::start_cluster([].into(), review_token).await?;
    let webhook = ServeProcess::start_with_secret(api_server, &authority, &leaves[0]).await?;
    let https = &webhook.server.https;
    let set_leaf = |leaf: &Leaf| {
        let secret = tls_secret(&authority, leaf);
        webhook.api_server.set_object(TLS_SECRET, &secret);
    };
    // Each client opens one connection after the other, and reports the certificate of each.
    let (reports, mut served_certificates) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (https, reports) = (https.clone(), reports.clone());
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
    let mut next_certificate = async || served_certificates.recv().await.expect("a client runs");
    let mut kept = https.connect().await?;
    for (swap, leaf) in leaves.iter().enumerate() {
        if swap > 0 {
            set_leaf(leaf);
        }
        let served = async { while next_certificate().await != leaf.der {} };
        timeout(TIMEOUT, served)
            .await
            .expect("the new certificate is served");
    }
    // From now on only the last one is served, except to connections that were being opened.
    let mut stale = 0;
    for _ in 0..50 {
        stale += usize::from(next_certificate().await != leaves[2].der);
    }
    assert!(stale < clients.len(), "{stale}");
    drop(served_certificates);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    // A connection from before still works.
    assert_injects(&mut kept, "kept").await;
    assert_eq!(kept.certificate(), leaves[0].der);

    let metrics = Client::from(webhook.server.metrics);
    let has_reloads = async |result: &str, wanted: u32| {
        let line =
            format!("envoy_drainer_certificate_reloads_total{{result=\"{result}\"}} {wanted}\n");
        anyhow::Ok(metrics.get("/metrics").await?.body.contains(&line))
    };
    let leaf = "\nenvoy_drainer_certificate_expiration_timestamp_seconds{certificate=\"leaf\"} ";
    assert!(metrics.get("/metrics").await?.body.contains(leaf));
    assert!(has_reloads("ok", 3).await?);
    assert!(has_reloads("failed", 0).await?);
    set_leaf(&Leaf {
        key: "no key".to_owned(),
        ..authority.issue_leaf()?
    });
    wait_until("it is counted", TIMEOUT, async || {
        Ok(!has_reloads("failed", 0).await?)
    })
    .await?;
    let response = https.inject(review("fine").bytes()).await?;
    assert_injected(&response, "fine");
    Ok(())
}
