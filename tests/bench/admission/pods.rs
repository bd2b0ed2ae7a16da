//! The AdmissionReviews that are sent: the demo's pod, as a real API server sent it, with added environment
//! variables.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::admission_report::USUAL;

const REVIEW: &str = include_str!("../../demo/review.json");

/// That of a pod with 1,500 environment variables, for which an injector once took 15 s.
/// <https://github.com/istio/istio/issues/34799>
pub(crate) const LARGE: usize = 212;

/// The sizes of pods, in KiB, up to the limit of a request to the API server.
pub(crate) const SIZES: [usize; 6] = [4, USUAL, 64, LARGE, 1024, 3072];

/// The review of a pod.
#[derive(Debug)]
pub(crate) struct Review {
    /// The size of the pod.
    pub(crate) pod_kib: usize,
    pub(crate) body: Vec<u8>,
}

// === impl Review ===

impl Review {
    /// Returns the review of a pod that is at most one variable larger than this.
    pub(crate) fn of_pod(kib: usize) -> Result<Self> {
        let size = |count| {
            anyhow::Ok(
                with_variables(count)?["request"]["object"]
                    .to_string()
                    .len(),
            )
        };
        let of_one = size(1)?;
        let others = ((kib << 10) - of_one).div_ceil(size(2)? - of_one);
        let body = with_variables(1 + others)?.to_string().into_bytes();
        Ok(Self { pod_kib: kib, body })
    }
}

/// Returns the review with a second container that has `count` environment variables, each of which is
/// in `managedFields` as well.
fn with_variables(count: usize) -> Result<Value> {
    let mut review: Value = serde_json::from_str(REVIEW)?;
    let name = |n| format!("SETTING_{n:05}");
    let value = |n| format!("value of setting {n:05} of this container");
    let env: Vec<_> = (0..count)
        .map(|n| json!({ "name": name(n), "value": value(n) }))
        .collect();
    let fields: serde_json::Map<_, _> = (0..count)
        .map(|n| {
            let key = format!("k:{{\"name\":\"{}\"}}", name(n));
            (key, json!({ ".": {}, "f:name": {}, "f:value": {} }))
        })
        .collect();
    let pod = &mut review["request"]["object"];
    let containers = pod["spec"]["containers"].as_array_mut();
    containers.context("the pod has containers")?.push(json!({
        "name": "app",
        "image": "registry.example/shop/app:1.2.3",
        "env": env,
        "resources": {},
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }));
    let managed = &mut pod["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"];
    managed["k:{\"name\":\"app\"}"] =
        json!({ ".": {}, "f:name": {}, "f:image": {}, "f:env": fields });
    Ok(review)
}
