//! The errors of reading from the API server.

use std::fmt;

/// A call to the API server, in the terms of RBAC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiCall {
    /// Such as `list`.
    pub verb: &'static str,
    /// Such as `pods`.
    pub resource: &'static str,
    /// `None` for all namespaces, or for cluster-scoped resources.
    pub namespace: Option<String>,
}

/// Why an object could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The user lacks the right.
    #[error("forbidden: {0}")]
    Forbidden(ApiCall),
    /// The user's certificate or token is invalid or expired.
    #[error("unauthorized: log in to the cluster")]
    Unauthorized(ApiCall),
    /// The API server did not respond in time.
    #[error("timeout: {0}")]
    Timeout(ApiCall),
    /// Anything else.
    #[error("cannot {call}: {reason}")]
    Failed {
        /// The call.
        call: ApiCall,
        /// The reason.
        reason: String,
    },
}

// === impl ReadError ===

impl ReadError {
    /// Classifies the error of a call.
    pub(super) fn from_kube(call: ApiCall, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(call),
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(call),
            kube::Error::Api(status) => Self::Failed {
                call,
                reason: status.message,
            },
            // The deepest source has the reason; those above only name the request.
            error => Self::Failed {
                call,
                reason: anyhow::Error::new(error).root_cause().to_string(),
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
