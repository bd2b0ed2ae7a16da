//! Decodes the AdmissionReview that the API server sends.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::excerpt::excerpt;
use crate::limits;
use crate::pod::{Text, or_default};

/// Why a body cannot be answered with an AdmissionReview.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReview {
    /// The body is not JSON, or not in the form of an AdmissionReview.
    #[error("the body is not an AdmissionReview: {0}")]
    Malformed(String),
    #[error("the body is a `{kind}` of `{api_version}`: expected `{KIND}` of `{API_VERSION}`")]
    UnexpectedKind { api_version: String, kind: String },
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

/// Maximum length of a parser's message, in bytes, since it may repeat a part of the body.
const MAX_REASON_LEN: usize = 512;

/// How deep the members of a request are in a review.
const REQUEST_DEPTH: usize = 2;

/// Maximum length of a uid, in bytes: several times that of a UUID.
const MAX_UID_LEN: usize = 256;

/// The requests whose object admission reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFilter {
    PodCreation,
    /// The creation or the update of an object of any kind.
    Write,
}

/// The metadata of a request, and its object if the request passes the filter: the object itself, or its JSON if it
/// cannot be decoded.
pub(crate) type DecodedReview<'a, O> = (RequestMeta, Option<Result<O, &'a str>>);

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

/// Decodes a review with its object in one pass. Only if that fails, the review is decoded without its object.
///
/// # Errors
/// If no response to the body is possible.
pub(crate) fn decode_review<'a, O: Deserialize<'a>>(
    body: &'a [u8],
    filter: RequestFilter,
) -> Result<DecodedReview<'a, O>, InvalidReview> {
    let body = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
    let exceeded = limits::check(body).err();
    if let Some((..=REQUEST_DEPTH, limit)) = exceeded {
        return Err(malformed(&limit));
    }
    if exceeded.is_none() {
        match ReviewRequest::<O>::decode(body) {
            // The error may be in the object alone.
            Err(InvalidReview::Malformed(_)) => {}
            request => {
                let (request, object) = request?.into_parts(filter);
                return Ok((request, object.map(Ok)));
            }
        }
    }
    let (request, json) = ReviewRequest::<&RawValue>::decode(body)?.into_parts(filter);
    Ok((request, json.map(|json| Err(json.get()))))
}

fn malformed(error: &dyn ToString) -> InvalidReview {
    InvalidReview::Malformed(excerpt(&error.to_string(), MAX_REASON_LEN))
}

// === impl ReviewRequest ===

impl<'a, O: Deserialize<'a>> ReviewRequest<'a, O> {
    /// Decodes a review; its request has a uid.
    ///
    /// # Errors
    /// If no response to the body is possible, or if the object is not an `O`.
    fn decode(body: &'a str) -> Result<Self, InvalidReview> {
        let review: Envelope<'a, O> =
            serde_json::from_str(body).map_err(|error| malformed(&error))?;
        let [api_version, kind] =
            [&review.api_version, &review.kind].map(|text| text.as_deref().unwrap_or_default());
        if (api_version, kind) != (API_VERSION, KIND) {
            return Err(InvalidReview::UnexpectedKind {
                api_version: excerpt(api_version, MAX_NAME_LEN),
                kind: excerpt(kind, MAX_NAME_LEN),
            });
        }
        let request = review.request.ok_or(InvalidReview::MissingRequest)?;
        match request.uid.as_deref().map_or(0, str::len) {
            0 => Err(InvalidReview::MissingUid),
            1..=MAX_UID_LEN => Ok(request),
            len => Err(InvalidReview::UidTooLong(len)),
        }
    }

    /// Returns the metadata, and the object if the request passes the filter.
    fn into_parts(self, filter: RequestFilter) -> (RequestMeta, Option<O>) {
        let text = |text: &'_ Option<Text<'a>>| text.as_deref().unwrap_or_default().to_owned();
        let GroupVersionKind {
            group,
            version,
            kind,
        } = &self.kind;
        let kind = [group, version, kind].map(text);
        let operation = self.operation.as_deref().unwrap_or_default();
        let passes = match filter {
            RequestFilter::PodCreation => operation == "CREATE" && kind == ["", "v1", "Pod"],
            RequestFilter::Write => matches!(operation, "CREATE" | "UPDATE"),
        };
        let is_object = self.sub_resource.as_deref().unwrap_or_default().is_empty();
        let meta = RequestMeta {
            uid: text(&self.uid),
            namespace: text(&self.namespace),
            name: text(&self.name),
            dry_run: self.dry_run == Some(true),
        };
        (meta, self.object.filter(|_| passes && is_object))
    }
}

// === impl RequestMeta ===

impl RequestMeta {
    /// Returns the namespace; `None` for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(&*self.namespace).filter(|namespace| !namespace.is_empty())
    }

    /// Names the object, unless the request does. The API server leaves the name out if it will generate it.
    pub(crate) fn set_name_if_missing(&mut self, name: Option<&str>) {
        if self.name.is_empty() {
            name.unwrap_or_default().clone_into(&mut self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::{Object, PodView};

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

    /// Decodes the review of a pod with another value at a JSON pointer.
    fn decode_with<T>(
        pointer: &str,
        value: Value,
        read: impl FnOnce(Result<DecodedReview<'_, Object<PodView<'_>>>, InvalidReview>) -> T,
    ) -> T {
        let mut review = review();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        review.pointer_mut(parent).unwrap()[key] = value;
        let body = review.to_string();
        read(decode_review(body.as_bytes(), RequestFilter::PodCreation))
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
            let read = decode_review::<Object<PodView<'_>>>(malformed, RequestFilter::Write).err();
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
