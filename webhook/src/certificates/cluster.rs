//! The calls that certificates need of a cluster: one Secret, one webhook configuration, and the webhook's Service.
//!
//! [`crate::api_clients`] implements them with the API server; the rotation simulator implements them in memory.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::SystemTime;

use pki::bundle::Bundle;
use strum::{EnumMessage, IntoStaticStr, VariantArray, VariantNames};

/// The annotation of the CA Secret that requests a rotation of the CA, by any new value.
pub(crate) const ROTATE_ANNOTATION: &str = "envoy-drainer.dev/rotate";

/// How much of that annotation's value counts, in bytes: it is copied into the Secret.
pub(crate) const MAX_ROTATE_LEN: usize = 253;

/// A Secret's data, by key.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// A Secret as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    pub resource_version: String,
    pub data: SecretData,
    /// The value of the annotation `envoy-drainer.dev/rotate`.
    pub rotate: Option<String>,
}

/// The webhook configuration as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Webhooks {
    pub resource_version: String,
    /// Name and `caBundle` of each webhook.
    pub bundles: Vec<(String, Bundle)>,
    /// When a replica last changed a `caBundle`, by the API server's clock, if known.
    pub written_at: Option<SystemTime>,
}

/// A failed call to the API server. Metrics name its reason.
#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum StoreError {
    /// The object was changed since it was read.
    #[error("cannot {call}: conflict, it was changed since it was read")]
    Conflict { call: StoreCall },
    /// The API server did not respond before the deadline.
    #[error("cannot {call}: timeout")]
    #[strum(serialize = "late")]
    Timeout { call: StoreCall },
    #[error("cannot {call}")]
    Other {
        call: StoreCall,
        source: Box<dyn Error + Send + Sync>,
    },
}

/// A call to the API server, as metrics and errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StoreCall {
    #[strum(message = "read the Secret")]
    ReadSecret,
    /// Creates the Secret, or writes its data.
    #[strum(message = "write the Secret")]
    WriteSecret,
    #[strum(message = "read the webhook configuration")]
    ReadWebhooks,
    #[strum(message = "write the webhook configuration's caBundle")]
    WriteBundles,
}

/// Access to the Secret and the webhook configuration. Every call has a deadline.
pub trait Cluster {
    /// Reads the Secret; `None` if there is none. The state may be stale.
    fn secret(&self) -> impl Future<Output = Result<Option<Secret>, StoreError>>;

    /// Creates the Secret, empty. An existing one is left as it is.
    fn create_secret(&self) -> impl Future<Output = Result<(), StoreError>>;

    /// Replaces the data of the Secret. It is a conflict if the Secret is not at the version of `old`.
    fn write_secret(
        &self,
        old: &Secret,
        data: SecretData,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Reads the webhook configuration; `None` if there is none. The state is at least as recent as the call.
    fn webhooks(&self) -> impl Future<Output = Result<Option<Webhooks>, StoreError>>;

    /// Writes every webhook's `caBundle`. It is a conflict if the configuration is not at the version of `webhooks`.
    fn write_bundles(&self, webhooks: &Webhooks) -> impl Future<Output = Result<(), StoreError>>;

    /// Whether API servers may reach a replica: false only if the address of the webhook's Service refuses connections,
    /// as it does without a ready endpoint.
    fn has_endpoint(&self) -> impl Future<Output = bool>;

    /// Waits until one of both may have changed since the last call. Changes may be missed.
    fn changed(&self) -> impl Future<Output = ()>;
}

// === impl Secret ===

impl fmt::Debug for Secret {
    /// Prints the keys without their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("version", &self.resource_version)
            .field("keys", &self.data.keys())
            .finish_non_exhaustive()
    }
}

// === impl StoreCall ===

impl fmt::Display for StoreCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get_message().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_contains_no_key() {
        let secret = Secret {
            resource_version: "7".into(),
            data: SecretData::from([("tls.key".to_owned(), b"deep".to_vec())]),
            rotate: None,
        };
        let printed = format!("{secret:?}");
        assert_eq!(printed, r#"Secret { version: "7", keys: ["tls.key"], .. }"#);
    }
}
