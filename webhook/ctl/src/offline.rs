//! Admission decisions for the pods and pod templates in manifests, without a cluster: `inject` and `explain`.

mod configuration;
mod context;
mod workload;

pub(crate) use configuration::has_no_admin;
pub use context::ManifestContext;
pub use workload::{InjectionOutcome, LocatedDiagnostic, Verdict, WorkloadResult};

use std::fmt;

use admission::keys::PREFIX;
use admission::{Defaults, WorkloadObject, objects};
use anstyle::AnsiColor;
use json_patch::PatchOperation;
use manifest::{Document, MAX_NODES, Manifest, ManifestError};

use crate::object_name::ObjectName;
use crate::text::PrintableText;

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
#[derive(Debug, Default)]
pub struct DocumentReview {
    /// Its pods, its pod templates, and other objects that seem to request a drainer, in the order of the text.
    pub workloads: Vec<WorkloadResult>,
    /// The document's text with the drainers of all its pods, or without them; `None` if it does not change, as when one is denied.
    pub injected_text: Option<String>,
    /// Why the document cannot be read, or not be changed without changing something else.
    pub error: Option<Message>,
}

/// A message about a line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// From 1.
    pub line: usize,
    /// From 1, if it is about a single character.
    pub column: Option<usize>,
    pub kind: MessageKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum MessageKind {
    /// The document cannot be read or changed, and passes unchanged.
    Error,
    /// A pod would be denied, and its document passes unchanged.
    Denied,
    /// A pod requests a drainer and gets none.
    Skipped,
    /// Whatever the decision, there is something to correct.
    Warning,
}

// === impl DocumentReview ===

impl DocumentReview {
    /// Reads a document, decides on each of its pods, and writes their drainers into its text.
    pub fn new(document: &Document<'_>, context: &ManifestContext, defaults: &Defaults) -> Self {
        Self::of(document, |object, manifest| {
            WorkloadResult::decide(object, manifest, context, defaults)
        })
    }

    /// Reads a document, and takes the drainers of its pods out of its text.
    pub fn without_drainers(document: &Document<'_>) -> Self {
        Self::of(document, WorkloadResult::remove)
    }

    fn of(
        document: &Document<'_>,
        decide: impl Fn(&WorkloadObject<'_>, &Manifest<'_>) -> Option<WorkloadResult>,
    ) -> Self {
        Self::try_new(document, decide).unwrap_or_else(|error| Self {
            error: Some(error.into()),
            ..Self::default()
        })
    }

    /// Fails if the document cannot be read, or is too large. If it has an annotation of ours, also for a duplicate
    /// key, and for a character that makes `kubectl` read another document.
    fn try_new(
        document: &Document<'_>,
        decide: impl Fn(&WorkloadObject<'_>, &Manifest<'_>) -> Option<WorkloadResult>,
    ) -> Result<Self, ManifestError> {
        let manifest = Manifest::read(document)?;
        let mut workloads = Vec::new();
        let mut operations = Vec::new();
        let (nodes, mut added) = (manifest.node_count(), 0);
        for object in objects(manifest.value()) {
            let Some(mut workload) = decide(&object, &manifest) else {
                continue;
            };
            let additions = workload.operations.iter().map(added_node_count);
            added += additions.sum::<usize>();
            if added > 0 && nodes * KEPT_COPIES + added * ADDED_COPIES > MAX_NODES {
                return Err(ManifestError::too_large(workload.line));
            }
            operations.append(&mut workload.operations);
            workloads.push(workload);
        }
        let is_ours = manifest.text().contains(PREFIX)
            || workloads.iter().any(WorkloadResult::requests_drainer);
        let mut duplicates = manifest.duplicates().filter(|_| is_ours);
        if let Some(error) = duplicates.find_map(|(hidden, error)| duplicate_error(hidden, error)) {
            return Err(error);
        }
        if let Some(error) = manifest.yaml_1_1_line_break().filter(|_| is_ours) {
            return Err(error);
        }
        let is_denied = |workload: &WorkloadResult| workload.outcome == InjectionOutcome::Denied;
        let is_changed = !operations.is_empty() && !workloads.iter().any(is_denied);
        let patched = is_changed.then(|| manifest.patched(&operations));
        let (injected_text, error) = match patched.transpose() {
            Ok(text) => (text, None),
            Err(error) => (None, Some(error.into())),
        };
        if injected_text.is_none() {
            let all = workloads.iter_mut();
            all.for_each(WorkloadResult::leave_unchanged);
        }
        Ok(Self {
            workloads,
            injected_text,
            error,
        })
    }
}

