//! A certificate chain and its key.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::InconsistentKeys;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::x509::{CertificateInfo, X509Error};

/// A certificate chain with its key, which rustls can serve.
#[derive(Clone)]
pub struct CertifiedKeyPair {
    pub(crate) rustls_key: Arc<CertifiedKey>,
    not_after: SystemTime,
}

/// Why a chain and a key cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CertifiedKeyError {
    /// The chain is not valid PEM.
    #[error("the certificate chain is not valid PEM")]
    ChainPem(#[source] pem::Error),
    /// The PEM has no certificate.
    #[error("the certificate chain has no certificate")]
    NoCertificate,
    /// The key is not valid PEM, or the PEM has no key.
    #[error("the private key is not a valid PEM key")]
    KeyPem(#[source] pem::Error),
    /// Each is valid, but they are not a pair.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The type of the key or of the certificate is not supported.
    #[error("the certificate or its key is of an unsupported type")]
    Unsupported(#[source] rustls::Error),
    /// The certificate is malformed.
    #[error(transparent)]
    Certificate(#[from] X509Error),
}

// === impl CertifiedKeyPair ===

impl CertifiedKeyPair {
    /// Reads a chain, leaf first, and its key, both PEM.
    ///
    /// # Errors
    /// When one is malformed or unsupported, or they are not a pair.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertifiedKeyError> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(CertifiedKeyError::ChainPem)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(CertifiedKeyError::KeyPem)?;
        Self::from_der(chain, key)
    }

    /// Reads a chain, leaf first, and its key, both DER.
    ///
    /// # Errors
    /// As [`Self::from_pem`].
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertifiedKeyError> {
        let leaf = chain.first().ok_or(CertifiedKeyError::NoCertificate)?;
        let not_after = CertificateInfo::read(leaf)?.not_after;
        let certified =
            CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| {
                match error {
                    rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                        CertifiedKeyError::KeyMismatch
                    }
                    error => CertifiedKeyError::Unsupported(error),
                }
            })?;
        Ok(Self {
            rustls_key: Arc::new(certified),
            not_after,
        })
    }

    /// The chain, leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.rustls_key.cert
    }

    /// The instant from which clients reject the leaf.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }
}

/// Two are equal if their chains are: a chain belongs to exactly one key.
impl PartialEq for CertifiedKeyPair {
    fn eq(&self, other: &Self) -> bool {
        self.chain() == other.chain()
    }
}

impl Eq for CertifiedKeyPair {}

impl fmt::Debug for CertifiedKeyPair {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertifiedKeyPair")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pem {
        chain: String,
        key: String,
    }

    fn pem() -> Pem {
        let created = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        Pem {
            chain: created.cert.pem(),
            key: created.signing_key.serialize_pem(),
        }
    }

    #[test]
    fn unusable_pairs_are_rejected_with_the_reason() {
        let (one, other) = (pem(), pem());
        let malformed = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (chain, key, wanted) in [
            (one.chain.as_str(), other.key.as_str(), "does not belong"),
            ("", &one.key, "has no certificate"),
            (&one.chain, "no key", "not a valid PEM key"),
            (malformed, &one.key, "not an X.509 certificate"),
        ] {
            let result = CertifiedKeyPair::from_pem(chain.as_bytes(), key.as_bytes());
            let error = format!("{:#}", anyhow::Error::from(result.unwrap_err()));
            assert!(error.contains(wanted), "{error}: {wanted}");
        }
        CertifiedKeyPair::from_pem(one.chain.as_bytes(), one.key.as_bytes()).unwrap();
    }

    #[test]
    fn debug_output_contains_no_key() {
        let Pem { chain, key } = pem();
        let pair = CertifiedKeyPair::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        let printed = format!("{pair:?}");
        assert!(
            printed.starts_with("CertifiedKeyPair { not_after: ") && printed.ends_with(", .. }")
        );
    }
}
