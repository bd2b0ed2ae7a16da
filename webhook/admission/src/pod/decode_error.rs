//! The error of decoding a pod: the field, and what is wrong with it.

use crate::excerpt::excerpt;

/// Why a pod cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct DecodeError {
    /// The path of the field: `spec.containers[0].name`.
    field: String,
    reason: String,
}

/// Maximum length of a field in a message, in bytes, since a key of a map may be part of it.
const MAX_FIELD_LEN: usize = 512;

// === impl DecodeError ===

impl From<serde_path_to_error::Error<serde_json::Error>> for DecodeError {
    fn from(error: serde_path_to_error::Error<serde_json::Error>) -> Self {
        Self::new(&error.path().to_string(), error.inner())
    }
}

impl DecodeError {
    /// Describes an error at a path: `spec.containers[0].name`, or empty or `.` for the pod as a whole.
    pub(super) fn new(path: &str, error: &serde_json::Error) -> Self {
        Self {
            field: match path {
                "" | "." => "the pod".to_owned(),
                field => excerpt(field, MAX_FIELD_LEN),
            },
            reason: without_position(error),
        }
    }

    /// Returns true if the pod's metadata cannot be decoded.
    pub(super) fn is_in_metadata(&self) -> bool {
        self.field.split('.').next() == Some("metadata")
    }
}

/// Formats an error without its position, which is in JSON that the author does not have.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ")
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use crate::PodView;

    #[test]
    fn error_names_the_field() {
        let table = [
            ("7", "the pod: invalid type: integer"),
            ("{} {}", "the pod: trailing characters"),
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
