//! Pods in manifests, before the same judge as those in a cluster.

mod case;
mod remark;
mod token;
mod unquoted;

pub use case::{Case, Hint};
pub use remark::{Remark, RemarkKind};

use std::fmt;

use crate::admission::annotations::PREFIX;
use crate::admission::{Defaults, Verdict, objects};
use crate::manifest::{self, CannotEdit, Document, MOST_NODES, Manifest, Unreadable};

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
pub struct Review<'a> {
    /// Its pods and pod templates, and what else seems to ask for a drainer, in the order of the text.
    pub cases: Vec<Case>,
    manifest: Manifest<'a>,
}

/// An object as people name it: `Deployment shop/front`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its kind.
    pub kind: String,
    /// Its namespace, if the document says it.
    pub namespace: Option<String>,
    /// Its name, or what the API server will begin it with.
    pub name: String,
}

// === impl Review ===

impl<'a> Review<'a> {
    /// Reads a document and decides what becomes of each of its pods.
    ///
    /// # Errors
    /// If it cannot be read, or is too large; where something of ours is in it, also if a key is repeated, or if
    /// `kubectl` may read something else.
    pub fn of(document: &Document<'a>, defaults: &Defaults) -> Result<Self, Unreadable> {
        let manifest = Manifest::read(document)?;
        let is_ours = manifest.text().contains(PREFIX);
        if let Some(repeated) = manifest.repeated().filter(|_| is_ours) {
            return Err(repeated);
        }
        let mut cases = Vec::new();
        let (nodes, mut added) = (manifest.nodes(), 0);
        for object in objects(manifest.value()) {
            let Some(case) = Case::decide(&object, &manifest, defaults) else {
                continue;
            };
            added += case.nodes();
            if added > 0 && nodes * KEPT_COPIES + added * ADDED_COPIES > MOST_NODES {
                return Err(Unreadable::too_large(case.line));
            }
            cases.push(case);
        }
        let is_ours = is_ours || cases.iter().any(Case::asks);
        match manifest.foreign_break().filter(|_| is_ours) {
            Some(foreign) => Err(foreign),
            None => Ok(Self { cases, manifest }),
        }
    }

    /// True if one of its pods is refused, so that it stays as it is.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.cases.iter().any(Case::is_refused)
    }

    /// The document's text with the drainers of all its pods; `None` if it stays as it is.
    ///
    /// # Errors
    /// Where the text cannot take a change without changing something else.
    pub fn injected(&self) -> Result<Option<String>, CannotEdit> {
        if self.is_refused() {
            return Ok(None);
        }
        let mut operations = Vec::new();
        for case in &self.cases {
            // A skip's annotation `status` is the cluster's to write: in a manifest it would outlive
            // its reason.
            if let Verdict::Inject { patch, .. } = &case.verdict {
                operations.extend(manifest::rebased(patch.operations(), &case.path));
            }
        }
        match &operations[..] {
            [] => Ok(None),
            operations => self.manifest.patched(operations).map(Some),
        }
    }
}

// === impl Object ===

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
