//! What is told of an installation, for people and programs alike. The fields' names and their words
//! are stable: `check -o json` writes these types.

use std::fmt;

use crate::kubernetes::ReadError;
use serde::Serialize;

/// The points of one topic.
#[derive(Debug, Serialize)]
pub struct Section {
    /// The topic, in a word.
    pub name: &'static str,
    /// In the order in which a person should read them.
    #[serde(rename = "points")]
    pub results: Vec<CheckResult>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// What was looked at, in a word or two; several points may have one name, each about an object.
    pub name: &'static str,
    /// What came of it.
    #[serde(rename = "mark")]
    pub severity: Severity,
    /// True if nobody knows whether the installation works while this is not known.
    #[serde(skip)]
    pub is_blocking: bool,
    /// The object that it is about; `null` if that is the installation as a whole.
    #[serde(rename = "about")]
    pub subject: Option<Subject>,
    /// What is the case.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
    /// The commands that do it, one after the other.
    pub commands: Vec<String>,
}

/// What came of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It is as it should be.
    Ok,
    /// The installation works, but not as somebody may expect.
    Warning,
    /// Something does not work.
    Error,
    /// It could not be looked at.
    Unknown,
}

/// An object in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Subject {
    /// Its kind, as `Deployment`.
    pub kind: String,
    /// Its namespace; `null` if it is in none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

// === impl CheckResult ===

impl CheckResult {
    /// Something as it should be.
    pub fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Severity::Ok, message)
    }

    /// Something that somebody may not expect.
    pub fn warning(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Severity::Warning, message)
    }

    /// Something that does not work.
    pub fn error(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Severity::Error, message)
    }

    /// Something that could not be looked at, and does not decide: `what` is a clause, as `whether it
    /// runs`.
    pub fn unknown(name: &'static str, what: impl fmt::Display, unseen: &ReadError) -> Self {
        let message = format!("{what} is not known: {unseen}");
        Self::new(name, Severity::Unknown, message)
    }

    /// Something that could not be looked at, and decides whether the installation works.
    pub fn unknown_blocking(
        name: &'static str,
        what: impl fmt::Display,
        unseen: &ReadError,
    ) -> Self {
        let decides = true;
        Self {
            is_blocking: decides,
            ..Self::unknown(name, what, unseen)
        }
    }

    fn new(name: &'static str, mark: Severity, message: impl Into<String>) -> Self {
        Self {
            name,
            severity: mark,
            is_blocking: false,
            subject: None,
            message: message.into(),
            remedy: None,
            commands: Vec::new(),
        }
    }

    /// The same about an object.
    #[must_use]
    pub fn subject(self, about: Subject) -> Self {
        let about = Some(about);
        Self {
            subject: about,
            ..self
        }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { remedy, ..self }
    }

    /// The same with one more command that does something about it.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }
}

// === impl Subject ===

impl Subject {
    /// An object of a namespace.
    pub fn namespaced(
        kind: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            kind: kind.into(),
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// An object outside of namespaces.
    pub fn cluster_scoped(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            namespace: None,
            name: name.into(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
