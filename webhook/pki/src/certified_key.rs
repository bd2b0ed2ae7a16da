//! A certificate chain and its key.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use rustls::InconsistentKeys;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::x509::CertificateInfo;

/// A certificate chain with its key, which rustls can serve.
#[derive(Clone)]
pub struct CertifiedKeyPair {
    pub rustls_key: Arc<CertifiedKey>,
    not_after: SystemTime,
}

// === impl CertifiedKeyPair ===

impl CertifiedKeyPair {
    /// Reads a chain, leaf first, and its key, both PEM.
    ///
    /// # Errors
    /// When one is malformed or unsupported, or they are not a pair.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .context("the certificate chain is not valid PEM")?;
        let key =
            PrivateKeyDer::from_pem_slice(key).context("the private key is not a valid PEM key")?;
        Self::from_der(chain, key)
    }

    /// Reads a chain, leaf first, and its key, both DER.
    ///
    /// # Errors
    /// As [`Self::from_pem`].
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> anyhow::Result<Self> {
        let leaf = chain.first();
        let leaf = leaf.context("the certificate chain has no certificate")?;
        let not_after = CertificateInfo::read(leaf)
            .context("not an X.509 certificate")?
            .not_after;
        let rustls_key = match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                bail!("the private key does not belong to the certificate")
            }
            created => created.context("the certificate or its key is of an unsupported type")?,
        };
        Ok(Self {
            rustls_key: Arc::new(rustls_key),
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
            let error = format!("{:#}", result.unwrap_err());
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
