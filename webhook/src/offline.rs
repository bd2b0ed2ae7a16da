//! Pods in manifests, before the same judge as those in a cluster.

mod message;
mod token;
mod unquoted;
mod workload;

pub use message::{Message, MessageKind};
pub use workload::{Lint, WorkloadResult};

use std::fmt;

use crate::admission::settings::keys::PREFIX;
use crate::admission::{Decision, Defaults, objects};
use crate::manifest::{self, Document, EditError, MAX_NODES, Manifest, YamlError};

/// What is kept of a document that changes is in memory so many times: as it was, as it becomes, and as it is read
/// again.
const KEPT_COPIES: usize = 3;

/// And what is added, keys not counted.
const ADDED_COPIES: usize = 4;

/// A stream of documents.
#[derive(Debug)]
pub struct Input {
    /// The file's path, or `stdin`.
    pub name: String,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// A document and what becomes of its pods.
#[derive(Debug)]
pub struct DocumentReview<'a> {
    /// Its pods and pod templates, and what else seems to ask for a drainer, in the order of the text.
    pub workloads: Vec<WorkloadResult>,
    manifest: Manifest<'a>,
}

/// An object as people name it: `Deployment shop/front`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// Its kind.
    pub kind: String,
    /// Its namespace, if the document says it.
    pub namespace: Option<String>,
    /// Its name, or what the API server will begin it with.
    pub name: String,
}

// === impl DocumentReview ===

impl<'a> DocumentReview<'a> {
    /// Reads a document and decides what becomes of each of its pods.
    ///
    /// # Errors
    /// If it cannot be read, or is too large; where something of ours is in it, also if a key is repeated, or if
    /// `kubectl` may read something else.
    pub fn try_new(document: &Document<'a>, defaults: &Defaults) -> Result<Self, YamlError> {
        let manifest = Manifest::read(document)?;
        let is_ours = manifest.text().contains(PREFIX);
        if let Some(repeated) = manifest.duplicate_key().filter(|_| is_ours) {
            return Err(repeated);
        }
        let mut cases = Vec::new();
        let (nodes, mut added) = (manifest.node_count(), 0);
        for object in objects(manifest.value()) {
            let Some(case) = WorkloadResult::decide(&object, &manifest, defaults) else {
                continue;
            };
            added += case.added_node_count();
            if added > 0 && nodes * KEPT_COPIES + added * ADDED_COPIES > MAX_NODES {
                return Err(YamlError::too_large(case.line));
            }
            cases.push(case);
        }
        let is_ours = is_ours || cases.iter().any(WorkloadResult::requests_drainer);
        match manifest.yaml_1_1_line_break().filter(|_| is_ours) {
            Some(foreign) => Err(foreign),
            None => Ok(Self {
                workloads: cases,
                manifest,
            }),
        }
    }

    /// True if one of its pods is refused, so that it stays as it is.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.workloads.iter().any(WorkloadResult::is_refused)
    }

    /// The document's text with the drainers of all its pods; `None` if it stays as it is.
    ///
    /// # Errors
    /// Where the text cannot take a change without changing something else.
    pub fn injected_text(&self) -> Result<Option<String>, EditError> {
        if self.is_refused() {
            return Ok(None);
        }
        let mut operations = Vec::new();
        for case in &self.workloads {
            // A skip's annotation `status` is the cluster's to write: in a manifest it would outlive
            // its reason.
            if let Decision::Inject { patch, .. } = &case.decision {
                operations.extend(manifest::rebase(patch.operations(), &case.path));
            }
        }
        match &operations[..] {
            [] => Ok(None),
            operations => self.manifest.patched(operations).map(Some),
        }
    }
}

// === impl ObjectName ===

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
