//! Admission decisions for the pods and pod templates in manifests, without a cluster: `inject` and `explain`.

mod message;
mod workload;

pub use message::{Message, MessageKind};
pub use workload::{Lint, WorkloadResult};

use crate::admission::settings::keys::PREFIX;
use crate::admission::{Decision, Defaults, objects};
use crate::manifest::{self, Document, MAX_NODES, Manifest, ManifestError};

/// The top-level keys of every object: one of them twice in a document means that a `---` is missing.
const OBJECT_KEYS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];

/// Copies in memory of each node of a document that changes: as it was, as it becomes, and as it is read again.
const KEPT_COPIES: usize = 3;

/// Copies in memory of each added node, keys not counted.
const ADDED_COPIES: usize = 4;

/// A file or stdin.
#[derive(Debug)]
pub struct Input {
    /// The file's path, or `stdin`.
    pub name: String,
    /// Its whole content: a stream of documents.
    pub bytes: Vec<u8>,
}

/// A document with the decision on each of its pods and pod templates.
#[derive(Debug)]
pub struct DocumentReview<'a> {
    /// Its pods, its pod templates, and other objects that seem to request a drainer, in the order of the text.
    pub workloads: Vec<WorkloadResult>,
    manifest: Manifest<'a>,
}

// === impl DocumentReview ===

impl<'a> DocumentReview<'a> {
    /// Reads a document and decides on each of its pods.
    ///
    /// # Errors
    /// If the document cannot be read, or is too large. If it has an annotation of ours, also for a duplicate key, and
    /// for a character that makes `kubectl` read another document.
    pub fn try_new(document: &Document<'a>, defaults: &Defaults) -> Result<Self, ManifestError> {
        let manifest = Manifest::read(document)?;
        let is_ours = manifest.text().contains(PREFIX);
        if let Some((key, mut error)) = manifest.duplicate_key().filter(|_| is_ours) {
            let advice = duplicate_key_advice(key, error.column);
            error.message = format!("{}: {advice}", error.message);
            return Err(error);
        }
        let mut workloads = Vec::new();
        let (nodes, mut added) = (manifest.node_count(), 0);
        for object in objects(manifest.value()) {
            let Some(workload) = WorkloadResult::decide(&object, &manifest, defaults) else {
                continue;
            };
            added += workload.added_node_count();
            if added > 0 && nodes * KEPT_COPIES + added * ADDED_COPIES > MAX_NODES {
                return Err(ManifestError::too_large(workload.line));
            }
            workloads.push(workload);
        }
        let is_ours = is_ours || workloads.iter().any(WorkloadResult::requests_drainer);
        match manifest.yaml_1_1_line_break().filter(|_| is_ours) {
            Some(error) => Err(error),
            None => Ok(Self {
                workloads,
                manifest,
            }),
        }
    }

    /// Whether one of its pods is denied, so that the document is not changed.
    pub fn is_denied(&self) -> bool {
        self.workloads.iter().any(WorkloadResult::is_denied)
    }

    /// The document's text with the drainers of all its pods; `None` if it does not change.
    ///
    /// # Errors
    /// If a change cannot be written into the text without changing something else.
    pub fn injected_text(&self) -> Result<Option<String>, ManifestError> {
        if self.is_denied() {
            return Ok(None);
        }
        let mut operations = Vec::new();
        for workload in &self.workloads {
            // The annotation `status` of a skipped pod is written in clusters only: in a manifest it would outlive
            // its reason.
            if let Decision::Inject { patch, .. } = &workload.decision {
                operations.extend(manifest::rebase(patch.operations(), &workload.path));
            }
        }
        match &operations[..] {
            [] => Ok(None),
            operations => self.manifest.patched(operations).map(Some),
        }
    }
}

fn duplicate_key_advice(key: &str, column: Option<usize>) -> &'static str {
    match column {
        Some(1) if OBJECT_KEYS.contains(&key) => "is a `---` missing?",
        _ => "remove one of the two",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_object_keys_mean_missing_separators() {
        let (separator, remove) = ("is a `---` missing?", "remove one of the two");
        for (key, column, advice) in [
            ("apiVersion", 1, separator),
            ("kind", 1, separator),
            ("kind", 13, remove),
            ("a", 1, remove),
        ] {
            assert_eq!(duplicate_key_advice(key, Some(column)), advice, "{key}");
        }
    }
}