/// How many nodes an operation adds to the document.
fn added_node_count(operation: &PatchOperation) -> usize {
    match operation {
        PatchOperation::Add(add) => manifest::count_nodes(&add.value),
        _ => 1,
    }
}

/// The error about a duplicate key, whose first entry does not count, if that may be a mistake of ours: it contains an
/// annotation of ours, or is the start of another object. Others are the API server's and `kubectl`'s matter.
fn duplicate_error(hidden: &str, error: &ManifestError) -> Option<ManifestError> {
    let key = hidden.split(':').next().unwrap_or_default();
    let is_object = error.column == Some(1) && OBJECT_KEYS.contains(&key.trim_matches(['"', '\'']));
    let message = if is_object {
        format!("duplicate key `{key}`: is a `---` missing?")
    } else {
        error.message.clone()
    };
    (is_object || hidden.contains(PREFIX)).then(|| ManifestError {
        message,
        ..error.clone()
    })
}

// === impl Message ===

impl Message {
    /// A message about an object, with its name.
    pub(crate) fn for_object(
        object: &ObjectName,
        line: usize,
        kind: MessageKind,
        text: impl fmt::Display,
    ) -> Self {
        Self {
            line,
            column: None,
            kind,
            text: format!("{object}: {text}"),
        }
    }

    /// A diagnostic about an object, with its remedy.
    pub(crate) fn from_diagnostic(
        object: &ObjectName,
        kind: MessageKind,
        LocatedDiagnostic { line, diagnostic }: &LocatedDiagnostic,
    ) -> Self {
        Self::for_object(object, *line, kind, format_args!("{diagnostic:#}"))
    }

    /// Formats it as `file:line:column: kind: text`, as compilers do, so that editors can jump to the line.
    pub fn display(&self, file: &str, styled: bool) -> PrintableText {
        let color = match self.kind {
            MessageKind::Error | MessageKind::Denied => AnsiColor::Red,
            MessageKind::Skipped | MessageKind::Warning => AnsiColor::Yellow,
        };
        let mut line = PrintableText::new(styled);
        line.push(format_args!("{file}:{}:", self.line));
        if let Some(column) = self.column {
            line.push(format_args!("{column}:"));
        }
        line.push(" ");
        line.push_styled(color.on_default().bold(), self.kind);
        line.push(format_args!(": {}", self.text));
        line
    }
}

impl From<ManifestError> for Message {
    fn from(error: ManifestError) -> Self {
        Self {
            line: error.line,
            column: error.column,
            kind: MessageKind::Error,
            text: error.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_keys_are_told_where_they_hide_annotations_or_objects() {
        let table = [
            (
                "kind: Pod",
                1,
                Some("duplicate key `kind`: is a `---` missing?"),
            ),
            ("kind: Pod", 13, None),
            ("kinds: 1", 1, None),
            ("a: b", 5, None),
            ("envoy-drainer.dev/port: '1'", 5, Some("told")),
            (
                "annotations: {envoy-drainer.dev/inject: 'true'}",
                3,
                Some("told"),
            ),
        ];
        for (hidden, column, want) in table {
            let error = ManifestError {
                line: 2,
                column: Some(column),
                message: "told".to_owned(),
            };
            let told = duplicate_error(hidden, &error).map(|error| error.message);
            assert_eq!(told.as_deref(), want, "{hidden}");
        }
    }
}
