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
    BadResponse,
    /// No whole answer in time.
    TimedOut,
}

/// A request without an answer.
#[derive(Debug)]
pub(super) enum SendError {
    /// Nothing of it was written: it may go out, for the first time, on another connection.
    NotSent(String),
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

impl From<SendError> for Failure {
    /// Judges a request on a new connection, which has no other to go out on.
    fn from(unanswered: SendError) -> Self {
        match unanswered {
            SendError::NotSent(detail) => Self::new(FailureKind::Refused, detail),
            SendError::Failed(failure) => failure,
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
        Self::BadResponse,
        Self::TimedOut,
    ];
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Refused => "refused",
            Self::CutInFlight => "cut in flight",
            Self::CutOnReused => "cut on a reused connection",
            Self::BadResponse => "bad answer",
            Self::TimedOut => "timed out",
        })
    }
}
