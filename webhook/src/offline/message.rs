//! What an author should know about a line of a manifest.

use std::fmt;

use anstyle::{AnsiColor, Style};

use crate::admission::Diagnostic;
use crate::manifest::{EditError, YamlError};
use crate::printable::printable;

use super::{Lint, WorkloadResult};

/// Something to know about a line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The line.
    pub line: usize,
    /// The column, where a single character is to blame; from 1.
    pub column: Option<usize>,
    /// What it means.
    pub kind: MessageKind,
    /// What it is.
    pub text: String,
}

/// What a [`Remark`] means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// The document cannot be read or changed, and stays as it is.
    Error,
    /// A pod asks for what it cannot have, and its document stays as it is.
    Refused,
    /// A pod asks for a drainer and gets none.
    Skipped,
    /// Whatever becomes of a pod, its author should know something.
    Warning,
}

struct MessageText<'a> {
    message: &'a Message,
    file: &'a str,
    styled: bool,
}

// === impl Message ===

impl Message {
    /// About a pod.
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

    /// What a notice says of a pod, and what to do about it.
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

    /// What is said beside of a case's object.
    pub(crate) fn from_lint(workload: &WorkloadResult, lint: &Lint) -> Self {
        Self {
            line: lint.line,
            ..Self::from_diagnostic(workload, MessageKind::Warning, &lint.diagnostic)
        }
    }

    /// True if it makes the command fail.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self.kind, MessageKind::Error | MessageKind::Refused)
    }

    /// One line as compilers write them, which editors and people find their way by.
    #[must_use]
    pub fn display<'a>(&'a self, file: &'a str, styled: bool) -> impl fmt::Display + 'a {
        MessageText {
            message: self,
            file,
            styled,
        }
    }
}

impl From<YamlError> for Message {
    fn from(error: YamlError) -> Self {
        Self {
            line: error.line,
            column: Some(error.column),
            kind: MessageKind::Error,
            text: error.message,
        }
    }
}

impl From<EditError> for Message {
    fn from(error: EditError) -> Self {
        Self {
            line: error.line(),
            column: None,
            kind: MessageKind::Error,
            text: error.to_string(),
        }
    }
}

// === impl MessageKind ===

impl MessageKind {
    fn style(self) -> Style {
        let color = match self {
            Self::Error | Self::Refused => AnsiColor::Red,
            Self::Skipped | Self::Warning => AnsiColor::Yellow,
        };
        Style::new().bold().fg_color(Some(color.into()))
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Refused => "refused",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
        })
    }
}

// === impl MessageText ===

impl fmt::Display for MessageText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            message:
                Message {
                    line,
                    column,
                    kind,
                    text,
                },
            file,
            styled,
        } = self;
        let style = if *styled { kind.style() } else { Style::new() };
        write!(f, "{}:{line}:", printable(file))?;
        if let Some(column) = column {
            write!(f, "{column}:")?;
        }
        write!(f, " {style}{kind}{style:#}: {}", printable(text))
    }
}
