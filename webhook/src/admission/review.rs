//! The AdmissionReview that the API server sends, read from the request's bytes.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>

use drainer::Token;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::About;
use super::excerpt::shortened;
use super::mutate::Facts;
use super::view::{PodView, Text, Unread, from_objects, plain};

/// Why bytes are not a request that can be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAReview {
    /// The bytes are no JSON, or not of an AdmissionReview's shape.
    #[error("the body is not an AdmissionReview: {0}")]
    Garbage(String),
    /// The JSON is something else.
    #[error("the body is a `{kind}` of `{api_version}`: want an `{KIND}` of `{API_VERSION}`")]
    OtherKind {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// There is no request in the review.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// The request has no uid, without which the API server takes an answer for a failure.
    #[error("the request has no uid")]
    NoUid,
    /// The uid, which an answer repeats, is longer than any uid.
    #[error("the request's uid has {0} bytes: at most {LONGEST_UID}")]
    LongUid(usize),
}

pub(super) const API_VERSION: &str = "admission.k8s.io/v1";
pub(super) const KIND: &str = "AdmissionReview";

/// In bytes. A message cuts longer names.
const LONGEST_NAME: usize = 253;

/// In bytes: several times a UUID.
const LONGEST_UID: usize = 256;

/// A review, read as far as its object could be.
pub(super) struct Review<'a> {
    pub uid: Text<'a>,
    pub namespace: Option<Text<'a>>,
    pub name: Option<Text<'a>>,
    pub dry_run: bool,
    pub subject: Subject<'a>,
}

/// A review of any object, which is not read yet.
pub(super) struct WrittenObject<'a> {
    pub uid: Text<'a>,
    pub namespace: Option<Text<'a>>,
    pub dry_run: bool,
    /// The object that is created or takes the place of another, as JSON.
    pub object: Option<&'a str>,
}

/// What a review is about.
pub(super) enum Subject<'a> {
    /// A pod that is to be created.
    NewPod(PodView<'a>),
    /// A pod that is to be created and is not as we know pods, but for its metadata perhaps.
    UnreadPod(PodView<'a>, Unread),
    /// Anything else.
    Other,
}

#[derive(Deserialize)]
#[serde(
    remote = "Self",
    rename_all = "camelCase",
    bound(deserialize = "O: Deserialize<'de>")
)]
struct Envelope<'a, O> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    request: Option<Request<'a, O>>,
}

#[derive(Deserialize)]
#[serde(
    remote = "Self",
    rename_all = "camelCase",
    bound(deserialize = "O: Deserialize<'de>")
)]
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
    #[serde(default, deserialize_with = "plain")]
    dry_run: Option<bool>,
    object: Option<O>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct GroupVersionKind<'a> {
    #[serde(borrow)]
    group: Option<Text<'a>>,
    #[serde(borrow)]
    version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
}

from_objects! {
    Envelope<'a, O>,
    Request<'a, O>,
    GroupVersionKind<'a>,
}

// === impl Review ===

impl<'a> Review<'a> {
    /// Reads a review.
    ///
    /// # Errors
    /// If the bytes hold none that could be answered.
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, NotAReview> {
        let garbage = |error: &dyn ToString| NotAReview::Garbage(error.to_string());
        let body = std::str::from_utf8(body).map_err(|error| garbage(&error))?;
        match serde_json::from_str::<Envelope<'_, PodView<'_>>>(body) {
            Ok(envelope) => Self::of(envelope, |pod| pod.map_or(Subject::Other, Subject::NewPod)),
            // Once more without the object: if that goes well, it alone was to blame.
            Err(unread) => match serde_json::from_str::<Envelope<'_, &RawValue>>(body) {
                Ok(envelope) => Self::of(envelope, |pod| {
                    let pod = pod.map_or("null", RawValue::get);
                    let unread = Unread::find(pod, &unread);
                    Subject::UnreadPod(PodView::metadata_of(pod), unread)
                }),
                Err(error) => Err(garbage(&error)),
            },
        }
    }

    fn of<O>(
        envelope: Envelope<'a, O>,
        subject: impl FnOnce(Option<O>) -> Subject<'a>,
    ) -> Result<Self, NotAReview> {
        let (uid, request) = envelope.asked()?;
        let subject = match request.creates_a_pod() {
            true => subject(request.object),
            false => Subject::Other,
        };
        Ok(Self {
            uid,
            namespace: request.namespace,
            name: request.name,
            dry_run: request.dry_run == Some(true),
            subject,
        })
    }

    /// What the review is about.
    pub(super) fn about(&self) -> About {
        About {
            uid: self.uid.to_string(),
            namespace: self.namespace.as_deref().unwrap_or_default().to_owned(),
            name: self.pod_name().to_owned(),
            dry_run: self.dry_run,
        }
    }

    /// What the review tells of the pod beside its manifest.
    pub(super) fn facts(&self, token: Token) -> Facts<'_> {
        Facts {
            namespace: self.namespace.as_deref(),
            in_job: false,
            token,
        }
    }

    /// The pod that is to be created, as far as it could be read.
    pub(super) fn pod(&self) -> Option<&PodView<'a>> {
        match &self.subject {
            Subject::NewPod(pod) | Subject::UnreadPod(pod, _) => Some(pod),
            Subject::Other => None,
        }
    }

    /// The pod's name, or what the API server will begin it with; empty for anything else.
    pub(super) fn pod_name(&self) -> &str {
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        name.or_else(|| self.pod()?.name()).unwrap_or_default()
    }
}

// === impl WrittenObject ===

