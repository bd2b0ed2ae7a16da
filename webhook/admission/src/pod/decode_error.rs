//! The error of decoding an object: the field, and what is wrong with it.

use crate::excerpt::excerpt;
use crate::limits::Limit;

/// Why a pod, or another object, cannot be decoded: `spec.containers[0].name: invalid type: integer`. Without a field, it
/// is about the object as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

/// Maximum length of a field in a message, in bytes, since a key of a map may be part of it.
const MAX_FIELD_LEN: usize = 512;

impl From<serde_path_to_error::Error<serde_json::Error>> for DecodeError {
    fn from(error: serde_path_to_error::Error<serde_json::Error>) -> Self {
        let reason = error.inner().to_string();
        // The position is in JSON that the author does not have.
        let reason = reason.split(" at line ").next().unwrap_or_default();
        match &*error.path().to_string() {
            "." => Self(reason.to_owned()),
            field => Self(format!("{}: {reason}", excerpt(field, MAX_FIELD_LEN))),
        }
    }
}

impl From<(usize, Limit<'_>)> for DecodeError {
    fn from((_, limit): (usize, Limit<'_>)) -> Self {
        match limit {
            Limit::Elements(list) => Self(format!("{}: {limit}", excerpt(list, MAX_FIELD_LEN))),
            limit => Self(limit.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::PodView;

    #[test]
    fn error_names_the_field() {
        let table = [
            ("7", "invalid type: integer"),
            ("[{}, {}]", "invalid type: sequence, expected an object"),
            (
                r#"{"spec": {"containers": [{"lifecycle": [null, null]}]}}"#,
                "spec.containers[0].lifecycle: invalid type: sequence, expected an object",
            ),
            (
                r#"{"spec": {"initContainers": [[]]}}"#,
                "spec.initContainers[0]: invalid type: sequence, expected an object",
            ),
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
}
