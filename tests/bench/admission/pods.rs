//! The AdmissionReviews that are sent: the demo's pod, as a real API server sent it, with added environment
//! variables.

use anyhow::{Context, Result};
use serde_json::{Value, json};

const REVIEW: &str = include_str!("../../demo/review.json");

/// The size of an ordinary pod, in bytes.
const USUAL: usize = 8 << 10;

/// A request body and its name in the table.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the review of a pod of 8 KiB.
pub(crate) fn usual() -> Result<Body> {
    let reviews = (0..).map(with_variables);
    for review in reviews {
        let review = review?;
        if size(&review["request"]["object"]) >= USUAL {
            return Ok(body("a pod of 8 KiB", &review));
        }
    }
    unreachable!("each pod is larger than the one before")
}

/// Returns the review of a pod with 1,500 environment variables, for which an injector once took 15 s.
/// <https://github.com/istio/istio/issues/34799>
pub(crate) fn large() -> Result<Body> {
    Ok(body(
        "a pod with 1,500 environment variables",
        &with_variables(1_500)?,
    ))
}

/// Returns the review with a second container that has `count` environment variables, each of which is
/// in `managedFields` as well.
fn with_variables(count: usize) -> Result<Value> {
    let mut review: Value = serde_json::from_str(REVIEW)?;
    let name = |n| format!("SETTING_{n:04}");
    let value = |n| format!("value of setting {n} of this container");
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

fn body(name: &str, review: &Value) -> Body {
    let bytes = review.to_string().into_bytes();
    Body {
        name: format!("{name} ({} bytes of review)", bytes.len()),
        bytes,
    }
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}
