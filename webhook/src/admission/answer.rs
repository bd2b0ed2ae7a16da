//! The answer to an AdmissionReview.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response>

use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drainer::Token;
use serde::Serialize;
use serde_json::value::RawValue;

use super::codes::{Code, Notice};
use super::defaults::Defaults;
use super::mutate::{Verdict, mutate};
use super::patch::Patch;
use super::review::{API_VERSION, KIND, NotAReview, Review, Subject};
use super::undrained::Undrained;

pub(super) use super::excerpt::shortened;

/// The answer to one AdmissionReview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The AdmissionReview to send back, as JSON.
    pub body: Vec<u8>,
    /// What the request was about.
    pub about: About,
    /// What became of it.
    pub outcome: Outcome,
    /// Every reason and every warning of the verdict.
    pub notices: Vec<Notice>,
    /// What the pod's owner is to be told, if anything.
    pub undrained: Option<Undrained>,
}

/// What a request was about, for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
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
pub enum Outcome {
    /// The pod gets a drainer.
    Injected,
    /// The pod asked and gets none.
    Skipped(Code),
    /// The pod is refused; the notices say why.
    Denied,
    /// The pod does not ask for a drainer.
    NotAsked,
    /// This is not the creation of a pod.
    NotOurs,
    /// The author of a workload is told of what its pods will meet.
    Advised,
    /// The webhook could not do its work; the pod is admitted as it is.
    Failed(Code),
}

/// In bytes. The API server cuts longer warnings.
const LONGEST_WARNING: usize = 256;

/// More than a person reads, and about what the API server passes on in all.
const MOST_WARNINGS: usize = 16;

/// In bytes. The API server shows one line of a refusal or all of it, and an author reads no more.
const LONGEST_MESSAGE: usize = 24 << 10;

/// In bytes: the longest line of a refusal, with its remedy.
const LONGEST_REASON: usize = 2304;

/// In bytes. An injection takes some 5 KiB; what would become much longer was made to.
const LONGEST_ANSWER: usize = 64 << 10;

/// In bytes: what an injection takes, so that the buffer need not grow.
const USUAL_SIZE: usize = 5120;

/// Our own, since kube's writes the patch as an array of numbers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewAnswer<'a> {
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
pub fn answer(
    body: &[u8],
    defaults: &Defaults,
    token: impl FnOnce() -> Token,
) -> Result<Answer, NotAReview> {
    let review = Review::decode(body)?;
    let verdict = match &review.subject {
        Subject::NewPod(pod) => guarded(|| mutate(pod, &review.facts(token()), defaults)),
        Subject::UnreadPod(_, error) => Err(Code::PodNotRead.about(format!(
            "the pod could not be read, so it gets no drainer: {error}"
        ))),
        Subject::Other => return Ok(allow(review.about(), Outcome::NotOurs, None, Vec::new())),
    };
    let answer = match verdict {
        Ok(Verdict::NotAsked) => allow(review.about(), Outcome::NotAsked, None, Vec::new()),
        Ok(Verdict::Inject {
            patch, warnings, ..
        }) => allow(review.about(), Outcome::Injected, Some(&patch), warnings),
        Ok(Verdict::Skip {
            reason,
            patch,
            mut warnings,
        }) => {
            let outcome = Outcome::Skipped(reason.code);
            let undrained = Undrained::of(&review, &reason, defaults);
            warnings.insert(0, reason);
            Answer {
                undrained,
                ..allow(review.about(), outcome, Some(&patch), warnings)
            }
        }
        Ok(Verdict::Deny { reasons, warnings }) => deny(review.about(), reasons, warnings),
        Err(fault) => failed(&review, fault, defaults),
    };
    Ok(match answer.body.len() {
        ..=LONGEST_ANSWER => answer,
        long => {
            let detail = format!(
                "the pod gets no drainer: the answer would have {long} bytes, at most {LONGEST_ANSWER}"
            );
            failed(&review, Code::PodNotRead.about(detail), defaults)
        }
    })
}

/// Admits a pod as it is, for a fault.
fn failed(review: &Review<'_>, fault: Notice, defaults: &Defaults) -> Answer {
    let outcome = Outcome::Failed(fault.code);
    Answer {
        undrained: Undrained::of(review, &fault, defaults),
        ..allow(review.about(), outcome, None, vec![fault])
    }
}

/// Turns a bug of ours into a notice; the panic's hook has told where it was.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Notice> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| Code::InternalError.about("the webhook failed, so the pod gets no drainer"))
}

pub(super) fn allow(
    about: About,
    outcome: Outcome,
    patch: Option<&Patch>,
    notices: Vec<Notice>,
) -> Answer {
    let patch = patch.filter(|patch| !patch.is_empty());
    let response = Response {
        uid: &about.uid,
        allowed: true,
        status: None,
        patch_type: patch.map(|_| "JSONPatch"),
        patch: patch.map(in_base64),
        warnings: warnings(&notices),
    };
    Answer {
        body: written(response),
        about,
        outcome,
        notices,
        undrained: None,
    }
}

fn deny(about: About, reasons: Vec<Notice>, mut notices: Vec<Notice>) -> Answer {
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
    let body = written(response);
    notices.splice(0..0, reasons);
    Answer {
        body,
        about,
        outcome: Outcome::Denied,
        notices,
        undrained: None,
    }
}

