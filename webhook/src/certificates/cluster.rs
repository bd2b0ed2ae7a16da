//! What certificates ask of a cluster: one Secret and one webhook configuration. The API server is
//! one implementation; the rotation's simulator is another.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::SystemTime;

use super::pki::bundle::Bundle;

/// The annotation of the Secret by which an operator has its CAs replaced: by any value that is new.
pub const ROTATE_ANNOTATION: &str = "envoy-drainer.dev/rotate";

/// How much of that annotation's value counts, in bytes: it is kept in the Secret.
pub const MAX_ROTATE_LEN: usize = 253;

/// A Secret's data, by key.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// A Secret as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its `resourceVersion`.
    pub resource_version: String,
    /// What it holds.
    pub data: SecretData,
    /// The value of its annotation [`ROTATE`].
    pub rotate: Option<String>,
    /// Why every write of it may be refused, with the remedy; `None` if nothing is known against one.
    pub unwritable_reason: Option<String>,
}

/// The webhook configuration as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhooks {
    /// Its `resourceVersion`.
    pub resource_version: String,
    /// Each webhook's name and `caBundle`.
    pub bundles: Vec<(String, Bundle)>,
    /// When a replica last changed a `caBundle`, by the API server's clock, as far as that is known.
    pub written_at: Option<SystemTime>,
}

/// A call to the API server that failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else was faster: what was read is out of date.
    #[error("cannot {call}: it has changed meanwhile")]
    Conflict {
        /// What was called for.
        call: StoreCall,
    },
    /// It did not answer in time.
    #[error("cannot {call}: no answer in time")]
    Timeout {
        /// What was called for.
        call: StoreCall,
    },
    /// Anything else.
    #[error("cannot {call}")]
    Other {
        /// What was called for.
        call: StoreCall,
        /// What went wrong.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// The calls, as metrics and messages name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreCall {
    /// Reading the Secret.
    ReadSecret,
    /// Making the Secret, or writing what it holds.
    WriteSecret,
    /// Reading the webhook configuration.
    ReadWebhooks,
    /// Writing `caBundle`s.
    WriteBundles,
}

/// The two objects. Every call has a deadline.
pub trait Cluster {
    /// Reads the Secret; `None` where there is none. An old state may be read, though it need not.
    fn secret(&self) -> impl Future<Output = Result<Option<Secret>, StoreError>>;

    /// Makes the Secret, empty. One that is there stays as it is.
    fn create_secret(&self) -> impl Future<Output = Result<(), StoreError>>;

    /// Sets these keys of the Secret, and removes those whose value is `None`; a conflict if the
    /// Secret is not in this version.
    fn write_secret(
        &self,
        version: &str,
        keys: BTreeMap<String, Option<Vec<u8>>>,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Reads the webhook configuration; `None` where there is none. No older state than that at the
    /// call is read.
    fn webhooks(&self) -> impl Future<Output = Result<Option<Webhooks>, StoreError>>;

    /// Writes every webhook's `caBundle`; a conflict if the configuration is not in `webhooks`'
    /// version.
    fn write_bundles(&self, webhooks: &Webhooks) -> impl Future<Output = Result<(), StoreError>>;

    /// Waits until one of both may have changed since the last call. It may miss a change.
    fn changed(&self) -> impl Future<Output = ()>;
}

// === impl Secret ===

impl fmt::Debug for Secret {
    /// Shows which keys there are, and nothing of what they hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("version", &self.resource_version)
            .field("keys", &self.data.keys())
            .finish_non_exhaustive()
    }
}

// === impl StoreError ===

impl StoreError {
    /// What was called for.
    #[must_use]
    pub fn call(&self) -> StoreCall {
        match self {
            Self::Conflict { call } | Self::Timeout { call } | Self::Other { call, .. } => *call,
        }
    }
}

// === impl StoreCall ===

impl StoreCall {
    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadSecret => "read_secret",
            Self::WriteSecret => "write_secret",
            Self::ReadWebhooks => "read_webhooks",
            Self::WriteBundles => "write_bundles",
        }
    }
}

impl fmt::Display for StoreCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadSecret => "read the Secret",
            Self::WriteSecret => "write the Secret",
            Self::ReadWebhooks => "read the webhook configuration",
            Self::WriteBundles => "write the webhook configuration's caBundle",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_written_anywhere() {
        let secret = Secret {
            resource_version: "7".into(),
            data: SecretData::from([("tls.key".to_owned(), b"deep".to_vec())]),
            rotate: None,
            unwritable_reason: None,
        };
        let told = format!("{secret:?}");
        assert_eq!(told, r#"Secret { version: "7", keys: ["tls.key"], .. }"#);
    }
}
