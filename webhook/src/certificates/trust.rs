//! Whether a client trusts what it is shown.

use std::time::SystemTime;

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
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
    signature(chain, bundle, now)?;
    self::name(chain, name)
}

/// Verifies who signed a chain, and its dates.
///
/// # Errors
/// Why the client goes away.
pub fn signature(
    chain: &[CertificateDer<'_>],
    bundle: &Bundle,
    now: SystemTime,
) -> Result<(), Error> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(Error::NoCertificatesPresented);
    };
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().cloned());
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        &roots,
        intermediates,
        UnixTime::since_unix_epoch(since.unwrap_or_default()),
        ring::default_provider()
            .signature_verification_algorithms
            .all,
    )
}

/// Verifies that a chain, leaf first, is for a server of this name.
///
/// # Errors
/// Why the client goes away.
pub fn name(chain: &[CertificateDer<'_>], name: &str) -> Result<(), Error> {
    let leaf = chain.first().ok_or(Error::NoCertificatesPresented)?;
    let name = ServerName::try_from(name)
        .map_err(|_| Error::InvalidCertificate(CertificateError::NotValidForName))?;
    verify_server_name(&ParsedCertificate::try_from(leaf)?, &name)
}