fn written(response: Response<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(USUAL_SIZE);
    let answer = ReviewAnswer {
        api_version: API_VERSION,
        kind: KIND,
        response,
    };
    serde_json::to_writer(&mut body, &answer)
        .expect("memory takes all bytes, and our own types have string keys");
    body
}

/// The patch as a JSON string, which is not searched for characters to escape.
fn in_base64(patch: &Patch) -> Box<RawValue> {
    let mut text = String::with_capacity(USUAL_SIZE);
    text.push('"');
    STANDARD.encode_string(patch.json(), &mut text);
    text.push('"');
    RawValue::from_string(text).expect("nothing in base64 has to be escaped")
}

/// The reasons of a refusal, each in a line, as many as there is room for.
fn message(reasons: &[Notice]) -> String {
    let mut message = String::new();
    for (index, reason) in reasons.iter().enumerate() {
        let line = shortened(&format!("{reason:#}"), LONGEST_REASON);
        if message.len() + line.len() > LONGEST_MESSAGE {
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
fn warnings(notices: &[Notice]) -> Vec<String> {
    let mut warnings: Vec<_> = notices
        .iter()
        .filter(|notice| notice.code.is_told())
        .map(|notice| shortened(&format!("{notice:#}"), LONGEST_WARNING))
        .collect();
    if warnings.len() > MOST_WARNINGS {
        let rest = warnings.split_off(MOST_WARNINGS - 1);
        warnings.push(format!("{} more warnings", rest.len()));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answered(object: &Value) -> (Answer, Value) {
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
        let answer = answer(
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
        let (answer, body) = answered(&json!({"metadata": {"name": "n"}}));
        assert_eq!(answer.outcome, Outcome::NotAsked);
        let want = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "response": {"uid": "a/\"b\"", "allowed": true},
        });
        assert_eq!(body, want);
    }

    #[test]
    fn a_pod_that_cannot_be_read_is_admitted_with_a_warning() {
        let (answer, body) = answered(&json!({"spec": {"containers": 7}}));
        assert_eq!(answer.outcome, Outcome::Failed(Code::PodNotRead));
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
        let (answer, body) = answered(&json!({
            "metadata": {"annotations": {"envoy-drainer.dev/inject": "maybe", "envoy-drainer.dev/port": "x"}},
            "spec": {"containers": [{"name": "a", "image": "envoy"}, {"name": "b", "image": "envoy"}]},
        }));
        assert_eq!(answer.outcome, Outcome::Denied);
        assert_eq!(answer.notices.len(), 3);
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
    fn asking(annotations: &Value, envoy: Value, others: &[Value]) -> Value {
        let mut annotations = annotations.clone();
        annotations["envoy-drainer.dev/inject"] = json!("true");
        let mut containers = vec![envoy];
        containers.extend_from_slice(others);
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}})
    }

    fn socket_in(mount: &Value) -> Value {
        let annotations = json!({"envoy-drainer.dev/admin-address": "unix:/a/b"});
        let envoy = json!({"name": "envoy", "volumeMounts": [mount]});
        asking(&annotations, envoy, &[])
    }

    #[test]
    fn a_name_or_path_too_long_to_repeat_is_not_read() {
        let mount = |name: usize, path: usize, sub: usize| {
            socket_in(&json!({
                "name": "\u{1}".repeat(name),
                "mountPath": format!("/a{}", "/".repeat(path - 2)),
                "subPath": "\u{1}".repeat(sub),
            }))
        };
        let named = |len| asking(&json!({}), json!({"name": "\\".repeat(len)}), &[]);
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
            let (answer, body) = answered(&pod);
            assert!(answer.body.len() <= LONGEST_ANSWER, "{}", answer.body.len());
            assert_eq!(body["response"]["allowed"], true);
            let Some(field) = field else {
                assert_eq!(answer.outcome, Outcome::Injected);
                continue;
            };
            assert_eq!(answer.outcome, Outcome::Failed(Code::PodNotRead), "{field}");
            let want = format!("no drainer: spec.containers[0].{field}: a string of");
            let warning = body["response"]["warnings"][0].as_str().unwrap();
            assert!(warning.contains(&want), "{warning}");
        }
    }

    #[test]
    fn an_answer_that_would_be_long_is_a_warning() {
        let probe = json!({"tcpSocket": {"port": 65535}, "periodSeconds": u32::MAX});
        let probed = vec![json!({"name": "a", "readinessProbe": probe}); 1_999];
        let mut pod =
            socket_in(&json!({"name": "v", "mountPath": "/a", "subPath": "\u{1}".repeat(4096)}));
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.extend(probed);
        let (answer, body) = answered(&pod);
        assert_eq!(answer.outcome, Outcome::Failed(Code::PodNotRead));
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
        let reasons = vec![Code::BadValue.about("\"\u{1}".repeat(1024)); 100];
        let about = Review::decode(
            json!({"apiVersion": API_VERSION, "kind": KIND, "request": {"uid": "u"}})
                .to_string()
                .as_bytes(),
        )
        .unwrap()
        .about();
        let answer = deny(about, reasons.clone(), reasons);
        assert!(answer.body.len() <= LONGEST_ANSWER, "{}", answer.body.len());
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let message = body["response"]["status"]["message"].as_str().unwrap();
        assert!(message.ends_with(" more reasons"), "{message}");
    }

    #[test]
    fn a_bug_of_ours_is_a_notice() {
        assert_eq!(guarded(|| 1), Ok(1));
        let fault = guarded(|| panic!("a bug, on purpose")).unwrap_err();
        assert_eq!(fault.code, Code::InternalError);
    }
}
