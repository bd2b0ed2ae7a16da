//! The answer to an AdmissionReview.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response>

use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drainer::Token;
use serde::Serialize;
use serde_json::value::RawValue;

use super::request::{API_VERSION, InvalidReview, KIND, PodReview, ReviewTarget};
use crate::admission::decide::{Decision, decide};
use crate::admission::defaults::Defaults;
use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::owner_notification::SkippedPod;
use crate::admission::patch::Patch;

use crate::admission::excerpt::truncate;

/// The answer to one AdmissionReview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewResponse {
    /// The AdmissionReview to send back, as JSON.
    pub body: Vec<u8>,
    /// What the request was about.
    pub request: RequestMeta,
    /// What became of it.
    pub outcome: AdmissionOutcome,
    /// Every reason and every warning of the verdict.
    pub diagnostics: Vec<Diagnostic>,
    /// What the pod's owner is to be told, if anything.
    pub skipped_pod: Option<SkippedPod>,
}

/// What a request was about, for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMeta {
    /// The request's uid.
    pub uid: String,
    /// The namespace; empty for what has none.
    pub namespace: String,
    /// The object's name, or its `generateName` while it has none; empty for what is not ours.
    pub name: String,
    /// Nothing will be stored, so nothing may be reported as if it had been.
    pub dry_run: bool,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionOutcome {
    /// The pod gets a drainer.
    Injected,
    /// The pod asked and gets none.
    Skipped(Code),
    /// The pod is refused; the notices say why.
    Denied,
    /// The pod does not ask for a drainer.
    NotRequested,
    /// This is not the creation of a pod.
    Ignored,
    /// The author of a workload is told of what its pods will meet.
    Warned,
    /// The webhook could not do its work; the pod is admitted as it is.
    Failed(Code),
}

/// In bytes. The API server cuts longer warnings.
const MAX_WARNING_LEN: usize = 256;

/// More than a person reads, and about what the API server passes on in all.
const MAX_WARNINGS: usize = 16;

/// In bytes. The API server shows one line of a refusal or all of it, and an author reads no more.
const MAX_MESSAGE_LEN: usize = 24 << 10;

/// In bytes: the longest line of a refusal, with its remedy.
const MAX_REASON_LEN: usize = 2304;

/// In bytes. An injection takes some 5 KiB; what would become much longer was made to.
const MAX_RESPONSE_LEN: usize = 64 << 10;

/// In bytes: what an injection takes, so that the buffer need not grow.
const INITIAL_CAPACITY: usize = 5120;

/// Our own, since kube's writes the patch as an array of numbers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseEnvelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

/// Answers an AdmissionReview. Whatever goes wrong on our side, the pod is admitted as it is.
///
/// `token` gives the pod's secret, another for each pod; it may panic where there is none.
///
/// # Errors
/// If the bytes hold no request that could be answered, which is the caller's mistake.
pub fn admit_pod(
    body: &[u8],
    defaults: &Defaults,
    token: impl FnOnce() -> Token,
) -> Result<ReviewResponse, InvalidReview> {
    let review = PodReview::decode(body)?;
    let verdict = match &review.target {
        ReviewTarget::NewPod(pod) => {
            catch_panic(|| decide(pod, &review.pod_context(token()), defaults))
        }
        ReviewTarget::InvalidPod(_, error) => Err(Code::PodNotRead.diagnostic(format!(
            "the pod could not be read, so it gets no drainer: {error}"
        ))),
        ReviewTarget::Other => {
            return Ok(allow(
                review.request_meta(),
                AdmissionOutcome::Ignored,
                None,
                Vec::new(),
            ));
        }
    };
    let answer = match verdict {
        Ok(Decision::NotRequested) => allow(
            review.request_meta(),
            AdmissionOutcome::NotRequested,
            None,
            Vec::new(),
        ),
        Ok(Decision::Inject {
            patch, warnings, ..
        }) => allow(
            review.request_meta(),
            AdmissionOutcome::Injected,
            Some(&patch),
            warnings,
        ),
        Ok(Decision::Skip {
            reason,
            patch,
            mut warnings,
        }) => {
            let outcome = AdmissionOutcome::Skipped(reason.code);
            let undrained = SkippedPod::from_review(&review, &reason, defaults);
            warnings.insert(0, reason);
            ReviewResponse {
                skipped_pod: undrained,
                ..allow(review.request_meta(), outcome, Some(&patch), warnings)
            }
        }
        Ok(Decision::Deny { reasons, warnings }) => deny(review.request_meta(), reasons, warnings),
        Err(fault) => fail_open(&review, fault, defaults),
    };
    Ok(match answer.body.len() {
        ..=MAX_RESPONSE_LEN => answer,
        long => {
            let detail = format!(
                "the pod gets no drainer: the answer would have {long} bytes, at most {MAX_RESPONSE_LEN}"
            );
            fail_open(&review, Code::PodNotRead.diagnostic(detail), defaults)
        }
    })
}

