//! AdmissionReviews: decodes the API server's request, and responds to that of a pod.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>

mod owner_notification;

use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drainer::Token;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::decide::{Decision, decide};
use super::decode::{DecodeError, check_limits, from_json};
use super::diagnostics::{Code, Diagnostic};
use super::excerpt::excerpt;
use super::patch::Patch;
use super::plan::PodContext;
use super::pod::{PodView, Text, or_default};
use super::settings::Defaults;

pub use self::owner_notification::{MAX_NOTE_LEN, Owner, SkippedPod};

/// Why a body cannot be answered with an AdmissionReview.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidReview(String);

pub(super) const API_VERSION: &str = "admission.k8s.io/v1";
pub(super) const KIND: &str = "AdmissionReview";

/// Maximum length of a name in a message, in bytes.
const MAX_NAME_LEN: usize = 253;

/// Maximum length of a parser's message, in bytes, since it may repeat a part of the body.
const MAX_ERROR_LEN: usize = 512;

/// How deep the members of a request are in a review.
const REQUEST_DEPTH: usize = 2;

/// Maximum length of a uid, in bytes: several times that of a UUID.
const MAX_UID_LEN: usize = 256;

/// Maximum length of a warning, in bytes. The API server truncates longer ones.
const MAX_WARNING_LEN: usize = 256;

/// Maximum number of warnings: about what the API server passes on in all.
const MAX_WARNINGS: usize = 16;

/// Maximum length of the message of a denial, in bytes. The API server passes on one line of it or all.
const MAX_MESSAGE_LEN: usize = 24 << 10;

/// Maximum length of a line of a denial with its remedy, in bytes.
const MAX_REASON_LEN: usize = 2304;

/// Maximum length of a response, in bytes. An injection takes some 5 KiB; only hostile input makes it much longer.
const MAX_RESPONSE_LEN: usize = 64 << 10;

/// Initial size of the buffer, in bytes: what an injection takes, so that it need not grow.
const INITIAL_CAPACITY: usize = 5120;

/// The beginning of the AdmissionReview of a response, which ends with a brace.
const RESPONSE_HEAD: &str =
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":"#;

/// The requests whose object admission reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFilter {
    PodCreation,
    /// The creation or the update of an object of any kind.
    Write,
}

/// The metadata of a request, and its object if the request passes the filter: the object itself, or its JSON if it
/// cannot be decoded.
pub(super) type DecodedReview<'a, O> = (RequestMeta, Option<Result<O, &'a str>>);

/// Metadata of a request, for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMeta {
    pub uid: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The object's name, or else the `name` or `generateName` of a pod that is created; empty if there is none.
    pub name: String,
    /// Whether the object will not be stored, so that no Event may report it.
    pub dry_run: bool,
}

/// The response to a review, and what is logged, counted and reported of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewResponse {
    /// The AdmissionReview to send back, as JSON.
    pub body: Vec<u8>,
    /// What the review says about its request.
    pub request: RequestMeta,
    pub outcome: AdmissionOutcome,
    /// Every reason and every warning of the decision.
    pub diagnostics: Vec<Diagnostic>,
    /// The pod, if its owner gets an Event about it.
    pub skipped_pod: Option<SkippedPod>,
}

/// What became of the object under review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionOutcome {
    /// The pod gets a drainer.
    Injected,
    /// The pod has a drainer, and what was changed of its injection is restored.
    Repaired,
    /// The pod requests a drainer and gets none.
    Skipped(Code),
    /// The pod is denied; the diagnostics say why.
    Denied,
    /// No drainer is requested, or a workload causes no warning.
    NotRequested,
    /// There is nothing to decide: the request does not create a pod, or does not write a workload.
    Ignored,
    /// The author of a workload is warned about its pods.
    Warned,
    /// The webhook failed; the pod is admitted unchanged.
    Failed(Code),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a, O: Deserialize<'de>")]
struct Envelope<'a, O> {
    api_version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    request: Option<ReviewRequest<'a, O>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a, O: Deserialize<'de>")]
