//! The short-lived certificate of one server, signed by an authority.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::pki_types::PrivatePkcs8KeyDer;

use super::ca::{BACKDATED, Ca};
use super::{BadIdentity, Identity};

/// Why no leaf could be issued.
#[derive(Debug, thiserror::Error)]
pub enum NoLeaf {
    /// A name is neither a DNS name nor an IP address, or the system gives no randomness.
    #[error("no certificate can be issued for {}", .names.join(", "))]
    Issue {
        /// The names asked for.
        names: Vec<String>,
        /// What was wrong.
        #[source]
        source: rcgen::Error,
    },
    /// The certificate cannot be served.
    #[error(transparent)]
    Identity(#[from] BadIdentity),
}

/// Issues a leaf with a new key for `names` (DNS names and IP addresses), valid from an hour before
/// `now` until `lifetime` after it.
///
/// # Errors
/// When a name cannot stand in a certificate, or the system gives no randomness.
pub fn issue(
    ca: &Ca,
    names: &[String],
    now: SystemTime,
    lifetime: Duration,
) -> Result<Identity, NoLeaf> {
    let sign = || {
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "envoy-drainer");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + lifetime).into();
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, ca.issuer())?;
        Ok((certificate, key))
    };
    let (certificate, key) = sign().map_err(|source| NoLeaf::Issue {
        names: names.to_vec(),
        source,
    })?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok(Identity::from_der(vec![certificate.into()], key.into())?)
}

/// When a leaf that was issued at `issued` is due to be replaced: after two thirds of its life, so
/// that a third is left in which replacing it may fail and be tried again.
#[must_use]
pub fn renew_at(issued: SystemTime, not_after: SystemTime) -> SystemTime {
    let life = not_after.duration_since(issued).unwrap_or_default();
    issued + life * 2 / 3
}
