//! Messages about the lines of a manifest, printed as compilers print theirs.

use std::fmt;

use anstyle::{AnsiColor, Style};
use manifest::ManifestError;

use super::workload::LocatedDiagnostic;
use crate::object_name::ObjectName;
use crate::printable::printable;

/// A message about a line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, if it is about a single character.
    pub column: Option<usize>,
    /// Its severity.
    pub kind: MessageKind,
    /// Its text.
    pub text: String,
}

/// The severity of a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub fn display(&self, file: &str, styled: bool) -> impl fmt::Display {
        let (kind, color) = match self.kind {
            MessageKind::Error => ("error", AnsiColor::Red),
            MessageKind::Denied => ("denied", AnsiColor::Red),
            MessageKind::Skipped => ("skipped", AnsiColor::Yellow),
            MessageKind::Warning => ("warning", AnsiColor::Yellow),
        };
        let style = match styled {
            true => color.on_default().bold(),
            false => Style::new(),
        };
        fmt::from_fn(move |f| {
            write!(f, "{}:{}:", printable(file), self.line)?;
            if let Some(column) = self.column {
                write!(f, "{column}:")?;
            }
            write!(f, " {style}{kind}{style:#}: {}", printable(&self.text))
        })
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