impl<'a> WrittenObject<'a> {
    /// Reads a review.
    ///
    /// # Errors
    /// If the bytes hold none that could be answered.
    pub(super) fn decode(body: &'a [u8]) -> Result<Self, NotAReview> {
        let garbage = |error: &dyn ToString| NotAReview::Garbage(error.to_string());
        let body = std::str::from_utf8(body).map_err(|error| garbage(&error))?;
        let envelope: Envelope<'a, &'a RawValue> =
            serde_json::from_str(body).map_err(|error| garbage(&error))?;
        let (uid, request) = envelope.asked()?;
        let is_written = matches!(request.operation.as_deref(), Some("CREATE" | "UPDATE"));
        let is_whole = request.sub_resource.as_deref().unwrap_or_default() == "";
        let object = request.object.filter(|_| is_written && is_whole);
        Ok(Self {
            uid,
            namespace: request.namespace,
            dry_run: request.dry_run == Some(true),
            object: object.map(RawValue::get),
        })
    }
}

// === impl Envelope ===

impl<'a, O> Envelope<'a, O> {
    /// The request and its uid, which is not empty.
    fn asked(self) -> Result<(Text<'a>, Request<'a, O>), NotAReview> {
        let [api_version, kind] =
            [&self.api_version, &self.kind].map(|text| text.as_deref().unwrap_or_default());
        if (api_version, kind) != (API_VERSION, KIND) {
            return Err(NotAReview::OtherKind {
                api_version: shortened(api_version, LONGEST_NAME),
                kind: shortened(kind, LONGEST_NAME),
            });
        }
        let mut request = self.request.ok_or(NotAReview::NoRequest)?;
        let uid = request.uid.take().filter(|uid| !uid.is_empty());
        let uid = uid.ok_or(NotAReview::NoUid)?;
        match uid.len() {
            ..=LONGEST_UID => Ok((uid, request)),
            long => Err(NotAReview::LongUid(long)),
        }
    }
}

// === impl Request ===

impl<O> Request<'_, O> {
    fn creates_a_pod(&self) -> bool {
        let kind = self.kind.as_ref();
        let told = [
            kind.and_then(|kind| kind.group.as_deref()),
            kind.and_then(|kind| kind.version.as_deref()),
            kind.and_then(|kind| kind.kind.as_deref()),
            self.sub_resource.as_deref(),
            self.operation.as_deref(),
        ];
        told.map(Option::unwrap_or_default) == ["", "v1", "Pod", "", "CREATE"]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn review() -> Value {
        json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "request": {
                "uid": "u",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "operation": "CREATE",
                "object": {"metadata": {"generateName": "edge-"}},
            },
        })
    }

    /// What is read of the review with something else at a JSON pointer.
    fn with<T>(
        pointer: &str,
        value: Value,
        read: impl FnOnce(Result<Review<'_>, NotAReview>) -> T,
    ) -> T {
        let mut review = review();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        review.pointer_mut(parent).unwrap()[key] = value;
        read(Review::decode(review.to_string().as_bytes()))
    }

    #[test]
    fn what_cannot_be_answered_is_no_review() {
        let other = |api_version: &str, kind: &str| NotAReview::OtherKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let table = [
            (
                "/apiVersion",
                json!("admission.k8s.io/v1beta1"),
                other("admission.k8s.io/v1beta1", KIND),
            ),
            ("/apiVersion", Value::Null, other("", KIND)),
            ("/kind", json!("Pod"), other(API_VERSION, "Pod")),
            ("/request", Value::Null, NotAReview::NoRequest),
            ("/request/uid", Value::Null, NotAReview::NoUid),
            ("/request/uid", json!(""), NotAReview::NoUid),
            (
                "/request/uid",
                json!("u".repeat(257)),
                NotAReview::LongUid(257),
            ),
        ];
        for (pointer, value, want) in table {
            with(pointer, value.clone(), |read| {
                assert_eq!(read.err(), Some(want), "{pointer}: {value}");
            });
        }
        for garbage in [
            &b""[..],
            b"null ",
            b"[]",
            b"{",
            b"{}}",
            b"\xff",
            b"{\"kind\": 1}",
            b"{\"request\": []}",
        ] {
            let read = Review::decode(garbage).err();
            assert!(
                matches!(&read, Some(NotAReview::Garbage(_))),
                "{garbage:?}: {read:?}"
            );
        }
    }

    #[test]
    fn only_the_creation_of_a_pod_is_ours() {
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
            with(pointer, value.clone(), |read| {
                let subject = read.unwrap().subject;
                assert!(matches!(subject, Subject::Other), "{pointer}: {value}");
            });
        }
    }

    #[test]
    fn a_pod_that_is_none_spoils_only_itself() {
        for object in [json!([]), json!("pod"), json!({"spec": {"containers": {}}})] {
            with("/request/object", object.clone(), |read| {
                let review = read.unwrap();
                assert_eq!(&*review.uid, "u");
                assert!(matches!(review.subject, Subject::UnreadPod(..)), "{object}");
            });
        }
        // Whatever another kind looks like, it is not our business.
        with(
            "/request",
            json!({"uid": "u", "object": {"spec": 1}}),
            |read| {
                assert!(matches!(read.unwrap().subject, Subject::Other));
            },
        );
    }

    #[test]
    fn a_pod_without_a_name_goes_by_what_its_name_begins_with() {
        for (pointer, value, name) in [
            ("/request/dryRun", json!(true), "edge-"),
            ("/request/name", json!(""), "edge-"),
            ("/request/name", json!("edge-1"), "edge-1"),
            (
                "/request/object/metadata",
                json!({"name": "n", "generateName": "g-"}),
                "n",
            ),
            ("/request/object/metadata", Value::Null, ""),
        ] {
            with(pointer, value.clone(), |read| {
                let review = read.unwrap();
                assert_eq!(review.pod_name(), name, "{pointer}: {value}");
                assert_eq!(review.dry_run, pointer == "/request/dryRun");
            });
        }
    }
}
