//! Why something could not be looked at.

use std::error::Error;
use std::fmt;

/// A call to the API server, in the words of its access rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// As `list`.
    pub verb: &'static str,
    /// As `pods`.
    pub resource: &'static str,
    /// `None` for all of them, or for what is in none.
    pub namespace: Option<String>,
}

/// Why something could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unseen {
    /// Whoever asks has no right to.
    #[error("you may not {0}")]
    Forbidden(Call),
    /// Nobody knows whoever asks: their certificate or token is not valid, or no more.
    #[error("cannot {0}: the API server does not know who you are, so log in")]
    Unauthorized(Call),
    /// There was no answer in time.
    #[error("no answer in time: {0}")]
    Late(Call),
    /// Anything else.
    #[error("cannot {call}: {why}")]
    Failed {
        /// What was asked for.
        call: Call,
        /// What went wrong.
        why: String,
    },
}

// === impl Unseen ===

impl Unseen {
    /// Why a call failed.
    pub(super) fn of(call: Call, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(call),
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(call),
            kube::Error::Api(status) => Self::Failed {
                call,
                why: status.message,
            },
            error => Self::Failed {
                call,
                why: deepest(&error),
            },
        }
    }

    /// The same of any namespace.
    #[must_use]
    pub fn anywhere(self) -> Self {
        let anywhere = |call: Call| Call {
            namespace: None,
            ..call
        };
        match self {
            Self::Forbidden(call) => Self::Forbidden(anywhere(call)),
            Self::Unauthorized(call) => Self::Unauthorized(anywhere(call)),
            Self::Late(call) => Self::Late(anywhere(call)),
            Self::Failed { call, why } => Self::Failed {
                call: anywhere(call),
                why,
            },
        }
    }
}

// === impl Call ===

impl fmt::Display for Call {
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
fn deepest(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