struct ReviewRequest<'a, O> {
    uid: Option<Text<'a>>,
    #[serde(default, deserialize_with = "or_default")]
    kind: GroupVersionKind<'a>,
    sub_resource: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    name: Option<Text<'a>>,
    operation: Option<Text<'a>>,
    dry_run: Option<bool>,
    object: Option<O>,
}

#[derive(Default, Deserialize)]
#[serde(bound = "'de: 'a")]
struct GroupVersionKind<'a> {
    group: Option<Text<'a>>,
    version: Option<Text<'a>>,
    kind: Option<Text<'a>>,
}

/// A response. The one in kube encodes the patch as an array of numbers.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Responds to the AdmissionReview of a pod. If the webhook fails, the pod is admitted unchanged.
///
/// With `injects_all`, the pod's namespace requests drainers for all of its Envoys. `token` returns the pod's secret, a
/// new one for each pod; it may panic if it cannot.
///
/// # Errors
/// If no response to the body is possible, which is the caller's error.
pub fn admit_pod(
    body: &[u8],
    injects_all: bool,
    defaults: &Defaults,
    token: impl FnOnce() -> Token,
) -> Result<ReviewResponse, InvalidReview> {
    let (mut request, pod) = decode_review(body, RequestFilter::PodCreation)?;
    let Some(pod) = pod else {
        return Ok(allow(&request, AdmissionOutcome::Ignored, None, Vec::new()));
    };
    let (pod, decoded) = pod.map_or_else(decode_pod, |pod| (pod, Ok(())));
    let decision = decoded.map_err(|error| {
        let detail = format!("the pod could not be read, so it gets no drainer: {error}");
        Code::PodNotRead.diagnostic(detail)
    });
    let decision = decision.and_then(|()| {
        catch_panic(|| {
            // Whether it is in a Job is left to the pod's manifest.
            let context = PodContext {
                injects_all,
                ..PodContext::new(request.namespace(), token())
            };
            decide(&pod, &context, defaults)
        })
    });
    request.set_name_if_missing(pod.name());
    let reported = |outcome, diagnostics: Vec<Diagnostic>, patch: Option<&Patch>| {
        let reason = diagnostics.first().filter(|_| !request.dry_run);
        // The pod of a dry run will not exist.
        let skipped_pod =
            reason.and_then(|reason| SkippedPod::new(&request.namespace, &pod, reason, defaults));
        ReviewResponse {
            skipped_pod,
            ..allow(&request, outcome, patch, diagnostics)
        }
    };
    let fail_open = |fault: Diagnostic| {
        let outcome = AdmissionOutcome::Failed(fault.code);
        reported(outcome, vec![fault], None)
    };
    let response = match decision {
        Ok(Decision::NotRequested) => {
            allow(&request, AdmissionOutcome::NotRequested, None, Vec::new())
        }
        Ok(Decision::Inject {
            patch, warnings, ..
        }) => allow(&request, AdmissionOutcome::Injected, Some(&patch), warnings),
        Ok(Decision::Skip {
            reason,
            patch,
            warnings,
        }) => {
            let outcome = AdmissionOutcome::Skipped(reason.code);
            reported(outcome, [vec![reason], warnings].concat(), Some(&patch))
        }
        Ok(Decision::Repair { patch, changes }) => {
            reported(AdmissionOutcome::Repaired, changes, Some(&patch))
        }
        Ok(Decision::Deny { reasons, warnings }) => deny(&request, reasons, warnings),
        Err(fault) => fail_open(fault),
    };
    let len = response.body.len();
    if len <= MAX_RESPONSE_LEN {
        return Ok(response);
    }
    let detail = format!(
        "the pod gets no drainer: the response would have {len} bytes, at most {MAX_RESPONSE_LEN}"
    );
    Ok(fail_open(Code::PodNotRead.diagnostic(detail)))
}

