//! AdmissionReviews as the API server sends them, and what an answer makes of a pod.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drainer::Token;
use json_patch::Patch;
use serde_json::{Value, json};
use webhook::admission::{AdmissionOutcome, Defaults, InvalidReview, ReviewResponse, admit_pod};

/// The drainer's image in tests.
pub const IMAGE: &str = "registry.example/envoy-drainer/drainer:1.0.0";

/// The token of the pods that the tests admit, where each is to become the same on every run.
pub const TOKEN: u64 = 0x42d2_f756_a1c9_1d39;

/// The uid of a request that does not say otherwise.
pub const UID: &str = "8af10160-9365-4b2f-a286-4e5b18a6bb05";

/// An AdmissionReview in the making: a pod's creation in the namespace `shop`.
#[derive(Debug, Clone)]
pub struct ReviewBuilder(Value);

/// What an answer says, read as the API server reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionResult {
    /// The pod is admitted.
    pub allowed: bool,
    /// The pod as the patch leaves it.
    pub pod: Value,
    /// The change; empty where there is none.
    pub patch: Patch,
    /// The warnings for the client.
    pub warnings: Vec<String>,
    /// The reason of a refusal; else empty.
    pub message: String,
    /// What the answer reports to logs and metrics.
    pub outcome: AdmissionOutcome,
}

/// An installation's defaults in tests.
#[must_use]
pub fn defaults() -> Defaults {
    Defaults::new(IMAGE, "envoy-drainer")
}

/// Answers an AdmissionReview as the product does, but with [`TOKEN`].
///
/// # Errors
/// As [`answer`].
pub fn admit(body: &[u8], defaults: &Defaults) -> Result<ReviewResponse, InvalidReview> {
    admit_pod(body, defaults, || Token::new(TOKEN))
}

// === impl Review ===

impl ReviewBuilder {
    /// The review of a pod's creation.
    #[must_use]
    pub fn for_pod(pod: &Value) -> Self {
        let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
        let resource = json!({"group": "", "version": "v1", "resource": "pods"});
        Self(json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": UID,
                "kind": kind,
                "resource": resource,
                "requestKind": kind,
                "requestResource": resource,
                "namespace": "shop",
                "operation": "CREATE",
                "userInfo": {
                    "username": "system:serviceaccount:kube-system:replicaset-controller",
                    "uid": "e221989b-fd65-4609-845d-f5a16223fd64",
                    "groups": ["system:serviceaccounts", "system:authenticated"],
                },
                "object": pod,
                "oldObject": null,
                "dryRun": false,
                "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            }
        }))
    }

    /// Sets what is at a JSON pointer of the review, such as `/request/operation`.
    #[must_use]
    pub fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer has a slash");
        let parent = self
            .0
            .pointer_mut(parent)
            .expect("the parent is in the review");
        parent[key] = value.into();
        self
    }

    /// The review's bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("a value serialises")
    }

    /// Has the review answered.
    #[must_use]
    pub fn admit(&self, defaults: &Defaults) -> AdmissionResult {
        let answer = admit(&self.bytes(), defaults).expect("this is a review");
        AdmissionResult::read(&answer, self.0["request"]["object"].clone())
    }
}

// === impl Told ===

impl AdmissionResult {
    /// Reads an answer to a request for `pod`, and applies its patch to the pod.
    #[must_use]
    pub fn read(answer: &ReviewResponse, mut pod: Value) -> Self {
        let review: Value = serde_json::from_slice(&answer.body).expect("the answer is JSON");
        assert_eq!(review["kind"], "AdmissionReview");
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        let response = &review["response"];
        assert_eq!(response["uid"], answer.request.uid);
        let patch = match &response["patch"] {
            Value::Null => Patch::default(),
            patch => {
                assert_eq!(response["patchType"], "JSONPatch");
                let json = STANDARD.decode(patch.as_str().expect("the patch is a text"));
                let json = json.expect("the patch is base64");
                serde_json::from_slice(&json).expect("the patch is a JSON patch")
            }
        };
        assert_eq!(patch.0.is_empty(), response.get("patchType").is_none());
        json_patch::patch(&mut pod, &patch).expect("the patch applies");
        let warnings = response["warnings"].as_array();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        Self {
            allowed: response["allowed"].as_bool().expect("allowed is a boolean"),
            pod,
            patch,
            warnings: warnings.into_iter().flatten().map(text).collect(),
            message: response["status"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            outcome: answer.outcome,
        }
    }
}
