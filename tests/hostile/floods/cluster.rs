//! The cluster of attacks on the drainer API: namespaces with as many endpoints as the webhook reads, and large Pods.

use std::fmt::Write as _;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use serde_json::json;
use tests::api_server::{FakeApiServer, Responses};
use tests::drainer_token::{pod_token, review_token};
use tests::https::drainer_request;

/// Namespaces with endpoints: more than the webhook keeps at a time.
const NAMESPACES: u32 = 8;

/// Pages of each, with 50 slices of 1,000 endpoints, the most that the API server allows in a slice.
const PAGES: u32 = 2;

/// Starts the API server of the cluster.
pub(crate) async fn largest_cluster() -> Result<FakeApiServer> {
    let mut responses = Responses::new();
    let pod = largest_pod();
    for namespace in 0..NAMESPACES {
        let namespace = namespace_name(namespace);
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        for page in 0..PAGES {
            let (path, next) = match page {
                0 => (path.clone(), page + 1),
                _ => (format!("{path}?continue={page}"), page + 1),
            };
            let next = if next < PAGES {
                next.to_string()
            } else {
                String::new()
            };
            responses.insert(path, (200, endpoint_page(page, &next)));
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/edge");
        responses.insert(path, (200, pod.clone()));
    }
    FakeApiServer::start_cluster(responses, review_token).await
}

/// A token of the pod with this number.
pub(crate) fn token(pod: u32, signature: &str) -> String {
    let namespace = namespace_name(pod % NAMESPACES);
    pod_token(&namespace, "edge", &pod.to_string(), signature)
}

/// A request of a drainer: a question, or the report of a drain that cut something.
pub(crate) fn drainer_api_request(path: &str, token: &str) -> Request<Full<Bytes>> {
    const CUT: &str = r#"{"drain": {"outcome": "deadline", "seconds": 60, "peak": 9,
        "remaining": {"connections": 9, "requests": 3, "upgrades": 1, "tcp": 0, "byListener": {}}}}"#;
    match path {
        "/report" => drainer_request("POST", path, Some(token), CUT),
        _ => drainer_request("GET", path, Some(token), ""),
    }
}

fn namespace_name(number: u32) -> String {
    format!("shop-{number}")
}

/// A page of just less than the 4 MiB that the webhook reads.
fn endpoint_page(page: u32, next: &str) -> String {
    let slice = |slice: u32| {
        let mut endpoints = String::new();
        for n in 0..1_000 {
            let uid = (page * 50 + slice) * 1_000 + n;
            let comma = if n == 0 { "" } else { "," };
            write!(
                endpoints,
                r#"{comma}{{"addresses":["::1"],"conditions":{{}},"targetRef":{{"kind":"Pod","uid":"{uid}"}}}}"#
            )
            .expect("a String can always be written to");
        }
        format!(
            r#"{{"metadata":{{"labels":{{"kubernetes.io/service-name":"s{slice}"}}}},"addressType":"IPv6","endpoints":[{endpoints}]}}"#
        )
    };
    let slices: Vec<_> = (0..50).map(slice).collect();
    let slices = slices.join(",");
    let page = format!(r#"{{"metadata":{{"continue":"{next}"}},"items":[{slices}]}}"#);
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    page
}

/// A Pod of nearly 2 MiB, more than etcd stores by default (1.5 MiB).
fn largest_pod() -> String {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"});
    let owners = vec![owner; 30_000];
    let pod = json!({"metadata": {"uid": "1", "ownerReferences": owners}}).to_string();
    assert!(pod.len() < 2 << 20, "{} bytes", pod.len());
    pod
}
