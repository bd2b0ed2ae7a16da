//! Why a document cannot be read or changed.

/// Why a document cannot be read or changed, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ManifestError {
    /// The line of the stream, from 1.
    pub line: usize,
    /// The column, from 1, in characters, if it is about a single character.
    pub column: Option<usize>,
    /// The error.
    pub message: String,
}

// === impl ManifestError ===

impl ManifestError {
    /// An error about the character after `before`, the start of a document on line `first_line` of its stream.
    pub(super) fn after(before: &str, first_line: usize, message: impl Into<String>) -> Self {
        let lines = before.matches('\n').count();
        let line = before.rsplit('\n').next().unwrap_or_default();
        Self {
            line: first_line + lines,
            column: Some(line.chars().count() + 1),
            message: message.into(),
        }
    }

    /// The error for a document that has, or would get, more nodes than `MAX_NODES`, at a line of the stream.
    pub fn too_large(line: usize) -> Self {
        Self {
            line,
            column: Some(1),
            message:
                "too many nodes in one document, with those to be added, for 200 MiB of memory: \
                      split it into several documents"
                    .to_owned(),
        }
    }
}
