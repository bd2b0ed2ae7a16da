//! Tokens of drainers, and an API server's review of them.

use admission::WEBHOOK_AUDIENCE;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::api_server::failure_status;

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
pub fn pod_claims(token: &str) -> Value {
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
