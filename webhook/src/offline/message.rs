//! Messages about the lines of a manifest, printed as compilers print theirs.

use std::fmt;

use anstyle::{AnsiColor, Style};

use super::workload::{Lint, WorkloadResult};
use crate::admission::Diagnostic;
use crate::manifest::ManifestError;
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

struct MessageText<'a> {
    message: &'a Message,
    file: &'a str,
    styled: bool,
}

// === impl Message ===

impl Message {
    /// A message about a workload, with its name.
    pub(crate) fn for_workload(
        workload: &WorkloadResult,
        kind: MessageKind,
        text: impl fmt::Display,
    ) -> Self {
        Self {
            line: workload.line,
            column: None,
            kind,
            text: format!("{}: {text}", workload.object),
        }
    }

    /// A diagnostic about a workload, with its remedy.
    pub(crate) fn from_diagnostic(
        workload: &WorkloadResult,
        kind: MessageKind,
        diagnostic: &Diagnostic,
    ) -> Self {
        Self {
            line: workload.line_of(diagnostic),
            ..Self::for_workload(workload, kind, format_args!("{diagnostic:#}"))
        }
    }

    /// A warning about an annotation of a workload that has no effect.
    pub(crate) fn from_lint(workload: &WorkloadResult, lint: &Lint) -> Self {
        Self {
            line: lint.line,
            ..Self::from_diagnostic(workload, MessageKind::Warning, &lint.diagnostic)
        }
    }

    /// Whether it makes the command fail.
    pub fn is_failure(&self) -> bool {
        matches!(self.kind, MessageKind::Error | MessageKind::Denied)
    }

    /// Formats it as `file:line:column: kind: text`, as compilers do, so that editors can jump to the line.
    pub fn display<'a>(&'a self, file: &'a str, styled: bool) -> impl fmt::Display + 'a {
        MessageText {
            message: self,
            file,
            styled,
        }
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

// === impl MessageKind ===

impl MessageKind {
    fn style(self) -> Style {
        let color = match self {
            Self::Error | Self::Denied => AnsiColor::Red,
            Self::Skipped | Self::Warning => AnsiColor::Yellow,
        };
        Style::new().bold().fg_color(Some(color.into()))
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
        })
    }
}

// === impl MessageText ===

impl fmt::Display for MessageText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message {
            line,
            column,
            kind,
            text,
        } = self.message;
        write!(f, "{}:{line}:", printable(self.file))?;
        if let Some(column) = column {
            write!(f, "{column}:")?;
        }
        let style = match self.styled {
            true => kind.style(),
            false => Style::new(),
        };
        write!(f, " {style}{kind}{style:#}: {}", printable(text))
    }
}
