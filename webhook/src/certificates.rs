//! The certificate that the server shows: where it comes from, and how it changes while it serves.

pub mod authority;
pub mod bundle;
pub mod ca;
pub mod cluster;
pub mod files;
pub mod keyring;
pub mod leaf;
pub mod live;
pub mod rotation;
pub mod secret;
pub mod self_made;
pub mod trust;
pub mod x509;

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use rustls::InconsistentKeys;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tracing::{error, info};

use crate::kubernetes::Objects;
use crate::report::{Kind, Report};

use authority::Authority;

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
    /// The certificate cannot be read.
    #[error(transparent)]
    Certificate(#[from] x509::NoCertificate),
}

/// The identity that new connections are shown. Whoever makes certificates replaces it while the
/// server serves; connections that are open keep the one they were shown.
#[derive(Debug)]
pub struct Serving {
    identity: ArcSwapOption<Identity>,
    ready: AtomicBool,
}

/// Where identities come from.
#[derive(Debug)]
pub enum Source {
    /// A Secret in the cluster that this webhook serves.
    Cluster(Box<Authority<Objects>>),
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
pub async fn follow(source: Source, serving: &Serving, report: &Report) -> Infallible {
    match source {
        Source::Cluster(authority) => authority.run(serving, report).await,
        Source::Files(mut files) => loop {
            show(files.next().await, serving, report);
        },
        Source::SelfMade(mut self_made) => loop {
            show(self_made.next().await, serving, report);
        },
    }
}

fn show(next: Result<Identity, impl Error + 'static>, serving: &Serving, report: &Report) {
    report.certificate_reloaded(next.is_ok());
    match next {
        Ok(identity) => {
            report.certificate_ends(Kind::Leaf, identity.not_after());
            serving.replace(identity);
            info!("Certificate replaced");
        }
        Err(error) => {
            let error: &dyn Error = &error;
            error!(error, "Certificate kept, the new one cannot be used");
        }
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
        let not_after = x509::Facts::read(leaf)?.not_after;
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

    /// The chain, leaf first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    /// The instant from which clients refuse the leaf.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }
}

/// Equal are two with the same chain, which belongs to one key alone.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.chain() == other.chain()
    }
}

impl Eq for Identity {}

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
    /// Shows `first` until it is replaced, and is ready.
    #[must_use]
    pub fn new(first: Identity) -> Self {
        let this = Self::waiting();
        this.replace(first);
        this.announce();
        this
    }

    /// Has nothing to show yet, so that handshakes fail, and is not ready.
    #[must_use]
    pub fn waiting() -> Self {
        Self {
            identity: ArcSwapOption::empty(),
            ready: AtomicBool::new(false),
        }
    }

    /// Shows `next` to every connection from now on.
    pub fn replace(&self, next: Identity) {
        self.identity.store(Some(Arc::new(next)));
    }

    /// What new connections are shown.
    #[must_use]
    pub fn shown(&self) -> Option<Arc<Identity>> {
        self.identity.load_full()
    }

    /// Says that clients trust what is shown. That is so for good.
    pub fn announce(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Returns true if clients trust what is shown, or did when they first could.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let identity = self.identity.load();
        Some(Arc::clone(&identity.as_ref()?.certified))
    }
}
