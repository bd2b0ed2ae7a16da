//! Messages about the lines of a manifest, printed as compilers print theirs.

use std::fmt;

use anstyle::AnsiColor;
use manifest::ManifestError;

use super::workload::LocatedDiagnostic;
use crate::object_name::ObjectName;
use crate::text::PrintableText;

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

    /// Whether it makes the command fail.
    pub fn is_failure(&self) -> bool {
        matches!(self.kind, MessageKind::Error | MessageKind::Denied)
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
