//! Tokens of drainers, and API servers that review them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use admission::WEBHOOK_AUDIENCE;
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::sync::watch;
use webhook::drainer_api::{ApiServer, EndpointSlicePage, PodIdentity};

use crate::api_server::failure_status;

/// The API server of a cluster in this process, for the webhook's port for drainers. Clones are the same one.
#[derive(Debug, Clone)]
pub struct MemoryApiServer {
    /// The number of tokens that it was asked to review.
    pub reviews: Arc<AtomicUsize>,
    /// Whether it responds to reviews now.
    pub answers: watch::Sender<bool>,
    slices: Arc<Mutex<Vec<Value>>>,
}

/// A token with these claims. [`review_token`] accepts the signature `valid`.
pub fn token_with(claims: &Value, signature: &str) -> String {
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    format!("e30.{claims}.{signature}")
}

/// The token of a pod, for the webhook.
pub fn pod_token(namespace: &str, name: &str, uid: &str, signature: &str) -> String {
    let pod = json!({"namespace": namespace, "pod": {"name": name, "uid": uid}});
    let claims = json!({"aud": [WEBHOOK_AUDIENCE], "kubernetes.io": pod});
    token_with(&claims, signature)
}

/// The claims about the pod of a token; null if it has none.
fn pod_claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).unwrap_or_default();
    let claims = URL_SAFE_NO_PAD.decode(claims).unwrap_or_default();
    let mut claims: Value = serde_json::from_slice(&claims).unwrap_or_default();
    claims["kubernetes.io"].take()
}

/// Responds to the creation of a TokenReview, as the API server does.
pub fn review_token(request: Value) -> (u16, Value) {
    if request["kind"] != "TokenReview" {
        return failure_status(404, "NotFound", "not a TokenReview");
    }
    let token = request["spec"]["token"].as_str().unwrap_or_default();
    let claims = pod_claims(token);
    let namespace = claims["namespace"].as_str().unwrap_or_default();
    let status = if token.ends_with(".valid") {
        json!({
            "authenticated": true,
            "audiences": request["spec"]["audiences"],
            "user": {
                "username": format!("system:serviceaccount:{namespace}:default"),
                "extra": {
                    "authentication.kubernetes.io/pod-name": [claims["pod"]["name"]],
                    "authentication.kubernetes.io/pod-uid": [claims["pod"]["uid"]],
                },
            },
        })
    } else {
        json!({"error": "invalid bearer token"})
    };
    let mut review = request;
    review["status"] = status;
    (201, review)
}

/// An EndpointSlice of the Service `edge` with these pods, by UID, and whether each is ready.
pub fn slice(pods: &[(&str, bool)]) -> Value {
    let endpoints = pods.iter().map(|(uid, ready)| {
        // Ready, or terminating and still serving.
        let conditions = json!({"ready": ready, "serving": true, "terminating": !ready});
        json!({"addresses": ["10.0.0.1"], "conditions": conditions,
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": uid, "uid": uid}})
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "edge-x", "labels": {"kubernetes.io/service-name": "edge"}},
        "addressType": "IPv4",
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

// === impl MemoryApiServer ===

impl MemoryApiServer {
    /// Sets the EndpointSlices of each namespace.
    pub fn set_slices(&self, slices: Vec<Value>) {
        *self.slices.lock().unwrap_or_else(PoisonError::into_inner) = slices;
    }
}

impl Default for MemoryApiServer {
    fn default() -> Self {
        Self {
            reviews: Arc::default(),
            answers: watch::Sender::new(true),
            slices: Arc::default(),
        }
    }
}

impl ApiServer for MemoryApiServer {
    async fn review_token(&self, token: &str) -> Result<Option<PodIdentity>> {
        self.reviews.fetch_add(1, Ordering::Relaxed);
        let mut answers = self.answers.subscribe();
        answers.wait_for(|&answers| answers).await?;
        let uid = &pod_claims(token)["pod"]["uid"];
        Ok(token.ends_with(".valid").then(|| PodIdentity {
            namespace: "shop".to_owned(),
            name: "edge-1".to_owned(),
            uid: uid.as_str().unwrap_or_default().to_owned(),
        }))
    }

    async fn endpoint_slices(&self, _: &str, _: Option<&str>) -> Result<EndpointSlicePage> {
        let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(EndpointSlicePage {
            slices: serde_json::from_value(Value::Array(slices.clone()))?,
            next: None,
        })
    }
}
