//! Whether a client trusts what it is shown.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use super::bundle::Bundle;

/// Verifies a chain, leaf first, as a client does that trusts `bundle`, calls the server `name`, and
/// has the clock at `now`.
///
/// # Errors
/// Why the client goes away.
pub fn verify(
    chain: &[CertificateDer<'_>],
    bundle: &Bundle,
    name: &str,
    now: SystemTime,
) -> Result<(), Error> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(Error::NoCertificatesPresented);
    };
    let name = ServerName::try_from(name)
        .map_err(|_| Error::InvalidCertificate(CertificateError::NotValidForName))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().cloned());
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        // It wants a root.
        .map_err(|_| Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    verifier
        .verify_server_cert(
            leaf,
            intermediates,
            &name,
            &[],
            UnixTime::since_unix_epoch(since),
        )
        .map(drop)
}