/// Admits a pod as it is, for a fault.
fn fail_open(review: &PodReview<'_>, fault: Diagnostic, defaults: &Defaults) -> ReviewResponse {
    let outcome = AdmissionOutcome::Failed(fault.code);
    ReviewResponse {
        skipped_pod: SkippedPod::from_review(review, &fault, defaults),
        ..allow(review.request_meta(), outcome, None, vec![fault])
    }
}

/// Turns a bug of ours into a notice; the panic's hook has told where it was.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Diagnostic> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        Code::InternalError.diagnostic("the webhook failed, so the pod gets no drainer")
    })
}

pub(crate) fn allow(
    about: RequestMeta,
    outcome: AdmissionOutcome,
    patch: Option<&Patch>,
    notices: Vec<Diagnostic>,
) -> ReviewResponse {
    let patch = patch.filter(|patch| !patch.is_empty());
    let response = Response {
        uid: &about.uid,
        allowed: true,
        status: None,
        patch_type: patch.map(|_| "JSONPatch"),
        patch: patch.map(to_base64),
        warnings: warnings(&notices),
    };
    ReviewResponse {
        body: encode(response),
        request: about,
        outcome,
        diagnostics: notices,
        skipped_pod: None,
    }
}

fn deny(
    about: RequestMeta,
    reasons: Vec<Diagnostic>,
    mut notices: Vec<Diagnostic>,
) -> ReviewResponse {
    let response = Response {
        uid: &about.uid,
        allowed: false,
        status: Some(Status {
            code: 422,
            reason: "Invalid",
            message: message(&reasons),
        }),
        patch_type: None,
        patch: None,
        warnings: warnings(&notices),
    };
    let body = encode(response);
    notices.splice(0..0, reasons);
    ReviewResponse {
        body,
        request: about,
        outcome: AdmissionOutcome::Denied,
        diagnostics: notices,
        skipped_pod: None,
    }
}

fn encode(response: Response<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(INITIAL_CAPACITY);
    let answer = ResponseEnvelope {
        api_version: API_VERSION,
        kind: KIND,
        response,
    };
    serde_json::to_writer(&mut body, &answer)
        .expect("memory takes all bytes, and our own types have string keys");
    body
}

/// The patch as a JSON string, which is not searched for characters to escape.
fn to_base64(patch: &Patch) -> Box<RawValue> {
    let mut text = String::with_capacity(INITIAL_CAPACITY);
    text.push('"');
    STANDARD.encode_string(patch.json(), &mut text);
    text.push('"');
    RawValue::from_string(text).expect("nothing in base64 has to be escaped")
}

