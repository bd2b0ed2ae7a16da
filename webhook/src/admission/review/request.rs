//! Decodes the AdmissionReview that the API server sends.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>

use drainer::Token;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::admission::context::PodContext;
use crate::admission::excerpt::truncate;
use crate::admission::pod::{DecodeError, PodView, Text, from_objects, number_or_bool};

/// Why a body cannot be answered with an AdmissionReview.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReview {
    /// The body is not JSON, or not in the form of an AdmissionReview.
    #[error("the body is not an AdmissionReview: {0}")]
    Malformed(String),
    /// The body is another object.
    #[error("the body is a `{kind}` of `{api_version}`: expected `{KIND}` of `{API_VERSION}`")]
    UnexpectedKind {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// The review has no request.
    #[error("the AdmissionReview has no request")]
    MissingRequest,
    /// The request has no uid, without which the API server treats the response as a failure.
    #[error("the request has no uid")]
    MissingUid,
    /// The uid, which the response repeats, is longer than a uid can be.
    #[error("the request's uid has {0} bytes: the limit is {MAX_UID_LEN}")]
    UidTooLong(usize),
}

pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
pub(crate) const KIND: &str = "AdmissionReview";

/// Maximum length of a name in a message, in bytes.
const MAX_NAME_LEN: usize = 253;

/// Maximum length of a uid, in bytes: several times that of a UUID.
const MAX_UID_LEN: usize = 256;

/// A review of a pod, decoded as far as possible.
pub(crate) struct PodReview<'a> {
    pub uid: Text<'a>,
    pub namespace: Option<Text<'a>>,
    pub name: Option<Text<'a>>,
    pub dry_run: bool,
    pub target: ReviewTarget<'a>,
}

/// A review of any object, which is not decoded yet.
pub(crate) struct ObjectReview<'a> {
    pub uid: Text<'a>,
    pub namespace: Option<Text<'a>>,
    pub dry_run: bool,
    /// The object that is created or updated, as JSON.
    pub object: Option<&'a str>,
}

/// Metadata of a request, for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMeta {
    /// The request's uid.
    pub uid: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The object's name, or else the `name` or `generateName` of a pod that is created; empty if there is none.
    pub name: String,
    /// Whether the object will not be stored, so that no Event may report it.
    pub dry_run: bool,
}

/// The target of a review.
pub(crate) enum ReviewTarget<'a> {
    /// A pod that is created.
    NewPod(PodView<'a>),
    /// A pod that is created but cannot be decoded, with its metadata if that can.
    InvalidPod(PodView<'a>, DecodeError),
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
    request: Option<EnvelopeRequest<'a, O>>,
}

#[derive(Deserialize)]
#[serde(
    remote = "Self",
    rename_all = "camelCase",
    bound(deserialize = "O: Deserialize<'de>")
)]
struct EnvelopeRequest<'a, O> {
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
    #[serde(default, deserialize_with = "number_or_bool")]
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
    EnvelopeRequest<'a, O>,
    GroupVersionKind<'a>,
}

// === impl PodReview ===

impl<'a> PodReview<'a> {
    /// Decodes a review.
    ///
    /// # Errors
    /// If no response to the body is possible.
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, InvalidReview> {
        let malformed = |error: &dyn ToString| InvalidReview::Malformed(error.to_string());
        let body = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
        match serde_json::from_str::<Envelope<'_, PodView<'_>>>(body) {
            Ok(envelope) => Self::from_envelope(envelope, |pod| {
                pod.map_or(ReviewTarget::Other, ReviewTarget::NewPod)
            }),
            // Decode again without the object: if that succeeds, only the object is invalid.
            Err(error) => match serde_json::from_str::<Envelope<'_, &RawValue>>(body) {
                Ok(envelope) => Self::from_envelope(envelope, |pod| {
                    let pod = pod.map_or("null", RawValue::get);
                    let error = PodView::decode_error(pod, &error);
                    ReviewTarget::InvalidPod(PodView::decode_metadata(pod), error)
                }),
                Err(error) => Err(malformed(&error)),
            },
        }
    }

    fn from_envelope<O>(
        envelope: Envelope<'a, O>,
        target: impl FnOnce(Option<O>) -> ReviewTarget<'a>,
    ) -> Result<Self, InvalidReview> {
        let (uid, request) = envelope.into_request()?;
        let target = match request.is_pod_creation() {
            true => target(request.object),
            false => ReviewTarget::Other,
        };
        Ok(Self {
            uid,
            namespace: request.namespace,
            name: request.name,
            dry_run: request.dry_run == Some(true),
            target,
        })
    }

    /// Returns the metadata of the request.
    pub(crate) fn request_meta(&self) -> RequestMeta {
        RequestMeta {
            uid: self.uid.to_string(),
            namespace: self.namespace.as_deref().unwrap_or_default().to_owned(),
            name: self.object_name().to_owned(),
            dry_run: self.dry_run,
        }
    }

    /// Returns the context of the pod: its namespace and `token`. Whether it is in a Job is left to its manifest.
    pub(crate) fn pod_context(&self, token: Token) -> PodContext<'_> {
        PodContext {
            namespace: self.namespace.as_deref(),
            in_job: false,
            token,
        }
    }

    /// Returns the pod that is created, as far as it could be decoded.
    pub(crate) fn pod(&self) -> Option<&PodView<'a>> {
        match &self.target {
            ReviewTarget::NewPod(pod) | ReviewTarget::InvalidPod(pod, _) => Some(pod),
            ReviewTarget::Other => None,
        }
    }

    /// Returns the request's name, or else the `name` or `generateName` of the pod that is created; empty if there is
    /// none.
    pub(crate) fn object_name(&self) -> &str {
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        name.or_else(|| self.pod()?.name()).unwrap_or_default()
    }
}

