//! What is told of an installation, for people and programs alike. The fields' names and their words
//! are stable: `check -o json` writes these types.

use std::fmt;

use crate::kubernetes::Unseen;
use serde::Serialize;

/// The points of one topic.
#[derive(Debug, Serialize)]
pub struct Section {
    /// The topic, in a word.
    pub name: &'static str,
    /// In the order in which a person should read them.
    pub points: Vec<Point>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Point {
    /// What was looked at, in a word or two; several points may have one name, each about an object.
    pub name: &'static str,
    /// What came of it.
    pub mark: Mark,
    /// True if nobody knows whether the installation works while this is not known.
    #[serde(skip)]
    pub decides: bool,
    /// The object that it is about; `null` if that is the installation as a whole.
    pub about: Option<About>,
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
pub enum Mark {
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
pub struct About {
    /// Its kind, as `Deployment`.
    pub kind: String,
    /// Its namespace; `null` if it is in none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

// === impl Point ===

impl Point {
    /// Something as it should be.
    pub fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Mark::Ok, message)
    }

    /// Something that somebody may not expect.
    pub fn warning(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Mark::Warning, message)
    }

    /// Something that does not work.
    pub fn error(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Mark::Error, message)
    }

    /// Something that could not be looked at, and does not decide: `what` is a clause, as `whether it
    /// runs`.
    pub fn unknown(name: &'static str, what: impl fmt::Display, unseen: &Unseen) -> Self {
        let message = format!("{what} is not known: {unseen}");
        Self::new(name, Mark::Unknown, message)
    }

    /// Something that could not be looked at, and decides whether the installation works.
    pub fn undecided(name: &'static str, what: impl fmt::Display, unseen: &Unseen) -> Self {
        let decides = true;
        Self {
            decides,
            ..Self::unknown(name, what, unseen)
        }
    }

    fn new(name: &'static str, mark: Mark, message: impl Into<String>) -> Self {
        Self {
            name,
            mark,
            decides: false,
            about: None,
            message: message.into(),
            remedy: None,
            commands: Vec::new(),
        }
    }

    /// The same about an object.
    #[must_use]
    pub fn about(self, about: About) -> Self {
        let about = Some(about);
        Self { about, ..self }
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

// === impl About ===

impl About {
    /// An object of a namespace.
    pub fn in_namespace(
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
    pub fn of_cluster(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            namespace: None,
            name: name.into(),
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
