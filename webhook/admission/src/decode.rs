//! Decodes a document within the limits of what it becomes in memory.
//!
//! The size of the document is no such limit: a `{}` of two bytes becomes a container of some 400.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::excerpt::excerpt;

/// Why a pod, or another object, cannot be decoded: `spec.containers[0].name: invalid type: integer`. Without a field,
/// it is about the object as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A field has another type, or a limit is exceeded.
    #[error("{0}")]
    Field(String),
    /// A long text is in place of another type: no API server sends that.
    #[error("{0}")]
    LongText(String),
}

/// A limit that a document exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Limit {
    #[error("more than {MAX_ELEMENTS} elements in its lists together")]
    Elements,
    #[error("a string of {0} bytes: the limit is {MAX_STRING_LEN}")]
    String(usize),
    #[error("nested deeper than {MAX_DEPTH} levels")]
    Depth,
}

struct ListVisitor<T>(PhantomData<T>);

thread_local! {
    /// How many elements the lists of the document that this thread decodes may still have.
    static ELEMENTS_LEFT: Cell<usize> = const { Cell::new(MAX_ELEMENTS) };
}

/// Maximum number of elements of all lists together: some 400 KiB in memory. Pods with two sidecars have about 40.
const MAX_ELEMENTS: usize = 2_000;

/// Maximum length of a string, in bytes with its escapes, since the error of one in place of another type repeats it.
/// All annotations of a pod have at most a quarter of it.
const MAX_STRING_LEN: usize = 1 << 20;

/// Maximum depth of nesting, which is serde_json's too.
const MAX_DEPTH: usize = 127;

/// Maximum length of a reason, in bytes, for which the document is decoded again to name the field. The reason of a
/// text in place of another type repeats it with escapes: 60 KiB take 2 ms, a hundred times as long as to read them.
const MAX_REASON_LEN: usize = 4 << 10;

/// Maximum length of a field in a message, in bytes, since a key of a map may be part of it.
const MAX_FIELD_LEN: usize = 512;

/// Decodes a document, or part of one, within the limits of its size in memory.
///
/// # Errors
/// If a relevant field has another type or exceeds its limit.
pub(super) fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, DecodeError> {
    check_limits(json)?;
    decode_part(json)
}

/// Decodes part of a document that is within the limits.
///
/// # Errors
/// As [`decode`].
pub(super) fn decode_part<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, DecodeError> {
    from_json(json).or_else(|error| {
        scan(json)?;
        let reason = error.to_string();
        if reason.len() > MAX_REASON_LEN {
            return Err(DecodeError::LongText(excerpt(&reason, MAX_FIELD_LEN)));
        }
        // The position is in JSON that the author does not have.
        let reason = reason.split(" at line ").next().unwrap_or_default();
        // Only an error needs its path, which takes longer.
        ELEMENTS_LEFT.set(MAX_ELEMENTS);
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let tracked: Result<T, _> = serde_path_to_error::deserialize(&mut deserializer);
        let path = tracked.err().map(|error| error.path().to_string());
        Err(DecodeError::Field(match path.as_deref() {
            None | Some(".") => reason.to_owned(),
            Some(field) => format!("{}: {reason}", excerpt(field, MAX_FIELD_LEN)),
        }))
    })
}

/// Deserializes a document whose lists together have at most [`MAX_ELEMENTS`].
pub(super) fn from_json<'a, T: Deserialize<'a>>(json: &'a str) -> serde_json::Result<T> {
    ELEMENTS_LEFT.set(MAX_ELEMENTS);
    serde_json::from_str(json)
}

/// Deserializes a list that may be missing or `null`, and counts its elements.
pub(super) fn bounded_list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(ListVisitor(PhantomData))
}

/// Checks the strings of a document that is long enough for one above its limit.
///
/// # Errors
/// With the limit that is exceeded nearest to the document's root, and the number of objects and lists around that
/// place: a review that exceeds one only in its object still has a response.
pub(super) fn check_limits(json: &str) -> Result<(), (usize, Limit)> {
    let may_exceed = json.len() > MAX_STRING_LEN;
    if may_exceed { scan(json) } else { Ok(()) }
}

/// Checks the strings and the depth of a document.
fn scan(json: &str) -> Result<(), (usize, Limit)> {
    let (mut depth, mut at) = (0_usize, 0);
    let mut exceeded = None;
    while let Some(byte) = json.as_bytes().get(at) {
        at += 1;
        let start = at;
        let limit = match byte {
            b'"' => {
                let len = string(&json[at..]).len();
                at += len + 1;
                (len > MAX_STRING_LEN).then_some(Limit::String(len))
            }
            b'{' | b'[' => {
                depth += 1;
                (depth > MAX_DEPTH).then_some(Limit::Depth)
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                continue;
            }
            _ => continue,
        };
        let Some(limit) = limit else {
            continue;
        };
        // A string in place of a review's object is no member of the request.
        let is_object = json[..start].ends_with(r#""object":""#);
        let place = depth + usize::from(is_object);
        if exceeded.is_none_or(|(nearest, _)| place < nearest) {
            exceeded = Some((place, limit));
        }
    }
    exceeded.map_or(Ok(()), Err)
}

/// Returns the string that begins here, without its quotes.
fn string(json: &str) -> &str {
    let mut len = 0;
    while let Some(byte) = json.as_bytes().get(len) {
        len += match byte {
            b'"' => return &json[..len],
            b'\\' => 2,
            _ => 1,
        };
    }
    json
}

// === impl ListVisitor ===

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = Option<Vec<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            let left = ELEMENTS_LEFT.get().checked_sub(1);
            ELEMENTS_LEFT.set(left.ok_or_else(|| A::Error::custom(Limit::Elements))?);
            list.push(element);
        }
        Ok(Some(list))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

