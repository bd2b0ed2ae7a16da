//! What an author should know about a line of a manifest.

use std::fmt;

use anstyle::{AnsiColor, Style};

use crate::admission::Notice;
use crate::manifest::{CannotEdit, Unreadable};
use crate::printable::printable;

use super::{Case, Hint};

/// Something to know about a line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The line.
    pub line: usize,
    /// The column, where a single character is to blame; from 1.
    pub column: Option<usize>,
    /// What it means.
    pub kind: RemarkKind,
    /// What it is.
    pub text: String,
}

/// What a [`Remark`] means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemarkKind {
    /// The document cannot be read or changed, and stays as it is.
    Error,
    /// A pod asks for what it cannot have, and its document stays as it is.
    Refused,
    /// A pod asks for a drainer and gets none.
    Skipped,
    /// Whatever becomes of a pod, its author should know something.
    Warning,
}

struct Shown<'a> {
    remark: &'a Remark,
    file: &'a str,
    styled: bool,
}

// === impl Remark ===

impl Remark {
    /// About a pod.
    pub(crate) fn about(case: &Case, kind: RemarkKind, text: impl fmt::Display) -> Self {
        Self {
            line: case.line,
            column: None,
            kind,
            text: format!("{}: {text}", case.object),
        }
    }

    /// What a notice says of a pod, and what to do about it.
    pub(crate) fn of(case: &Case, kind: RemarkKind, notice: &Notice) -> Self {
        Self {
            line: case.line_of(notice),
            ..Self::about(case, kind, format_args!("{notice:#}"))
        }
    }

    /// What is said beside of a case's object.
    pub(crate) fn hint(case: &Case, hint: &Hint) -> Self {
        Self {
            line: hint.line,
            ..Self::of(case, RemarkKind::Warning, &hint.notice)
        }
    }

    /// True if it makes the command fail.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self.kind, RemarkKind::Error | RemarkKind::Refused)
    }

    /// One line as compilers write them, which editors and people find their way by.
    #[must_use]
    pub fn shown<'a>(&'a self, file: &'a str, styled: bool) -> impl fmt::Display + 'a {
        Shown {
            remark: self,
            file,
            styled,
        }
    }
}

impl From<Unreadable> for Remark {
    fn from(unreadable: Unreadable) -> Self {
        Self {
            line: unreadable.line,
            column: Some(unreadable.column),
            kind: RemarkKind::Error,
            text: unreadable.why,
        }
    }
}

impl From<CannotEdit> for Remark {
    fn from(error: CannotEdit) -> Self {
        Self {
            line: error.line(),
            column: None,
            kind: RemarkKind::Error,
            text: error.to_string(),
        }
    }
}

// === impl RemarkKind ===

impl RemarkKind {
    fn style(self) -> Style {
        let color = match self {
            Self::Error | Self::Refused => AnsiColor::Red,
            Self::Skipped | Self::Warning => AnsiColor::Yellow,
        };
        Style::new().bold().fg_color(Some(color.into()))
    }
}

impl fmt::Display for RemarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Refused => "refused",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
        })
    }
}

// === impl Shown ===

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            remark:
                Remark {
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
