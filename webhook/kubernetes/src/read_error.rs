//! The errors of reading from the API server.

/// rustls' names of errors for a certificate that no trusted CA has issued, and for one that is itself trusted as a CA.
const UNTRUSTED: [&str; 2] = ["UnknownIssuer", "CaUsedAsEndEntity"];

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
                let mut reason = anyhow::Error::new(error).root_cause().to_string();
                if UNTRUSTED.iter().any(|name| reason.contains(name)) {
                    reason += "; certificate-authority must be the CA that issued it, not the server's own certificate";
                }
                Self::Failed { call, reason }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_certificate_names_the_way_round() {
        for (reason, is_untrusted) in [
            ("invalid peer certificate: UnknownIssuer", true),
            ("invalid peer certificate: Expired", false),
        ] {
            let error = ReadError::from_kube(
                api_call("get", "a", None),
                kube::Error::Service(reason.into()),
            );
            let error = error.to_string();
            assert!(
                error.starts_with(&format!("cannot get a: {reason}")),
                "{error}"
            );
            assert_eq!(error.contains("must be the CA"), is_untrusted, "{error}");
        }
    }
}
