//! The CAs whose clients may call the webhook, from a file that may change.

use std::fs;
use std::path::PathBuf;
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

/// The pause between two reads of the file. Its content is compared: a mounted ConfigMap is changed by
/// a link, up to two minutes after the object.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A file of CA certificates in PEM, and what was last read from it.
///
/// An API server shows a webhook a client certificate where its AdmissionConfiguration has a kubeconfig
/// for that webhook's host. (KEP-6060 is to let it show a ServiceAccount's token instead.)
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers>
#[derive(Debug)]
pub struct ClientCa {
    path: PathBuf,
    pem: Vec<u8>,
}

// === impl ClientCa ===

impl ClientCa {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// When it cannot be read, or holds anything but certificates of which at least one is a CA's.
    pub fn open(path: PathBuf) -> Result<Self> {
        let mut this = Self {
            path,
            pem: Vec::new(),
        };
        this.pem = this.read()?;
        this.verifier()?;
        Ok(this)
    }

    /// Waits until the file has changed, and returns what verifies clients from then on.
    ///
    /// # Errors
    /// When the new content cannot be used; told once for each change.
    pub(super) async fn changed(&mut self) -> Result<Arc<dyn ClientCertVerifier>> {
        loop {
            sleep(POLL_INTERVAL).await;
            // What is being replaced may be away for a moment.
            let Ok(pem) = self.read() else { continue };
            if pem != self.pem {
                self.pem = pem;
                return self.verifier();
            }
        }
    }

    /// What verifies that a client's certificate is of one of these CAs, and for clients. Whose name is
    /// in it does not matter: a CA that is for API servers alone is what the flag asks for.
    ///
    /// # Errors
    /// When the content cannot be used.
    pub(super) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>> {
        let path = self.path.display();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.pem) {
            let certificate = certificate.with_context(|| format!("{path} is not PEM"))?;
            let added = roots.add(certificate);
            added.with_context(|| format!("{path} has a certificate that cannot be used"))?;
        }
        ensure!(!roots.is_empty(), "{path} has no certificate");
        let provider = Arc::new(ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        builder
            .build()
            .with_context(|| format!("{path} cannot be used"))
    }

    fn read(&self) -> Result<Vec<u8>> {
        let path = &self.path;
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    }
}
