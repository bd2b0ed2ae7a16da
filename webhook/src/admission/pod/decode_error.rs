//! Why something is no pod: the field, and what is wrong with it.

use super::PodView;
use crate::admission::excerpt::truncate;

/// Why a pod cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct DecodeError {
    /// The field, as people name it: `spec.containers[0].name`.
    field: String,
    reason: String,
}

/// In bytes. A message cuts longer fields: a key may be one.
const MAX_FIELD_LEN: usize = 512;

// === impl DecodeError ===

impl DecodeError {
    /// Finds the field of a pod that is to blame for `error`, by reading it once more: who reads what
    /// is right need not keep count of where he is.
    pub(in crate::admission) fn locate(json: &str, error: &serde_json::Error) -> Self {
        let mut again = serde_json::Deserializer::from_str(json);
        let path = match serde_path_to_error::deserialize::<_, PodView<'_>>(&mut again) {
            Err(error) => error.path().to_string(),
            Ok(_) => String::new(),
        };
        let why = error.to_string();
        Self {
            field: match path.as_str() {
                "" | "." => "the pod".to_owned(),
                field => truncate(field, MAX_FIELD_LEN),
            },
            // The position is one in JSON that nobody has seen.
            reason: why.split(" at line ").next().unwrap_or_default().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::admission::PodView;

    #[test]
    fn the_field_is_named() {
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
            let told = PodView::decode(json).unwrap_err().to_string();
            assert!(told.starts_with(want), "{told}");
            assert!(!told.contains(" line "), "{told}");
        }
    }
}
