//! Events as the API server sees them, from reviews that any pod of the cluster can forge.

use std::time::Duration;

use kube::Config;
use serde_json::{Value, json};
use tests::api_server::{FakeApiServer, RecordedRequest};
use tests::https::inject_request;
use tests::review::ReviewBuilder;
use tests::timing::TIMEOUT;
use tests::webhook::{Webhook, server, skipped_review};
use tokio::time::{sleep, timeout};
use webhook::api_clients::CertificateStore;
use webhook::events::{Metrics, QUEUE_CAPACITY, publish, queue};
use webhook::server::Limits;

/// A namespace that the chart excludes.
const EXCLUDED: &str = "bank";

/// Returns the requests to the API server that follow these reviews, up to the Event of the last one.
async fn requests_for(reviews: impl IntoIterator<Item = ReviewBuilder>) -> Vec<RecordedRequest> {
    let api = FakeApiServer::start().await.unwrap();
    api.set_response(201, &json!({"metadata": {}}));
    let config = Config::new(api.url().parse().unwrap());
    let objects =
        CertificateStore::from_config(config, "ns", "s".into(), "w".into(), Vec::new()).unwrap();
    let events = objects.event_writer("webhook-1".to_owned());
    let (mut server, ca) = server(Limits::default());
    let metrics = Metrics::register(&mut server.registry);
    let (sender, receiver) = queue(QUEUE_CAPACITY, &metrics);
    server.events = Some(sender);
    let server = Webhook::run(server, ca).await;
    let driven = async {
        let mut connection = server.https.connect().await.unwrap();
        for review in reviews.into_iter().chain([skipped_review("last", "last")]) {
            let answer = connection.send(inject_request(review.bytes()));
            timeout(TIMEOUT, answer).await.expect("in time").unwrap();
        }
        let mut all = Vec::new();
        while !all.iter().any(is_last_request) {
            all.append(&mut api.take_requests());
            sleep(Duration::from_millis(10)).await;
        }
        all.retain(|request| !is_last_request(request));
        all
    };
    let excluded = [EXCLUDED.to_owned()];
    tokio::select! {
        never = publish(receiver, &excluded, &metrics, async |series| events.write(series).await) => match never {},
        requests = timeout(TIMEOUT, driven) => requests.expect("the last Event is written"),
    }
}

fn is_last_request(request: &RecordedRequest) -> bool {
    request.request_line.contains("/last/")
}

#[tokio::test]
async fn forged_reviews_reach_no_other_path_or_excluded_namespace() {
    let path = "../../../../api/v1/namespaces/envoy-drainer/secrets/ca?x=";
    let own = tests::review::defaults().release_namespace;
    let uid = "0b7c5a3e-6f0e-4f0c-9d5b-2f3a4c5d6e7f";
    let namespaces = [
        "",
        ".",
        "..",
        "a/b",
        "a%2fb",
        "A",
        "kube-system",
        EXCLUDED,
        &own,
        path,
    ];
    let uids = ["", "..", "a/b", "a?force=true", "a%2fb", path];
    let names = ["", "..", "a/b", "Edge", path];
    let with_name = |name: &str| {
        skipped_review("shop", uid).with("/request/object/metadata/ownerReferences/0/name", name)
    };
    let forged = (namespaces
        .iter()
        .map(|namespace| skipped_review(namespace, uid)))
    .chain(uids.iter().map(|uid| skipped_review("shop", uid)))
    .chain(names.iter().map(|name| with_name(name)));
    let requests = requests_for(forged).await;
    let lines = requests.iter().map(|request| &request.request_line);
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines, Vec::<&String>::new());
}

#[tokio::test]
async fn forged_review_flood_is_limited_to_25_short_events() {
    let name = json!("e\u{1b}[31m\u{202e}\u{200b}".repeat(2000));
    let forged = (0..500).map(|owner| {
        skipped_review("shop", &format!("u{owner}"))
            .with("/request/object/spec/containers/0/name", name.clone())
    });
    let requests = requests_for(forged).await;
    assert_eq!(requests.len(), 25);
    for RecordedRequest {
        request_line, body, ..
    } in &requests
    {
        let path = "PATCH /apis/events.k8s.io/v1/namespaces/shop/events/u";
        assert!(request_line.starts_with(path), "{request_line}");
        let Value::String(note) = &body["note"] else {
            panic!("{body}")
        };
        assert!(note.len() < 512, "{}", note.len());
        let is_hidden = |char: char| char.is_control() || "\u{202e}\u{200b}".contains(char);
        assert!(!note.contains(is_hidden), "{note:?}");
    }
}