// === impl ObjectReview ===

impl<'a> ObjectReview<'a> {
    /// Decodes a review.
    ///
    /// # Errors
    /// If no response to the body is possible.
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, InvalidReview> {
        let malformed = |error: &dyn ToString| InvalidReview::Malformed(error.to_string());
        let body = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
        let envelope: Envelope<'a, &'a RawValue> =
            serde_json::from_str(body).map_err(|error| malformed(&error))?;
        let (uid, request) = envelope.into_request()?;
        let is_create_or_update = matches!(request.operation.as_deref(), Some("CREATE" | "UPDATE"));
        let has_no_subresource = request.sub_resource.as_deref().unwrap_or_default() == "";
        let object = request
            .object
            .filter(|_| is_create_or_update && has_no_subresource);
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
    /// Returns the request and its uid, which is not empty.
    fn into_request(self) -> Result<(Text<'a>, EnvelopeRequest<'a, O>), InvalidReview> {
        let [api_version, kind] =
            [&self.api_version, &self.kind].map(|text| text.as_deref().unwrap_or_default());
        if (api_version, kind) != (API_VERSION, KIND) {
            return Err(InvalidReview::UnexpectedKind {
                api_version: truncate(api_version, MAX_NAME_LEN),
                kind: truncate(kind, MAX_NAME_LEN),
            });
        }
        let mut request = self.request.ok_or(InvalidReview::MissingRequest)?;
        let uid = request.uid.take().filter(|uid| !uid.is_empty());
        let uid = uid.ok_or(InvalidReview::MissingUid)?;
        match uid.len() {
            ..=MAX_UID_LEN => Ok((uid, request)),
            len => Err(InvalidReview::UidTooLong(len)),
        }
    }
}

// === impl EnvelopeRequest ===

impl<O> EnvelopeRequest<'_, O> {
    fn is_pod_creation(&self) -> bool {
        let kind = self.kind.as_ref();
        let fields = [
            kind.and_then(|kind| kind.group.as_deref()),
            kind.and_then(|kind| kind.version.as_deref()),
            kind.and_then(|kind| kind.kind.as_deref()),
            self.sub_resource.as_deref(),
            self.operation.as_deref(),
        ];
        fields.map(Option::unwrap_or_default) == ["", "v1", "Pod", "", "CREATE"]
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

    /// Decodes the review with another value at a JSON pointer.
    fn decode_with<T>(
        pointer: &str,
        value: Value,
        read: impl FnOnce(Result<PodReview<'_>, InvalidReview>) -> T,
    ) -> T {
        let mut review = review();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        review.pointer_mut(parent).unwrap()[key] = value;
        read(PodReview::decode(review.to_string().as_bytes()))
    }

    #[test]
    fn review_without_a_possible_response_is_rejected() {
        let other = |api_version: &str, kind: &str| InvalidReview::UnexpectedKind {
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
            ("/request", Value::Null, InvalidReview::MissingRequest),
            ("/request/uid", Value::Null, InvalidReview::MissingUid),
            ("/request/uid", json!(""), InvalidReview::MissingUid),
            (
                "/request/uid",
                json!("u".repeat(257)),
                InvalidReview::UidTooLong(257),
            ),
        ];
        for (pointer, value, want) in table {
            decode_with(pointer, value.clone(), |read| {
                assert_eq!(read.err(), Some(want), "{pointer}: {value}");
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
            let read = PodReview::decode(malformed).err();
            assert!(
                matches!(&read, Some(InvalidReview::Malformed(_))),
                "{malformed:?}: {read:?}"
            );
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
                let target = read.unwrap().target;
                assert!(matches!(target, ReviewTarget::Other), "{pointer}: {value}");
            });
        }
    }

    #[test]
    fn invalid_pod_keeps_the_request_valid() {
        for object in [json!([]), json!("pod"), json!({"spec": {"containers": {}}})] {
            decode_with("/request/object", object.clone(), |read| {
                let review = read.unwrap();
                assert_eq!(&*review.uid, "u");
                assert!(
                    matches!(review.target, ReviewTarget::InvalidPod(..)),
                    "{object}"
                );
            });
        }
        // The form of other kinds does not matter.
        decode_with(
            "/request",
            json!({"uid": "u", "object": {"spec": 1}}),
            |read| {
                assert!(matches!(read.unwrap().target, ReviewTarget::Other));
            },
        );
    }

    #[test]
    fn unnamed_pod_is_called_by_its_generate_name() {
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
            decode_with(pointer, value.clone(), |read| {
                let review = read.unwrap();
                assert_eq!(review.object_name(), name, "{pointer}: {value}");
                assert_eq!(review.dry_run, pointer == "/request/dryRun");
            });
        }
    }
}