// === impl DecodeError ===

impl From<(usize, Limit)> for DecodeError {
    fn from((_, limit): (usize, Limit)) -> Self {
        Self::Field(limit.to_string())
    }
}

#[cfg(test)]
mod limits_tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::PodView;

    /// Returns the limit that a document exceeds, and its depth.
    fn limit(document: &Value) -> Option<(usize, String)> {
        let document = document.to_string();
        let (depth, limit) = check_limits(&document).err()?;
        Some((depth, limit.to_string()))
    }

    /// Returns the error of a pod with this specification.
    fn error(spec: &Value) -> Option<String> {
        let pod = json!({ "spec": spec }).to_string();
        Some(PodView::decode(&pod).err()?.to_string())
    }

    #[test]
    fn lists_that_are_decoded_have_a_limit_together() {
        const ERROR: &str = "more than 2000 elements in its lists together";
        let elements = |count| vec![json!({}); count];
        for list in ["containers", "initContainers", "volumes"] {
            assert_eq!(error(&json!({list: elements(MAX_ELEMENTS)})), None);
            let want = format!("spec.{list}: {ERROR}");
            assert_eq!(
                error(&json!({list: elements(MAX_ELEMENTS + 1)})),
                Some(want)
            );
        }
        for list in ["args", "command", "ports", "volumeMounts"] {
            let element = if list == "args" || list == "command" {
                json!("")
            } else {
                json!({})
            };
            let containers =
                |count| json!({"containers": vec![json!({list: vec![&element; 199]}); count]});
            assert_eq!(error(&containers(10)), None, "{list}");
            let want = format!("spec.containers[10].{list}: {ERROR}");
            assert_eq!(error(&containers(11)), Some(want));
        }
        let owners = json!({"metadata": {"ownerReferences": elements(MAX_ELEMENTS + 1)}});
        assert!(PodView::decode(&owners.to_string()).is_err());
    }

    #[test]
    fn large_pod_is_within_the_limits() {
        let variable = json!({"name": "A", "value": "\\\"[{,"});
        let fields: serde_json::Map<_, _> =
            (0..40_000).map(|n| (format!("f:{n}"), json!({}))).collect();
        let pod = json!({
            "metadata": {"annotations": {"a": "\"".repeat(256 << 10)}, "managedFields": [fields]},
            "spec": {"containers": vec![json!({"env": vec![variable; 2_000], "args": ["a", "b"]}); 10]},
        });
        let pod = pod.to_string();
        assert!(pod.len() > 3 << 19, "{}", pod.len());
        assert!(PodView::decode(&pod).is_ok());
    }

    #[test]
    fn long_string_and_deep_nesting_are_rejected() {
        let text = "a string of 1048577 bytes: the limit is 1048576".to_owned();
        let long = json!("x".repeat(MAX_STRING_LEN + 1));
        assert_eq!(limit(&json!([long])), Some((1, text.clone())));
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(scan(&nested(MAX_DEPTH)), Ok(()));
        let too_deep = Err((MAX_DEPTH + 1, Limit::Depth));
        assert_eq!(scan(&nested(MAX_DEPTH + 1)), too_deep);
        // The nearest to the root is reported, in whatever order.
        let deep: Value = serde_json::from_str(&nested(100)).unwrap();
        let object = json!({"a": deep, "b": long});
        assert_eq!(limit(&object), Some((1, text)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodView;

    #[test]
    fn error_names_the_field() {
        let table = [
            ("7", "invalid type: integer"),
            ("{} {}", "trailing characters"),
            (
                r#"{"spec": {"containers": {"name": "envoy"}}}"#,
                "spec.containers: invalid type: map",
            ),
            (
                r#"{"spec": {"containers": [{}, {"name": ["envoy"]}]}}"#,
                "spec.containers[1].name: invalid type: sequence",
            ),
            (
                r#"{"spec": {"containers": [{"env": [1], "lifecycle": {"preStop": {"a": 1}}, "ports": [{"containerPort": "80"}]}]}}"#,
                "spec.containers[0].ports[0].containerPort: invalid type: string",
            ),
            (
                r#"{"spec": {"containers": [{"lifecycle": [null, null]}]}}"#,
                "spec.containers[0].lifecycle: invalid type: sequence, expected an object",
            ),
            (
                r#"{"metadata": {"annotations": {"envoy-drainer.dev/port": 1}}}"#,
                "metadata.annotations.envoy-drainer.dev/port: invalid type: integer",
            ),
        ];
        for (json, want) in table {
            let error = PodView::decode(json).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
            assert!(!error.contains(" line "), "{error}");
        }
    }

    #[test]
    fn long_text_in_place_of_another_type_is_cut() {
        for text in ["\u{7f}", " at line "] {
            let text = text.repeat(10_000);
            let pod = json!({"spec": {"containers": text}}).to_string();
            let error = PodView::decode(&pod).unwrap_err();
            assert!(matches!(error, DecodeError::LongText(_)), "{text}");
            assert!(error.to_string().starts_with("invalid type: string \""));
            assert!(error.to_string().len() <= MAX_FIELD_LEN);
        }
    }
}
