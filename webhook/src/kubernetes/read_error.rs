//! Why something could not be looked at.

use std::error::Error;
use std::fmt;

/// A call to the API server, in the words of its access rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiCall {
    /// As `list`.
    pub verb: &'static str,
    /// As `pods`.
    pub resource: &'static str,
    /// `None` for all of them, or for what is in none.
    pub namespace: Option<String>,
}

/// Why something could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Whoever asks has no right to.
    #[error("you may not {0}")]
    Forbidden(ApiCall),
    /// Nobody knows whoever asks: their certificate or token is not valid, or no more.
    #[error("cannot {0}: the API server does not know who you are, so log in")]
    Unauthorized(ApiCall),
    /// There was no answer in time.
    #[error("no answer in time: {0}")]
    Timeout(ApiCall),
    /// Anything else.
    #[error("cannot {call}: {reason}")]
    Failed {
        /// What was asked for.
        call: ApiCall,
        /// What went wrong.
        reason: String,
    },
}

// === impl ReadError ===

impl ReadError {
    /// Why a call failed.
    pub(super) fn from_kube(call: ApiCall, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(call),
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(call),
            kube::Error::Api(status) => Self::Failed {
                call,
                reason: status.message,
            },
            error => Self::Failed {
                call,
                reason: root_cause(&error),
            },
        }
    }

    /// The same of any namespace.
    #[must_use]
    pub fn without_namespace(self) -> Self {
        let anywhere = |call: ApiCall| ApiCall {
            namespace: None,
            ..call
        };
        match self {
            Self::Forbidden(call) => Self::Forbidden(anywhere(call)),
            Self::Unauthorized(call) => Self::Unauthorized(anywhere(call)),
            Self::Timeout(call) => Self::Timeout(anywhere(call)),
            Self::Failed { call, reason: why } => Self::Failed {
                call: anywhere(call),
                reason: why,
            },
        }
    }
}

// === impl ApiCall ===

impl fmt::Display for ApiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            resource,
            namespace,
        } = self;
        write!(f, "{verb} {resource}")?;
        match namespace {
            Some(namespace) => write!(f, " in the namespace `{namespace}`"),
            None => Ok(()),
        }
    }
}

/// The source that knows what happened: those above it say only whom they ask.
fn root_cause(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
