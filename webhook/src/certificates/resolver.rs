//! The certificate that TLS handshakes use, as a resolver for rustls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use pki::bundle::Bundle;
use pki::certified_key::CertifiedKeyPair;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

/// Serves the current certificate to new connections. It can be replaced while the server runs; open connections keep
/// the one of their handshake. By default there is none yet, so that handshakes fail, and it is not ready.
#[derive(Debug, Default)]
pub struct CertResolver {
    certified_key: ArcSwapOption<CertifiedKeyPair>,
    ready: AtomicBool,
    bundle: watch::Sender<Bundle>,
}

// === impl CertResolver ===

impl CertResolver {
    /// Serves `first` until it is replaced, and is ready.
    pub fn new(first: CertifiedKeyPair) -> Self {
        let this = Self::default();
        this.set(first);
        this.set_ready();
        this
    }

    /// Serves `next` to new connections.
    pub fn set(&self, next: CertifiedKeyPair) {
        self.certified_key.store(Some(Arc::new(next)));
    }

    /// The certificate that new connections get.
    pub fn current(&self) -> Option<Arc<CertifiedKeyPair>> {
        self.certified_key.load_full()
    }

    /// Publishes what clients should trust: the CA of the certificate, and those that may follow it.
    pub fn set_bundle(&self, next: Bundle) {
        self.bundle.send_if_modified(|bundle| {
            let is_new = *bundle != next;
            *bundle = next;
            is_new
        });
    }

    /// What clients should trust; empty until it is known.
    pub fn bundle(&self) -> watch::Receiver<Bundle> {
        self.bundle.subscribe()
    }

    /// Marks the replica as ready, for good: API servers trust the certificate.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Returns true once API servers have trusted the certificate.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certified_key = self.certified_key.load();
        Some(Arc::clone(&certified_key.as_ref()?.rustls_key))
    }
}