/// Decodes a review with its object in one pass. Only if that fails, the review is decoded without its object.
///
/// # Errors
/// If no response to the body is possible.
pub(super) fn decode_review<'a, O: Deserialize<'a>>(
    body: &'a [u8],
    filter: RequestFilter,
) -> Result<DecodedReview<'a, O>, InvalidReview> {
    let body = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
    let exceeded = check_limits(body).err();
    if let Some((..=REQUEST_DEPTH, limit)) = exceeded {
        return Err(malformed(&limit));
    }
    // An error may be in the object alone.
    if exceeded.is_none()
        && let Ok(request) = ReviewRequest::<O>::decode(body)
    {
        let (request, object) = request.into_parts(filter);
        return Ok((request, object.map(Ok)));
    }
    let (request, json) = ReviewRequest::<&RawValue>::decode(body)?.into_parts(filter);
    Ok((request, json.map(|json| Err(json.get()))))
}

/// The error for a body that is not JSON, or not in the form of an AdmissionReview.
fn malformed(error: &dyn ToString) -> InvalidReview {
    let error = excerpt(&error.to_string(), MAX_ERROR_LEN);
    InvalidReview(format!("the body is not an AdmissionReview: {error}"))
}

/// Decodes a pod, or else only its metadata, unless a long text may be in its place.
fn decode_pod(json: &str) -> (PodView<'_>, Result<(), DecodeError>) {
    match PodView::decode(json) {
        Ok(pod) => (pod, Ok(())),
        Err(error @ DecodeError::LongText(_)) => (PodView::default(), Err(error)),
        Err(error) => (PodView::decode_metadata(json), Err(error)),
    }
}

/// Turns a panic into a diagnostic; the panic hook has logged its location.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Diagnostic> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        Code::InternalError.diagnostic("the webhook failed, so the pod gets no drainer")
    })
}

pub(super) fn allow(
    request: &RequestMeta,
    outcome: AdmissionOutcome,
    patch: Option<&Patch>,
    diagnostics: Vec<Diagnostic>,
) -> ReviewResponse {
    let patch = patch.filter(|patch| !patch.is_empty());
    let response = Response {
        allowed: true,
        patch_type: patch.map(|_| "JSONPatch"),
        patch: patch.map(to_base64),
        warnings: format_warnings(&diagnostics),
        ..Response::default()
    };
    respond(request, outcome, response, diagnostics)
}

fn deny(
    request: &RequestMeta,
    reasons: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
) -> ReviewResponse {
    let message = format_reasons(&reasons);
    let response = Response {
        status: Some(json!({"code": 422, "reason": "Invalid", "message": message})),
        warnings: format_warnings(&warnings),
        ..Response::default()
    };
    let diagnostics = [reasons, warnings].concat();
    respond(request, AdmissionOutcome::Denied, response, diagnostics)
}

fn respond<'a>(
    request: &'a RequestMeta,
    outcome: AdmissionOutcome,
    mut response: Response<'a>,
    diagnostics: Vec<Diagnostic>,
) -> ReviewResponse {
    response.uid = &request.uid;
    let mut body = Vec::with_capacity(INITIAL_CAPACITY);
    body.extend_from_slice(RESPONSE_HEAD.as_bytes());
    serde_json::to_writer(&mut body, &response)
        .expect("writing to memory cannot fail, and the keys are strings");
    body.push(b'}');
    ReviewResponse {
        body,
        request: request.clone(),
        outcome,
        diagnostics,
        skipped_pod: None,
    }
}

/// Encodes the patch as a JSON string, without the search for characters to escape.
fn to_base64(patch: &Patch) -> Box<RawValue> {
    let mut text = String::with_capacity(INITIAL_CAPACITY);
    text.push('"');
    STANDARD.encode_string(patch.json(), &mut text);
    text.push('"');
    RawValue::from_string(text).expect("nothing in base64 has to be escaped")
}

