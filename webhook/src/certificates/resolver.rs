//! The certificate that is shown now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::pki::certified_key::CertifiedKeyPair;

/// The identity that new connections are shown. Whoever makes certificates replaces it while the
/// server serves; connections that are open keep the one they were shown.
#[derive(Debug)]
pub struct CertResolver {
    certified_key: ArcSwapOption<CertifiedKeyPair>,
    ready: AtomicBool,
}

// === impl CertResolver ===

impl CertResolver {
    /// Shows `first` until it is replaced, and is ready.
    #[must_use]
    pub fn new(first: CertifiedKeyPair) -> Self {
        let this = Self::empty();
        this.set(first);
        this.set_ready();
        this
    }

    /// Has nothing to show yet, so that handshakes fail, and is not ready.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            certified_key: ArcSwapOption::empty(),
            ready: AtomicBool::new(false),
        }
    }

    /// Shows `next` to every connection from now on.
    pub fn set(&self, next: CertifiedKeyPair) {
        self.certified_key.store(Some(Arc::new(next)));
    }

    /// What new connections are shown.
    #[must_use]
    pub fn current(&self) -> Option<Arc<CertifiedKeyPair>> {
        self.certified_key.load_full()
    }

    /// Says that clients trust what is shown. That is so for good.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Returns true if clients trust what is shown, or did when they first could.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let identity = self.certified_key.load();
        Some(Arc::clone(&identity.as_ref()?.rustls_key))
    }
}
