//! `CertificateStore` against a scripted API server: its requests, and how it interprets responses.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use kube::Config;
use serde_json::{Value, json};
use tests::api_server::{self, FakeApiServer, RecordedRequest, Reply};
use tests::test_ca::TestCa;
use tokio::time::{Instant, timeout};
use webhook::api_clients::CertificateStore;
use webhook::certificates::testing_api::{
    Bundle, Cluster, Secret, SecretData, StoreError, Webhooks,
};

const SECRET: &str = "/api/v1/namespaces/ns/secrets/s";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/w";

async fn open() -> (FakeApiServer, CertificateStore) {
    open_for_hosts(&[]).await
}

/// Opens the store of a webhook that is reached at these hosts.
async fn open_for_hosts(hosts: &[&str]) -> (FakeApiServer, CertificateStore) {
    let api = FakeApiServer::start().await.unwrap();
    let config = Config::new(api.url().parse().unwrap());
    let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
    let store = CertificateStore::from_config(config, "ns", "s".into(), "w".into(), hosts).unwrap();
    (api, store)
}

/// Takes the first request since the last call, which must have this line.
#[track_caller]
fn take_request(api: &FakeApiServer, line: &str) -> RecordedRequest {
    let request = api.take_requests().remove(0);
    assert_eq!(request.request_line, line);
    request
}

fn failure(code: u16, reason: &str) -> Reply {
    let (code, status) = api_server::failure(code, reason, reason);
    Reply::Response(code, status)
}

/// Managed fields that any client may write, and k8s-openapi cannot decode.
fn undecodable_fields() -> Value {
    json!([{ "manager": "other", "operation": "Update", "time": "9999-12-31T23:59:59Z" }])
}

fn secret() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "s",
            "resourceVersion": "7",
            "annotations": { "envoy-drainer.dev/rotate": "é".repeat(200) },
            "managedFields": undecodable_fields(),
        },
        "data": { "a": "AQI=" },
    })
}

fn configuration(bundle: &Bundle) -> Value {
    let pem = base64(bundle.pem());
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": "w",
            "resourceVersion": "8",
            "managedFields": [
                {
                    "manager": "envoy-drainer-cabundle",
                    "operation": "Apply",
                    "time": "1970-01-01T00:01:40Z",
                },
                { "manager": "helm", "operation": "Update", "time": "1980-01-01T00:00:00Z" },
                undecodable_fields()[0],
            ],
        },
        "webhooks": [entry("one", &json!({ "caBundle": pem })), entry("two", &json!({}))],
    })
}

/// An entry of a webhook configuration.
fn entry(name: &str, client_config: &Value) -> Value {
    json!({
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": client_config,
    })
}

fn base64(text: String) -> String {
    let value = serde_json::to_value(k8s_openapi::ByteString(text.into_bytes())).unwrap();
    value.as_str().unwrap().to_owned()
}

fn secret_with(data: SecretData) -> Secret {
    Secret {
        resource_version: "7".into(),
        data,
        rotate: None,
    }
}

fn trusted() -> Bundle {
    Bundle::read(TestCa::new().unwrap().pem().as_bytes())
}

#[tokio::test]
async fn objects_are_read_or_missing() {
    let (api, store) = open().await;
    api.set_response(200, &secret());
    let want = Secret {
        rotate: Some("é".repeat(126)),
        ..secret_with(BTreeMap::from([("a".to_owned(), vec![1, 2])]))
    };
    assert_eq!(store.secret().await.unwrap(), Some(want));
    take_request(&api, &format!("GET {SECRET}"));
    let bundle = trusted();
    api.set_response(200, &configuration(&bundle));
    let found = store.webhooks().await.unwrap().unwrap();
    assert_eq!(found.resource_version, "8");
    let want = [
        ("one".to_owned(), bundle),
        ("two".into(), Bundle::default()),
    ];
    assert_eq!(found.bundles, want);
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
    assert_eq!(found.written_at, Some(written));
    let mut unmanaged = configuration(&trusted());
    unmanaged["metadata"]["managedFields"] = Value::Null;
    api.set_response(200, &unmanaged);
    assert_eq!(store.webhooks().await.unwrap().unwrap().written_at, None);
    take_request(&api, &format!("GET {WEBHOOKS}"));
    api.set_reply(failure(404, "NotFound"));
    assert_eq!(store.secret().await.unwrap(), None);
    assert_eq!(store.webhooks().await.unwrap(), None);
}

#[tokio::test]
async fn entries_for_other_hosts_are_ignored() {
    let (api, store) = open_for_hosts(&["w.ns.svc", "10.0.0.1"]).await;
    let service =
        |name: &str, namespace: &str| json!({"service": {"name": name, "namespace": namespace}});
    let entries = [
        ("own", service("w", "ns")),
        ("other-name", service("v", "ns")),
        ("other-namespace", service("w", "other")),
        ("url", json!({"url": "https://10.0.0.1:8443/inject"})),
        ("other-url", json!({"url": "https://example.com/10.0.0.1"})),
        ("none", json!({})),
    ];
    let mut all = configuration(&trusted());
    let entries = entries.map(|(name, client_config)| entry(name, &client_config));
    all["webhooks"] = entries.into_iter().collect();
    api.set_response(200, &all);
    let found = store.webhooks().await.unwrap().unwrap();
    let names: Vec<_> = found.bundles.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["own", "url"]);
}

