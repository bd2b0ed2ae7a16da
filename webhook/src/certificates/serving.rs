//! The certificate that is shown now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::identity::Identity;

/// The identity that new connections are shown. Whoever makes certificates replaces it while the
/// server serves; connections that are open keep the one they were shown.
#[derive(Debug)]
pub struct Serving {
    identity: ArcSwapOption<Identity>,
    ready: AtomicBool,
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
