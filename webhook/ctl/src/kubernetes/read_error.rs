//! The errors of reading from the API server.

use std::fmt;

/// A call to the API server, in the terms of RBAC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiCall {
    /// Such as `list`.
    pub verb: &'static str,
    /// Such as `pods`.
    pub resource: String,
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
    #[error("cannot {call}: {reason}")]
    Failed { call: ApiCall, reason: String },
}

// === impl ReadError ===

impl ReadError {
    /// Classifies the error of a call.
    pub(super) fn from_kube(call: ApiCall, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(call),
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(call),
            kube::Error::Api(status) => {
                let reason = status.message;
                Self::Failed { call, reason }
            }
            // The deepest source has the reason; those above only name the request.
            error => {
                let reason = anyhow::Error::new(error).root_cause().to_string();
                Self::Failed { call, reason }
            }
        }
    }
}

// === impl ApiCall ===

impl ApiCall {
    pub(crate) fn new(verb: &'static str, resource: &str, namespace: Option<&str>) -> Self {
        Self {
            verb,
            resource: resource.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
        }
    }
}

impl fmt::Display for ApiCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        let Some(namespace) = &self.namespace else {
            return Ok(());
        };
        write!(f, " in the namespace `{namespace}`")
    }
}
