//! CAs of client certificates, reloaded when their file changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::time::sleep;

/// Interval of the polls of the file. Its content is compared, since a mounted ConfigMap is updated through a
/// symbolic link, up to two minutes after the object.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A file of CA certificates in PEM format, and its content.
///
/// An API server presents a client certificate to a webhook if its AdmissionConfiguration has a kubeconfig for that
/// webhook's host. (KEP-6060 proposes a ServiceAccount token instead.)
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers>
#[derive(Debug)]
pub struct ClientCa {
    path: PathBuf,
    pem: Vec<u8>,
}

// === impl ClientCa ===

impl ClientCa {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, has no CA certificate, or an invalid one.
    pub fn open(path: PathBuf) -> Result<Self> {
        let pem = read(&path)?;
        let this = Self { path, pem };
        this.verifier()?;
        Ok(this)
    }

    /// Waits until the file has changed, and returns the new verifier.
    ///
    /// # Errors
    /// If the new content is invalid; reported once for each change.
    pub(super) async fn changed(&mut self) -> Result<Arc<dyn ClientCertVerifier>> {
        loop {
            sleep(POLL_INTERVAL).await;
            // A file that is being replaced may be missing for a moment.
            let Ok(pem) = read(&self.path) else { continue };
            if pem != self.pem {
                self.pem = pem;
                return self.verifier();
            }
        }
    }

    /// Creates the verifier of client certificates: one of these CAs must have issued them, for client
    /// authentication. Their names are not checked, since the flag's CAs are to be those of API servers only.
    ///
    /// # Errors
    /// If the content is invalid.
    pub(super) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>> {
        let path = self.path.display();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.pem) {
            let certificate = certificate.with_context(|| format!("{path} is not PEM"))?;
            let added = roots.add(certificate);
            added.with_context(|| format!("{path} has an invalid certificate"))?;
        }
        ensure!(!roots.is_empty(), "{path} contains no certificate");
        let provider = Arc::new(ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        builder
            .build()
            .with_context(|| format!("invalid CAs in {path}"))
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
