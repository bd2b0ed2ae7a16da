//! The certificate that the server shows: where it comes from, and how it changes while it serves.

pub mod ca;
pub mod expiry;
pub mod files;
pub mod leaf;
pub mod self_made;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::InconsistentKeys;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tracing::{error, info};

use crate::report::Report;

/// A certificate chain and the key that belongs to it.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    not_after: SystemTime,
}

/// Why a chain and a key are no [`Identity`].
#[derive(Debug, thiserror::Error)]
pub enum BadIdentity {
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
    NotAPair,
    /// The key or the certificate is of a kind that TLS here cannot use.
    #[error("the certificate or its key cannot be used")]
    Unusable(#[source] rustls::Error),
    /// The certificate's end cannot be read.
    #[error(transparent)]
    Expiry(#[from] expiry::NoExpiry),
}

/// The identity that new connections are shown. Whoever makes certificates replaces it while the
/// server serves; connections that are open keep the one they were shown.
#[derive(Debug)]
pub struct Serving(ArcSwap<Identity>);

/// Where identities come from.
#[derive(Debug)]
pub enum Source {
    /// Two PEM files that somebody else renews.
    Files(files::Files),
    /// A certificate authority in this process's memory.
    SelfMade(Box<self_made::SelfMade>),
}

/// Reads the wall clock, which certificates are valid by.
#[must_use]
pub fn wall_clock() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "certificates are valid by the wall clock"
    )]
    SystemTime::now()
}

/// Shows each identity that `source` brings, for as long as it is polled. A bad one is told and the
/// old one stays.
pub async fn follow(mut source: Source, serving: &Serving, report: &Report) -> Infallible {
    loop {
        match source.next().await {
            Ok(identity) => {
                report.certificate_reloaded(true);
                report.certificate_ends(identity.not_after());
                serving.replace(identity);
                info!("Certificate replaced");
            }
            Err(error) => {
                report.certificate_reloaded(false);
                let error = format!("{error:#}");
                error!(error, "Certificate kept, the new one cannot be used");
            }
        }
    }
}

// === impl Source ===

impl Source {
    /// Waits for the next identity, or for a change that brings none.
    async fn next(&mut self) -> anyhow::Result<Identity> {
        Ok(match self {
            Self::Files(files) => files.next().await?,
            Self::SelfMade(self_made) => self_made.next().await?,
        })
    }
}

// === impl Identity ===

impl Identity {
    /// Takes a chain, leaf first, and its key, both PEM.
    ///
    /// # Errors
    /// When one cannot be read or used, or they are not a pair.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, BadIdentity> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(BadIdentity::ChainPem)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(BadIdentity::KeyPem)?;
        Self::from_der(chain, key)
    }

    /// Takes a chain, leaf first, and its key, both DER.
    ///
    /// # Errors
    /// As [`Identity::from_pem`].
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, BadIdentity> {
        let leaf = chain.first().ok_or(BadIdentity::NoCertificate)?;
        let not_after = expiry::not_after(leaf)?;
        let certified =
            CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| {
                match error {
                    rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                        BadIdentity::NotAPair
                    }
                    error => BadIdentity::Unusable(error),
                }
            })?;
        Ok(Self {
            certified: Arc::new(certified),
            not_after,
        })
    }

    /// The instant from which clients refuse the leaf.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }
}

impl fmt::Debug for Identity {
    /// Shows no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

// === impl Serving ===

impl Serving {
    /// Shows `first` until it is replaced.
    #[must_use]
    pub fn new(first: Identity) -> Self {
        Self(ArcSwap::from_pointee(first))
    }

    /// Shows `next` to every connection from now on.
    pub fn replace(&self, next: Identity) {
        self.0.store(Arc::new(next));
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.load().certified))
    }
}