/// The reasons of a refusal, each in a line, as many as there is room for.
fn message(reasons: &[Diagnostic]) -> String {
    let mut message = String::new();
    for (index, reason) in reasons.iter().enumerate() {
        let line = truncate(&format!("{reason:#}"), MAX_REASON_LEN);
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

/// The notices as the API server passes them on: short, without control characters, not too many.
fn warnings(notices: &[Diagnostic]) -> Vec<String> {
    let mut warnings: Vec<_> = notices
        .iter()
        .filter(|notice| notice.code.is_user_visible())
        .map(|notice| truncate(&format!("{notice:#}"), MAX_WARNING_LEN))
        .collect();
    if warnings.len() > MAX_WARNINGS {
        let rest = warnings.split_off(MAX_WARNINGS - 1);
        warnings.push(format!("{} more warnings", rest.len()));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn respond(object: &Value) -> (ReviewResponse, Value) {
        let review = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "request": {
                "uid": "a/\"b\"",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "namespace": "shop",
                "operation": "CREATE",
                "object": object,
            },
        });
        let answer = admit_pod(
            review.to_string().as_bytes(),
            &Defaults::new("image", "own"),
            || Token::new(1),
        )
        .unwrap();
        let body = serde_json::from_slice(&answer.body).unwrap();
        (answer, body)
    }

    #[test]
    fn no_change_is_no_patch() {
        let (answer, body) = respond(&json!({"metadata": {"name": "n"}}));
        assert_eq!(answer.outcome, AdmissionOutcome::NotRequested);
        let want = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "response": {"uid": "a/\"b\"", "allowed": true},
        });
        assert_eq!(body, want);
    }

    #[test]
    fn a_pod_that_cannot_be_read_is_admitted_with_a_warning() {
        let (answer, body) = respond(&json!({"spec": {"containers": 7}}));
        assert_eq!(answer.outcome, AdmissionOutcome::Failed(Code::PodNotRead));
        assert_eq!(body["response"]["allowed"], true);
        assert_eq!(body["response"].get("patch"), None);
        let warning = body["response"]["warnings"][0].as_str().unwrap();
        assert!(
            warning.contains("gets no drainer: spec.containers: invalid type: integer"),
            "{warning}"
        );
    }

    #[test]
    fn a_refusal_has_every_reason_in_its_status() {
        let (answer, body) = respond(&json!({
            "metadata": {"annotations": {"envoy-drainer.dev/inject": "maybe", "envoy-drainer.dev/port": "x"}},
            "spec": {"containers": [{"name": "a", "image": "envoy"}, {"name": "b", "image": "envoy"}]},
        }));
        assert_eq!(answer.outcome, AdmissionOutcome::Denied);
        assert_eq!(answer.diagnostics.len(), 3);
        let response = &body["response"];
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(false), &json!(422))
        );
        assert_eq!(
            response["status"]["message"]
                .as_str()
                .unwrap()
                .lines()
                .count(),
            3
        );
    }

    /// A pod that asks, with these annotations beside, this container and these others.
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
    fn a_name_or_path_too_long_to_repeat_is_not_read() {
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
            let (answer, body) = respond(&pod);
            assert!(
                answer.body.len() <= MAX_RESPONSE_LEN,
                "{}",
                answer.body.len()
            );
            assert_eq!(body["response"]["allowed"], true);
            let Some(field) = field else {
                assert_eq!(answer.outcome, AdmissionOutcome::Injected);
                continue;
            };
            assert_eq!(
                answer.outcome,
                AdmissionOutcome::Failed(Code::PodNotRead),
                "{field}"
            );
            let want = format!("no drainer: spec.containers[0].{field}: a string of");
            let warning = body["response"]["warnings"][0].as_str().unwrap();
            assert!(warning.contains(&want), "{warning}");
        }
    }

    #[test]
    fn an_answer_that_would_be_long_is_a_warning() {
        let probe = json!({"tcpSocket": {"port": 65535}, "periodSeconds": u32::MAX});
        let probed = vec![json!({"name": "a", "readinessProbe": probe}); 1_999];
        let mut pod = pod_with_socket_mount(
            &json!({"name": "v", "mountPath": "/a", "subPath": "\u{1}".repeat(4096)}),
        );
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.extend(probed);
        let (answer, body) = respond(&pod);
        assert_eq!(answer.outcome, AdmissionOutcome::Failed(Code::PodNotRead));
        assert!(answer.body.len() < 1024, "{}", answer.body.len());
        assert_eq!(body["response"]["allowed"], true);
        assert_eq!(body["response"].get("patch"), None);
        let warning = body["response"]["warnings"][0].as_str().unwrap();
        assert!(
            warning.starts_with("DRN080: the pod gets no drainer: the answer would have"),
            "{warning}"
        );
    }

    #[test]
    fn a_refusal_is_not_longer_than_an_answer() {
        let reasons = vec![Code::BadValue.diagnostic("\"\u{1}".repeat(1024)); 100];
        let about = PodReview::decode(
            json!({"apiVersion": API_VERSION, "kind": KIND, "request": {"uid": "u"}})
                .to_string()
                .as_bytes(),
        )
        .unwrap()
        .request_meta();
        let answer = deny(about, reasons.clone(), reasons);
        assert!(
            answer.body.len() <= MAX_RESPONSE_LEN,
            "{}",
            answer.body.len()
        );
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let message = body["response"]["status"]["message"].as_str().unwrap();
        assert!(message.ends_with(" more reasons"), "{message}");
    }

    #[test]
    fn a_bug_of_ours_is_a_notice() {
        assert_eq!(catch_panic(|| 1), Ok(1));
        let fault = catch_panic(|| panic!("a bug, on purpose")).unwrap_err();
        assert_eq!(fault.code, Code::InternalError);
    }
}
