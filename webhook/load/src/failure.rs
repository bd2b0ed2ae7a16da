//! Failures of requests, distinguished as far as a client can.

use std::error::Error;
use std::fmt;

use hyper::client::conn::TrySendError;
use serde::{Deserialize, Serialize};

/// A request without the expected response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The error, or the unexpected response.
    pub detail: String,
}

/// The kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::VariantArray)]
pub enum FailureKind {
    /// No connection could be opened, or it was closed before the request was written.
    #[strum(to_string = "refused")]
    Refused,
    /// The connection ended after the request was written: on a new connection, during the response, on an HTTP/2
    /// connection or in a TCP stream.
    #[strum(to_string = "cut in flight")]
    CutInFlight,
    /// A reused HTTP/1.1 connection ended within half a second after the request was written, without a byte of the
    /// response. The server may have closed it before or after it read the request: a client cannot know.
    #[strum(to_string = "cut on a reused connection")]
    CutOnReused,
    /// A response with the wrong status or the wrong body.
    #[strum(to_string = "bad response")]
    BadResponse,
    /// No complete response within the timeout.
    #[strum(to_string = "timed out")]
    TimedOut,
}

/// A request without a response.
#[derive(Debug)]
pub(super) enum SendError {
    /// Nothing of it was written, so it may be sent on another connection.
    NotSent(String),
    /// It may have been sent, and has failed.
    Failed(Failure),
}

// === impl Failure ===

impl Failure {
    pub(super) fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }

    /// No connection could be opened.
    pub(super) fn refused(error: impl fmt::Display) -> Self {
        Self::new(FailureKind::Refused, format!("{error:#}"))
    }
}

impl From<SendError> for Failure {
    /// The failure of a request on a new connection, for which no other connection is tried.
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotSent(detail) => Self::new(FailureKind::Refused, detail),
            SendError::Failed(failure) => failure,
        }
    }
}

// === impl SendError ===

impl SendError {
    /// The error of a request that failed with `kind` if it may have been written.
    pub(super) fn from_hyper<B>(mut error: TrySendError<B>, kind: FailureKind) -> Self {
        let detail = error_chain(error.error());
        match error.take_message() {
            Some(_) => Self::NotSent(detail),
            None => Self::Failed(Failure::new(kind, detail)),
        }
    }
}

/// An error with its causes, which hyper's own messages leave out.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        // The message of an io::Error is that of its source.
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

// === impl FailureKind ===

impl FailureKind {
    /// Every kind, in the order in which they can happen to a request.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Whether the reason lies in the moment at which the request was sent, even if the client learns it later.
    pub(super) fn is_of_sending(self) -> bool {
        matches!(self, Self::Refused | Self::TimedOut)
    }
}
