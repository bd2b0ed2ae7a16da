//! A builder of AdmissionReviews, and a parser of the responses.

use admission::{
    AdmissionOutcome, Defaults, Diagnostic, InvalidReview, OnInvalid, PodView, ReviewResponse,
    admit_pod, keys, remove,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drainer::Token;
use json_patch::Patch;
use serde_json::Value;

pub use crate::webhook_process::IMAGE;

/// The token of admitted pods, where the patch is to be the same on every run.
pub const TOKEN: u64 = 0x42d2_f756_a1c9_1d39;

/// An AdmissionReview, by default of a pod's creation in the namespace `shop`.
#[derive(Debug, Clone)]
pub struct ReviewBuilder(Value);

/// A response, as the API server reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionResult {
    /// Whether the pod is admitted.
    pub allowed: bool,
    /// The patched pod.
    pub pod: Value,
    /// The patch; empty without a change.
    pub patch: Patch,
    /// The warnings for the client.
    pub warnings: Vec<String>,
    /// The reason of a denial; otherwise empty.
    pub message: String,
    /// The outcome for logs and metrics.
    pub outcome: AdmissionOutcome,
}

/// The defaults of an installation in tests.
pub fn defaults() -> Defaults {
    Defaults::new(IMAGE, "envoy-drainer")
}

/// The same, where invalid values cause warnings.
pub fn lenient_defaults() -> Defaults {
    let on_invalid = OnInvalid::Warn;
    Defaults {
        on_invalid,
        ..defaults()
    }
}

/// Admits a pod as the product does, but with [`TOKEN`].
///
/// # Errors
/// As [`admit_pod`].
pub fn admit(body: &[u8], defaults: &Defaults) -> Result<ReviewResponse, InvalidReview> {
    admit_pod(body, false, defaults, || Token(TOKEN))
}

/// Takes the drainer out of a pod.
///
/// # Errors
/// If it is not recorded what the pod was like before.
///
/// # Panics
/// When it has no drainer.
pub fn without_drainer(mut pod: Value) -> Result<Value, Diagnostic> {
    let json = pod.to_string();
    let patch = remove(&PodView::decode(&json).expect("a pod"))?.expect("a drainer");
    json_patch::patch(&mut pod, &patch.operations()).expect("the patch applies");
    Ok(pod)
}

/// Returns the pod without empty parents of what is added, and without a status, to compare it with a pod whose
/// drainer was removed.
///
/// # Panics
/// When it has no annotations.
pub fn without_empty(mut pod: Value) -> Value {
    let prune = |parent: &mut Value, key: &str| {
        let is_empty = |value: &Value| match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            value => value.is_null(),
        };
        let parent = parent.as_object_mut();
        if let Some(parent) = parent.filter(|it| it.get(key).is_some_and(is_empty)) {
            parent.remove(key);
        }
    };
    let annotations = pod["metadata"]["annotations"].as_object_mut();
    annotations.expect("a map").remove(keys::STATUS);
    let spec = &mut pod["spec"];
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            prune(&mut container["lifecycle"], "preStop");
            prune(container, "lifecycle");
            prune(container, "args");
        }
    }
    for key in ["volumes", "initContainers", "terminationGracePeriodSeconds"] {
        prune(spec, key);
    }
    prune(&mut pod["metadata"], "labels");
    pod
}

// === impl ReviewBuilder ===

impl ReviewBuilder {
    /// The review of a pod's creation.
    pub fn for_pod(pod: &Value) -> Self {
        Self::from_json(include_str!("review/review.json")).with("/request/object", pod.clone())
    }

    /// A review as an API server has sent it.
    pub fn from_json(json: &str) -> Self {
        Self(serde_json::from_str(json).expect("the review is JSON"))
    }

    /// The object to admit.
    pub fn object(&self) -> &Value {
        &self.0["request"]["object"]
    }

    /// Sets the value at a JSON pointer of the review, such as `/request/operation`.
    pub fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let split = pointer.rsplit_once('/');
        let (parent, key) = split.expect("a JSON pointer contains a slash");
        let parent = self.0.pointer_mut(parent);
        let parent = parent.expect("the review has the parent");
        parent[key] = value.into();
        self
    }

    /// The review as JSON.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("a value can be serialized")
    }

    /// Admits the pod with [`TOKEN`].
    pub fn admit(&self, defaults: &Defaults) -> AdmissionResult {
        let response = admit(&self.bytes(), defaults).expect("this is a review");
        AdmissionResult::read(&response, self.object().clone())
    }

    /// Admits the pod in a namespace that requests drainers for all of its Envoys.
    pub fn admit_in_all(&self, defaults: &Defaults) -> AdmissionResult {
        let response = admit_pod(&self.bytes(), true, defaults, || Token(TOKEN));
        let response = response.expect("this is a review");
        AdmissionResult::read(&response, self.object().clone())
    }
}

// === impl AdmissionResult ===

impl AdmissionResult {
    /// Parses the response to a request for `pod`, and applies its patch to the pod.
    pub fn read(reviewed: &ReviewResponse, mut pod: Value) -> Self {
        let review: Value = serde_json::from_slice(&reviewed.body).expect("the response is JSON");
        assert_eq!(review["kind"], "AdmissionReview");
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        let response = &review["response"];
        assert_eq!(response["uid"], reviewed.request.uid);
        let patch = match &response["patch"] {
            Value::Null => Patch::default(),
            patch => {
                assert_eq!(response["patchType"], "JSONPatch");
                let json = STANDARD.decode(patch.as_str().expect("the patch is a string"));
                let json = json.expect("the patch is base64");
                serde_json::from_slice(&json).expect("the patch is a JSON patch")
            }
        };
        assert_eq!(patch.0.is_empty(), response.get("patchType").is_none());
        json_patch::patch(&mut pod, &patch).expect("the patch applies");
        let warnings = response["warnings"].as_array();
        let message = response["status"]["message"].as_str();
        let string = |value: &Value| value.as_str().expect("a string").to_owned();
        Self {
            allowed: response["allowed"].as_bool().expect("allowed is a boolean"),
            pod,
            patch,
            warnings: warnings.into_iter().flatten().map(string).collect(),
            message: message.unwrap_or_default().to_owned(),
            outcome: reviewed.outcome,
        }
    }

    /// The only warning.
    pub fn only_warning(&self) -> &str {
        let [warning] = &self.warnings[..] else {
            panic!("{:?}", self.warnings)
        };
        warning
    }
}
