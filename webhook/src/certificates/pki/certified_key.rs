//! A certificate and its key.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::InconsistentKeys;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::x509;

/// A certificate chain and the key that belongs to it.
#[derive(Clone)]
pub struct CertifiedKeyPair {
    pub(crate) rustls_key: Arc<CertifiedKey>,
    not_after: SystemTime,
}

/// Why a chain and a key are no [`Identity`].
#[derive(Debug, thiserror::Error)]
pub enum CertifiedKeyError {
    /// The chain's PEM cannot be read.
    #[error("the certificate chain is no valid PEM")]
    ChainPem(#[source] pem::Error),
    /// There is PEM, or nothing, but no certificate in it.
    #[error("the certificate chain has no certificate")]
    NoCertificate,
    /// The key's PEM cannot be read, or holds no key.
    #[error("the private key is no valid PEM key")]
    KeyPem(#[source] pem::Error),
    /// Each is well, but they are not a pair.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The key or the certificate is of a kind that TLS here cannot use.
    #[error("the certificate or its key cannot be used")]
    Unsupported(#[source] rustls::Error),
    /// The certificate cannot be read.
    #[error(transparent)]
    Certificate(#[from] x509::X509Error),
}

// === impl CertifiedKeyPair ===

impl CertifiedKeyPair {
    /// Takes a chain, leaf first, and its key, both PEM.
    ///
    /// # Errors
    /// When one cannot be read or used, or they are not a pair.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertifiedKeyError> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(CertifiedKeyError::ChainPem)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(CertifiedKeyError::KeyPem)?;
        Self::from_der(chain, key)
    }

    /// Takes a chain, leaf first, and its key, both DER.
    ///
    /// # Errors
    /// As [`Identity::from_pem`].
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertifiedKeyError> {
        let leaf = chain.first().ok_or(CertifiedKeyError::NoCertificate)?;
        let not_after = x509::CertificateInfo::read(leaf)?.not_after;
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
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.rustls_key.cert
    }

    /// The instant from which clients refuse the leaf.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }
}

/// Equal are two with the same chain, which belongs to one key alone.
impl PartialEq for CertifiedKeyPair {
    fn eq(&self, other: &Self) -> bool {
        self.chain() == other.chain()
    }
}

impl Eq for CertifiedKeyPair {}

impl fmt::Debug for CertifiedKeyPair {
    /// Shows no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}