/// Formats the reasons of a denial, each on a line, as many as fit.
fn format_reasons(reasons: &[Diagnostic]) -> String {
    let mut message = String::new();
    for (index, reason) in reasons.iter().enumerate() {
        let line = excerpt(&format!("{reason:#}"), MAX_REASON_LEN);
        if message.len() + line.len() > MAX_MESSAGE_LEN {
            let _ = write!(message, "\n{} more reasons", reasons.len() - index);
            break;
        }
        if index > 0 {
            message.push('\n');
        }
        message.push_str(&line);
    }
    message
}

/// Formats diagnostics as the API server passes them on: short, without control characters, not too many.
fn format_warnings(diagnostics: &[Diagnostic]) -> Vec<String> {
    let visible = diagnostics.iter().filter(|it| it.code.is_user_visible());
    let warnings = visible.map(|it| excerpt(&format!("{it:#}"), MAX_WARNING_LEN));
    let mut warnings: Vec<_> = warnings.collect();
    if warnings.len() > MAX_WARNINGS {
        let rest = warnings.split_off(MAX_WARNINGS - 1);
        warnings.push(format!("{} more warnings", rest.len()));
    }
    warnings
}

// === impl ReviewRequest ===

impl<'a, O: Deserialize<'a>> ReviewRequest<'a, O> {
    /// Decodes a review; its request has a uid.
    ///
    /// # Errors
    /// If no response to the body is possible, or if the object is not an `O`.
    fn decode(body: &'a str) -> Result<Self, InvalidReview> {
        let review: Envelope<'a, O> = from_json(body).map_err(|error| malformed(&error))?;
        let [api_version, kind] = [&review.api_version, &review.kind].map(text_of);
        let invalid = |reason: String| Err(InvalidReview(reason));
        if (api_version, kind) != (API_VERSION, KIND) {
            let [api_version, kind] = [api_version, kind].map(|it| excerpt(it, MAX_NAME_LEN));
            let expected = format!("expected `{KIND}` of `{API_VERSION}`");
            return invalid(format!(
                "the body is a `{kind}` of `{api_version}`: {expected}"
            ));
        }
        let Some(request) = review.request else {
            return invalid("the AdmissionReview has no request".to_owned());
        };
        match text_of(&request.uid).len() {
            // Without it, the API server treats the response as a failure.
            0 => invalid("the request has no uid".to_owned()),
            1..=MAX_UID_LEN => Ok(request),
            len => {
                let limit = format!("the limit is {MAX_UID_LEN}");
                invalid(format!("the request's uid has {len} bytes: {limit}"))
            }
        }
    }

    /// Returns the metadata, and the object if the request passes the filter.
    fn into_parts(self, filter: RequestFilter) -> (RequestMeta, Option<O>) {
        let gvk = &self.kind;
        let kind = [&gvk.group, &gvk.version, &gvk.kind].map(text_of);
        let operation = text_of(&self.operation);
        let passes = match filter {
            RequestFilter::PodCreation => operation == "CREATE" && kind == ["", "v1", "Pod"],
            RequestFilter::Write => matches!(operation, "CREATE" | "UPDATE"),
        };
        let is_object = text_of(&self.sub_resource).is_empty();
        let meta = RequestMeta {
            uid: text_of(&self.uid).to_owned(),
            namespace: text_of(&self.namespace).to_owned(),
            name: text_of(&self.name).to_owned(),
            dry_run: self.dry_run == Some(true),
        };
        (meta, self.object.filter(|_| passes && is_object))
    }
}

/// Returns the text of a member, which is empty if it is missing.
fn text_of<'t>(member: &'t Option<Text<'_>>) -> &'t str {
    member.as_deref().unwrap_or_default()
}

// === impl RequestMeta ===

impl RequestMeta {
    /// Returns the namespace; `None` for a cluster-scoped object.
    pub(super) fn namespace(&self) -> Option<&str> {
        Some(&*self.namespace).filter(|namespace| !namespace.is_empty())
    }

    /// Names the object, unless the request does. The API server leaves the name out if it will generate it.
    pub(super) fn set_name_if_missing(&mut self, name: Option<&str>) {
        if self.name.is_empty() {
            name.unwrap_or_default().clone_into(&mut self.name);
        }
    }
}

