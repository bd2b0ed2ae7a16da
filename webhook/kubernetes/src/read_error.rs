//! The errors of reading from the API server.

/// Why an object could not be read, with the call in the terms of RBAC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The user lacks the right.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The user's certificate or token is invalid or expired.
    #[error("unauthorized: log in to the cluster")]
    Unauthorized(String),
    /// The API server did not respond in time.
    #[error("timeout: {0}")]
    Timeout(String),
    #[error("cannot {call}: {reason}")]
    Failed { call: String, reason: String },
    /// This object cannot be decoded.
    #[error("left out `{name}`, which cannot be decoded: {call}")]
    Undecodable { name: String, call: String },
}

/// A call to the API server, in the terms of RBAC, such as ``list pods in the namespace `shop` ``. `namespace` is
/// `None` for all namespaces, and for cluster-scoped resources.
pub fn api_call(verb: &str, resource: &str, namespace: Option<&str>) -> String {
    let namespace = namespace.map(|name| format!(" in the namespace `{name}`"));
    format!("{verb} {resource}{}", namespace.unwrap_or_default())
}

// === impl ReadError ===

impl ReadError {
    /// Classifies the error of a call.
    pub(super) fn from_kube(call: String, error: kube::Error) -> Self {
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
