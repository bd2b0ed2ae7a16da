//! The AdmissionReview: read from the request's bytes, and answered.

use std::panic::{self, AssertUnwindSafe};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::codes::{Code, Notice};
use super::defaults::Defaults;
use super::mutate::{Facts, Verdict, mutate};
use super::token::token;
use super::view::{PodView, Text};

/// The answer to one AdmissionReview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The AdmissionReview to send back, as JSON.
    pub body: Vec<u8>,
    /// What the request was about.
    pub about: About,
    /// What became of it.
    pub outcome: Outcome,
    /// Every reason and every warning in the answer.
    pub notices: Vec<Notice>,
}

/// What a request was about, for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The request's uid.
    pub uid: String,
    /// The namespace; empty for what has none.
    pub namespace: String,
    /// The pod's name, or its `generateName` while it has none.
    pub pod: String,
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
    /// We could not do our work; the pod is admitted as it is.
    Failed(Code),
}

/// Why bytes are not a request that can be answered.
#[derive(Debug, thiserror::Error)]
pub enum NotAReview {
    /// The bytes are no JSON, or not of an AdmissionReview's shape.
    #[error("the body is not an AdmissionReview: {0}")]
    Garbage(String),
    /// The JSON is something else.
    #[error("the body is a `{kind}` of `{api_version}`: want an AdmissionReview of {API_VERSION}")]
    OtherKind {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// There is no request in the review.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// The API server takes an answer without its uid for a failure.
    #[error("the request has no uid")]
    NoUid,
}

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// In bytes. The API server cuts longer warnings.
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response>
const LONGEST_WARNING: usize = 256;

/// More than a person reads, and than the API server passes on in all.
const MOST_WARNINGS: usize = 16;

/// A review, read as far as the object could be.
struct Review<'a> {
    uid: Text<'a>,
    namespace: Option<Text<'a>>,
    name: Option<Text<'a>>,
    dry_run: bool,
    object: Object<'a>,
}

enum Object<'a> {
    NewPod(PodView<'a>),
    UnreadPod(serde_json::Error),
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "O: Deserialize<'de>"))]
struct Envelope<'a, O> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    request: Option<Request<'a, O>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "O: Deserialize<'de>"))]
struct Request<'a, O> {
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<GroupVersionKind<'a>>,
    #[serde(borrow)]
    sub_resource: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    operation: Option<Text<'a>>,
    dry_run: Option<bool>,
    object: Option<O>,
}

#[derive(Deserialize)]
struct GroupVersionKind<'a> {
    #[serde(borrow)]
    group: Option<Text<'a>>,
    #[serde(borrow)]
    version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
}

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
    patch: Option<String>,
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
/// # Errors
/// If the bytes hold no request to answer, which is the caller's mistake.
pub fn answer(body: &[u8], defaults: &Defaults) -> Result<Answer, NotAReview> {
    let review = Review::decode(body)?;
    Ok(match &review.object {
        Object::Other => review.allow(Outcome::NotOurs, None, Vec::new()),
        Object::UnreadPod(error) => {
            let notice = Code::PodNotRead.about(format!(
                "the pod could not be read, so it gets no drainer: {error}"
            ));
            review.allow(Outcome::Failed(Code::PodNotRead), None, vec![notice])
        }
        Object::NewPod(pod) => match guarded(|| mutate(pod, &review.facts(), defaults)) {
            Ok(verdict) => review.tell(verdict),
            Err(notice) => review.allow(Outcome::Failed(notice.code), None, vec![notice]),
        },
    })
}

/// Turns a bug of ours into a notice; the panic's hook has told where it was.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Notice> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| Code::InternalError.about("the webhook failed, so the pod gets no drainer"))
}

// === impl Review ===