/// The review of an object of this group, version and kind that is created in the namespace `shop`.
#[cfg(test)]
pub(crate) fn creation_review(
    [group, version, kind]: [&str; 3],
    object: &serde_json::Value,
) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "request": {
            "uid": "u",
            "kind": {"group": group, "version": version, "kind": kind},
            "namespace": "shop",
            "operation": "CREATE",
            "object": object,
        },
    })
}

#[cfg(test)]
mod request_tests {
    use serde_json::{Value, json};

    use super::*;

    fn review() -> Value {
        let pod = json!({"metadata": {"generateName": "edge-"}});
        creation_review(["", "v1", "Pod"], &pod)
    }

    /// Decodes the review of a pod with another value at a JSON pointer.
    fn decode_with<T>(
        pointer: &str,
        value: Value,
        read: impl FnOnce(Result<DecodedReview<'_, PodView<'_>>, InvalidReview>) -> T,
    ) -> T {
        let mut review = review();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        review.pointer_mut(parent).unwrap()[key] = value;
        let body = review.to_string();
        read(decode_review(body.as_bytes(), RequestFilter::PodCreation))
    }

    #[test]
    fn review_without_a_possible_response_is_rejected() {
        let other = |of: &str| {
            format!("the body is a {of}: expected `AdmissionReview` of `admission.k8s.io/v1`")
        };
        let beta = "admission.k8s.io/v1beta1";
        let of_beta = other("`AdmissionReview` of `admission.k8s.io/v1beta1`");
        let of_none = other("`AdmissionReview` of ``");
        let of_pod = other("`Pod` of `admission.k8s.io/v1`");
        let no_uid = "the request has no uid";
        let long_uid = "the request's uid has 257 bytes: the limit is 256";
        let no_request = "the AdmissionReview has no request";
        for (pointer, value, want) in [
            ("/apiVersion", json!(beta), &*of_beta),
            ("/apiVersion", Value::Null, &of_none),
            ("/kind", json!("Pod"), &of_pod),
            ("/request", Value::Null, no_request),
            ("/request/uid", Value::Null, no_uid),
            ("/request/uid", json!(""), no_uid),
            ("/request/uid", json!("u".repeat(257)), long_uid),
        ] {
            decode_with(pointer, value.clone(), |read| {
                assert_eq!(read.unwrap_err().to_string(), want, "{pointer}: {value}");
            });
        }
        for malformed in [
            &b""[..],
            b"null ",
            b"[]",
            b"{",
            b"{}}",
            b"\xff",
            b"{\"kind\": 1}",
            b"{\"request\": []}",
        ] {
            let read = decode_review::<PodView<'_>>(malformed, RequestFilter::Write);
            let error = read.unwrap_err().to_string();
            let is_malformed = error.starts_with("the body is not an AdmissionReview: ");
            assert!(is_malformed, "{malformed:?}: {error}");
        }
    }

    #[test]
    fn only_pod_creation_is_reviewed() {
        for (pointer, value) in [
            ("/request/operation", json!("UPDATE")),
            ("/request/operation", json!("DELETE")),
            ("/request/operation", json!("PAINT")),
            ("/request/operation", Value::Null),
            ("/request/subResource", json!("ephemeralcontainers")),
            ("/request/kind", Value::Null),
            ("/request/kind/group", json!("example.com")),
            ("/request/kind/version", json!("v2")),
            ("/request/kind/kind", json!("Deployment")),
            ("/request/object", Value::Null),
        ] {
            decode_with(pointer, value.clone(), |read| {
                let (_, pod) = read.unwrap();
                assert!(pod.is_none(), "{pointer}: {value}");
            });
        }
    }

