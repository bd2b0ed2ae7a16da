//! How a request can fail, told apart as far as a client can tell.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A request that was not answered as it should have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What a client calls it.
    pub kind: FailureKind,
    /// What was seen.
    pub detail: String,
}

/// The kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// No connection could be opened, or it was closed before the request was written.
    Refused,
    /// The connection ended after the request was written: on a new connection, in the middle of the
    /// answer, on an HTTP/2 connection or in a TCP stream.
    CutInFlight,
    /// An HTTP/1.1 connection that had carried a request before ended after this one was written,
    /// without a byte of its answer. The server may have closed it between the two requests or cut
    /// this one: a client cannot know.
    CutOnReused,
    /// An answer with the wrong status or the wrong body.
    BadAnswer,
    /// No whole answer in time.
    TimedOut,
}

/// A request without an answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// Nothing of it was written: it may go out, for the first time, on another connection.
    Unsent(String),
    /// It has failed.
    Failed(Failure),
}

// === impl Failure ===

impl Failure {
    pub(super) fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }
}

impl From<Unanswered> for Failure {
    /// Judges a request on a new connection, which has no other to go out on.
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Unsent(detail) => Self::new(FailureKind::Refused, detail),
            Unanswered::Failed(failure) => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)
    }
}

// === impl FailureKind ===

impl FailureKind {
    /// Every kind, in the order in which a request can meet them.
    pub const ALL: [Self; 5] = [
        Self::Refused,
        Self::CutInFlight,
        Self::CutOnReused,
        Self::BadAnswer,
        Self::TimedOut,
    ];
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Refused => "refused",
            Self::CutInFlight => "cut in flight",
            Self::CutOnReused => "cut on a reused connection",
            Self::BadAnswer => "bad answer",
            Self::TimedOut => "timed out",
        })
    }
}
