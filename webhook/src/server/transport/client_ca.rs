//! CAs of client certificates.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// Reads a file of CA certificates in PEM format, and creates the verifier of client certificates: one of these CAs
/// must have issued them, for client authentication. Their names are not checked, since the flag's CAs are to be those
/// of API servers only.
///
/// An API server presents a client certificate to a webhook if its AdmissionConfiguration has a kubeconfig for that
/// webhook's host. (KEP-6060 proposes a ServiceAccount token instead.)
/// <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers>
///
/// # Errors
/// If the file cannot be read, has no CA certificate, or an invalid one.
pub fn read_client_ca(path: &Path) -> Result<Arc<dyn ClientCertVerifier>> {
    let file = path.display();
    let pem = fs::read(path).with_context(|| format!("cannot read {file}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.with_context(|| format!("{file} is not PEM"))?;
        let added = roots.add(certificate);
        added.with_context(|| format!("{file} has an invalid certificate"))?;
    }
    ensure!(!roots.is_empty(), "{file} contains no certificate");
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
    verifier.with_context(|| format!("invalid CAs in {file}"))
}