    #[test]
    fn object_that_is_no_pod_is_left_as_json() {
        for object in [json!([]), json!("pod"), json!({"spec": {"containers": {}}})] {
            decode_with("/request/object", object.clone(), |read| {
                let (request, pod) = read.unwrap();
                assert_eq!(request.uid, "u");
                assert_eq!(pod.unwrap().err(), Some(&*object.to_string()));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn respond(object: &Value) -> (ReviewResponse, Value) {
        respond_with(object, |_| {})
    }

    /// Responds to a request that `change` changes.
    fn respond_with(object: &Value, change: impl FnOnce(&mut Value)) -> (ReviewResponse, Value) {
        let mut review = creation_review(["", "v1", "Pod"], object);
        review["request"]["uid"] = json!("a/\"b\"");
        change(&mut review["request"]);
        let response = admit_pod(
            review.to_string().as_bytes(),
            false,
            &Defaults::new("image", "own"),
            || Token(1),
        )
        .unwrap();
        let body = serde_json::from_slice(&response.body).unwrap();
        (response, body)
    }

    #[test]
    fn unchanged_pod_gets_no_patch() {
        let (response, body) = respond(&json!({"metadata": {"name": "n"}}));
        assert_eq!(response.outcome, AdmissionOutcome::NotRequested);
        let want = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "response": {"uid": "a/\"b\"", "allowed": true},
        });
        assert_eq!(body, want);
    }

    #[test]
    fn unnamed_pod_is_called_by_its_generate_name() {
        let generated = json!({"generateName": "edge-"});
        for (metadata, field, value, name) in [
            (&generated, "dryRun", json!(true), "edge-"),
            (&generated, "name", json!(""), "edge-"),
            (&generated, "name", json!("edge-1"), "edge-1"),
            (
                &json!({"name": "n", "generateName": "g-"}),
                "name",
                Value::Null,
                "n",
            ),
            (&Value::Null, "name", Value::Null, ""),
        ] {
            let (response, _) = respond_with(&json!({"metadata": metadata}), |request| {
                request[field] = value;
            });
            assert_eq!(response.request.name, name, "{metadata} {field}");
            assert_eq!(response.request.dry_run, field == "dryRun");
        }
    }

    #[test]
    fn form_of_an_object_that_is_no_pod_does_not_matter() {
        let (response, _) = respond_with(&json!({"spec": 1}), |request| {
            request["operation"] = json!("UPDATE");
        });
        assert_eq!(response.outcome, AdmissionOutcome::Ignored);
    }

    #[test]
    fn unreadable_pod_is_admitted_with_a_warning() {
        for object in [json!([]), json!("pod"), json!("x".repeat(2 << 20))] {
            let (response, _) = respond(&object);
            assert_eq!(response.outcome, AdmissionOutcome::Failed(Code::PodNotRead));
        }
        let (response, body) = respond(&json!({"spec": {"containers": 7}}));
        assert_eq!(response.outcome, AdmissionOutcome::Failed(Code::PodNotRead));
        assert_eq!(body["response"]["allowed"], true);
        assert_eq!(body["response"].get("patch"), None);
        let warning = body["response"]["warnings"][0].as_str().unwrap();
        assert!(
            warning.contains("gets no drainer: spec.containers: invalid type: integer"),
            "{warning}"
        );
    }

    #[test]
    fn denial_lists_every_reason() {
        let (response, body) = respond(&json!({
            "metadata": {"annotations": {"envoy-drainer.dev/inject": "maybe", "envoy-drainer.dev/port": "x"}},
            "spec": {"containers": [{"name": "a", "image": "envoy"}, {"name": "b", "image": "envoy"}]},
        }));
        assert_eq!(response.outcome, AdmissionOutcome::Denied);
        assert_eq!(response.diagnostics.len(), 3);
        let body = &body["response"];
        assert_eq!(
            (&body["allowed"], &body["status"]["code"]),
            (&json!(false), &json!(422))
        );
        assert_eq!(
            body["status"]["message"].as_str().unwrap().lines().count(),
            3
        );
    }

    /// A pod that requests a drainer, with further annotations and containers.
    fn pod_requesting_injection(annotations: &Value, envoy: Value, others: &[Value]) -> Value {
        let mut annotations = annotations.clone();
        annotations["envoy-drainer.dev/inject"] = json!("true");
        let mut containers = vec![envoy];
        containers.extend_from_slice(others);
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}})
    }

    fn pod_with_socket_mount(mount: &Value) -> Value {
        let annotations = json!({"envoy-drainer.dev/admin-address": "unix:/a/b"});
        let envoy = json!({"name": "envoy", "volumeMounts": [mount]});
        pod_requesting_injection(&annotations, envoy, &[])
    }

    #[test]
    fn overlong_name_or_path_is_not_read() {
        let mount = |name: usize, path: usize, sub: usize| {
            pod_with_socket_mount(&json!({
                "name": "\u{1}".repeat(name),
                "mountPath": format!("/a{}", "/".repeat(path - 2)),
                "subPath": "\u{1}".repeat(sub),
            }))
        };
        let named =
            |len| pod_requesting_injection(&json!({}), json!({"name": "\\".repeat(len)}), &[]);
        let table = [
            (mount(63, 4096, 4096), None),
            (mount(64, 2, 1), Some("volumeMounts[0].name")),
            (mount(1, 4097, 1), Some("volumeMounts[0].mountPath")),
            (mount(1, 2, 4097), Some("volumeMounts[0].subPath")),
            (named(63), None),
            (named(64), Some("name")),
            (named(32_200), Some("name")),
        ];
        for (pod, field) in table {
            let (response, body) = respond(&pod);
            assert!(
                response.body.len() <= MAX_RESPONSE_LEN,
                "{}",
                response.body.len()
            );
            assert_eq!(body["response"]["allowed"], true);
            let Some(field) = field else {
                assert_eq!(response.outcome, AdmissionOutcome::Injected);
                continue;
            };
            assert_eq!(
                response.outcome,
                AdmissionOutcome::Failed(Code::PodNotRead),
                "{field}"
            );
            let want = format!("no drainer: spec.containers[0].{field}: a string of");
            let warning = body["response"]["warnings"][0].as_str().unwrap();
            assert!(warning.contains(&want), "{warning}");
        }
    }

    #[test]
    fn overlong_response_becomes_a_warning() {
        let probe = json!({"tcpSocket": {"port": 65535}, "periodSeconds": u32::MAX});
        let probed = vec![json!({"name": "a", "readinessProbe": probe}); 1_990];
        let mut pod = pod_with_socket_mount(
            &json!({"name": "v", "mountPath": "/a", "subPath": "\u{1}".repeat(4096)}),
        );
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.extend(probed);
        let (response, body) = respond(&pod);
        assert_eq!(response.outcome, AdmissionOutcome::Failed(Code::PodNotRead));
        assert!(response.body.len() < 1024, "{}", response.body.len());
        assert_eq!(body["response"]["allowed"], true);
        assert_eq!(body["response"].get("patch"), None);
        let warning = body["response"]["warnings"][0].as_str().unwrap();
        assert!(
            warning.starts_with("DRN080: the pod gets no drainer: the response would have"),
            "{warning}"
        );
    }

    #[test]
    fn denial_fits_the_response_limit() {
        let reasons = vec![Code::BadValue.diagnostic("\"\u{1}".repeat(1024)); 100];
        let request = RequestMeta {
            uid: "u".to_owned(),
            namespace: String::new(),
            name: String::new(),
            dry_run: false,
        };
        let response = deny(&request, reasons.clone(), reasons);
        assert!(
            response.body.len() <= MAX_RESPONSE_LEN,
            "{}",
            response.body.len()
        );
        let body: Value = serde_json::from_slice(&response.body).unwrap();
        let message = body["response"]["status"]["message"].as_str().unwrap();
        assert!(message.ends_with(" more reasons"), "{message}");
    }

    #[test]
    fn panic_becomes_a_diagnostic() {
        assert_eq!(catch_panic(|| 1), Ok(1));
        let fault = catch_panic(|| panic!("a bug, on purpose")).unwrap_err();
        assert_eq!(fault.code, Code::InternalError);
    }
}