#[tokio::test]
async fn secret_is_created_empty_and_written_at_its_resource_version() {
    let (api, store) = open().await;
    api.set_response(200, &secret());
    let write = format!("PATCH {SECRET}?&fieldManager=envoy-drainer");
    store.create_secret().await.unwrap();
    let request = take_request(&api, &write);
    assert_eq!(request.content_type, "application/apply-patch+yaml");
    let want = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } });
    assert_eq!(request.body, want);

    let [before, after] = [("b", vec![3]), ("a", vec![1, 2])]
        .map(|(key, value)| BTreeMap::from([(key.to_owned(), value)]));
    let secret = secret_with(before);
    store.write_secret(&secret, after).await.unwrap();
    let request = take_request(&api, &write);
    assert_eq!(request.content_type, "application/merge-patch+json");
    let want = json!({
        "metadata": { "resourceVersion": "7" },
        "data": { "a": "AQI=", "b": null },
    });
    assert_eq!(request.body, want);
}

#[tokio::test]
async fn only_ca_bundles_are_applied_by_force() {
    let (api, store) = open().await;
    let bundle = trusted();
    api.set_response(200, &configuration(&bundle));
    let webhooks = Webhooks {
        resource_version: "8".into(),
        bundles: vec![
            ("one".into(), bundle.clone()),
            ("two".into(), bundle.clone()),
        ],
        written_at: None,
    };
    store.write_bundles(&webhooks).await.unwrap();
    let apply = format!("PATCH {WEBHOOKS}?&force=true&fieldManager=envoy-drainer-cabundle");
    let request = take_request(&api, &apply);
    assert_eq!(request.content_type, "application/apply-patch+yaml");
    let client = json!({ "caBundle": base64(bundle.pem()) });
    let want = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "w", "resourceVersion": "8" },
        "webhooks": [
            { "name": "one", "clientConfig": client },
            { "name": "two", "clientConfig": client },
        ],
    });
    assert_eq!(request.body, want);
}

#[tokio::test]
async fn failed_writes_are_not_retried_and_conflicts_distinct() {
    for (code, reason, conflict) in [
        (409, "Conflict", true),
        (403, "Forbidden", false),
        (429, "TooManyRequests", false),
        (503, "ServiceUnavailable", false),
    ] {
        let (api, store) = open().await;
        api.set_reply(failure(code, reason));
        let webhooks = Webhooks {
            resource_version: "8".into(),
            bundles: Vec::new(),
            written_at: None,
        };
        for failed in [
            store.write_bundles(&webhooks).await.unwrap_err(),
            store
                .write_secret(&secret_with(SecretData::new()), SecretData::new())
                .await
                .unwrap_err(),
        ] {
            let is_conflict = matches!(failed, StoreError::Conflict { .. });
            assert_eq!(is_conflict, conflict, "{reason}: {failed:?}");
            let is_other = matches!(failed, StoreError::Other { .. });
            assert_eq!(is_other, !conflict, "{reason}: {failed:?}");
        }
        // The next reconcile retries.
        assert_eq!(api.take_requests().len(), 2, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_response_is_a_timeout() {
    let (api, store) = open().await;
    api.set_reply(Reply::NoResponse);
    let failed = store.secret().await.unwrap_err();
    assert!(matches!(failed, StoreError::Timeout { .. }), "{failed:?}");
}

#[tokio::test]
async fn changes_notify_and_bookmarks_do_not() {
    let soon = Duration::from_millis(300);
    let event = |kind: &str| {
        json!({
            "type": kind,
            "object": {
                "apiVersion": "meta.k8s.io/v1",
                "kind": "PartialObjectMetadata",
                "metadata": {
                    "name": "s", "resourceVersion": "9", "managedFields": undecodable_fields(),
                },
            },
        })
    };
    for (kind, want) in [("MODIFIED", true), ("DELETED", true), ("BOOKMARK", false)] {
        let (api, store) = open().await;
        api.set_watch_reply(Reply::WatchEvents(vec![event(kind)]));
        let notified = timeout(soon, store.changed()).await.is_ok();
        assert_eq!(notified, want, "{kind}");
        let watches = api.watches();
        assert_eq!(watches.len(), 2, "{watches:?}");
        for line in watches {
            assert!(line.contains("fieldSelector=metadata.name%3D"), "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn watch_is_reopened_after_a_timeout() {
    for reply in [Reply::NoResponse, Reply::WatchEvents(Vec::new())] {
        let (api, store) = open().await;
        api.set_watch_reply(reply.clone());
        let start = Instant::now();
        let reopened = async {
            while api.watches().len() < 4 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let reopened = timeout(Duration::from_secs(600), reopened).await;
        assert!(reopened.is_ok(), "{reply:?}: {:?}", api.watches());
        // Not before the API server closes it.
        assert!(start.elapsed() > Duration::from_secs(290), "{reply:?}");
        drop(store);
    }
}