impl<'a> Review<'a> {
    fn decode(body: &'a [u8]) -> Result<Self, NotAReview> {
        let body =
            std::str::from_utf8(body).map_err(|error| NotAReview::Garbage(error.to_string()))?;
        match serde_json::from_str::<Envelope<'_, PodView<'_>>>(body) {
            Ok(envelope) => Self::of(envelope, |pod| pod.map_or(Object::Other, Object::NewPod)),
            // Read once more without the object: if that goes well, only the object was to blame.
            Err(unread) => match serde_json::from_str::<Envelope<'_, IgnoredAny>>(body) {
                Ok(envelope) => Self::of(envelope, |_| Object::UnreadPod(unread)),
                Err(error) => Err(NotAReview::Garbage(error.to_string())),
            },
        }
    }

    fn of<O>(
        envelope: Envelope<'a, O>,
        object: impl FnOnce(Option<O>) -> Object<'a>,
    ) -> Result<Self, NotAReview> {
        let text = |text: &Option<Text<'_>>| text.as_deref().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&envelope.api_version), text(&envelope.kind));
        if api_version != API_VERSION || kind != KIND {
            return Err(NotAReview::OtherKind { api_version, kind });
        }
        let request = envelope.request.ok_or(NotAReview::NoRequest)?;
        let object = if request.creates_a_pod() {
            object(request.object)
        } else {
            Object::Other
        };
        Ok(Self {
            uid: request
                .uid
                .filter(|uid| !uid.is_empty())
                .ok_or(NotAReview::NoUid)?,
            namespace: request.namespace,
            name: request.name,
            dry_run: request.dry_run.unwrap_or(false),
            object,
        })
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            namespace: self.namespace.as_deref(),
            in_job: false,
            token: token(self.uid.as_bytes()),
        }
    }

    fn tell(&self, verdict: Verdict) -> Answer {
        match verdict {
            Verdict::NotAsked => self.allow(Outcome::NotAsked, None, Vec::new()),
            Verdict::Inject {
                patch, warnings, ..
            } => self.allow(Outcome::Injected, Some(patch), warnings),
            Verdict::Skip {
                reason,
                patch,
                mut warnings,
            } => {
                let outcome = Outcome::Skipped(reason.code);
                warnings.insert(0, reason);
                self.allow(outcome, Some(patch), warnings)
            }
            Verdict::Deny { reasons, warnings } => self.deny(reasons, warnings),
        }
    }

    fn allow(&self, outcome: Outcome, patch: Option<Patch>, notices: Vec<Notice>) -> Answer {
        let patch = patch.filter(|patch| !patch.0.is_empty()).map(|patch| {
            let json = serde_json::to_vec(&patch).expect("a patch holds nothing but JSON");
            STANDARD.encode(json)
        });
        let response = Response {
            uid: &self.uid,
            allowed: true,
            status: None,
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch,
            warnings: warnings(&notices),
        };
        self.answer(response, outcome, notices)
    }

    fn deny(&self, reasons: Vec<Notice>, mut notices: Vec<Notice>) -> Answer {
        let lines: Vec<_> = reasons.iter().map(|reason| format!("{reason:#}")).collect();
        let response = Response {
            uid: &self.uid,
            allowed: false,
            status: Some(Status {
                code: 422,
                reason: "Invalid",
                message: lines.join("\n"),
            }),
            patch_type: None,
            patch: None,
            warnings: warnings(&notices),
        };
        notices.splice(0..0, reasons);
        self.answer(response, Outcome::Denied, notices)
    }

    fn answer(&self, response: Response<'_>, outcome: Outcome, notices: Vec<Notice>) -> Answer {
        let review = ReviewAnswer {
            api_version: API_VERSION,
            kind: KIND,
            response,
        };
        let pod = match &self.object {
            Object::NewPod(pod) => pod.name(),
            Object::UnreadPod(_) | Object::Other => None,
        };
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        Answer {
            body: serde_json::to_vec(&review)
                .expect("strings, numbers and booleans always serialise"),
            about: About {
                uid: self.uid.to_string(),
                namespace: self.namespace.as_deref().unwrap_or_default().to_owned(),
                pod: name.or(pod).unwrap_or_default().to_owned(),
                dry_run: self.dry_run,
            },
            outcome,
            notices,
        }
    }
}

// === impl Request ===

impl<O> Request<'_, O> {
    fn creates_a_pod(&self) -> bool {
        let is =
            |text: &Option<Text<'_>>, wanted: &str| text.as_deref().unwrap_or_default() == wanted;
        let is_pod = |gvk: &GroupVersionKind<'_>| {
            is(&gvk.group, "") && is(&gvk.version, "v1") && is(&gvk.kind, "Pod")
        };
        self.kind.as_ref().is_some_and(is_pod)
            && is(&self.sub_resource, "")
            && is(&self.operation, "CREATE")
    }
}

/// The notices as the API server passes them on: short, without control characters, not too many.
fn warnings(notices: &[Notice]) -> Vec<String> {
    let mut warnings: Vec<_> = notices
        .iter()
        .filter(|notice| notice.code != Code::AlreadyInjected)
        .map(|notice| shortened(&format!("{notice:#}")))
        .collect();
    let left_out = warnings.len().saturating_sub(MOST_WARNINGS);
    if left_out > 0 {
        warnings.truncate(MOST_WARNINGS - 1);
        warnings.push(format!("{} more warnings", left_out + 1));
    }
    warnings
}

fn shortened(text: &str) -> String {
    let mut text = text.replace(char::is_control, " ");
    if text.len() > LONGEST_WARNING {
        text.truncate(text.floor_char_boundary(LONGEST_WARNING - '…'.len_utf8()));
        text.push('…');
    }
    text
}
