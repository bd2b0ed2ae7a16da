//! The short-lived certificate of a server, signed by a CA.

use std::time::{Duration, SystemTime};

use anyhow::Context;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};

use super::ca::Ca;
use super::certified_key::CertifiedKeyPair;

/// Issues a leaf with a new key for `names` (DNS names and IP addresses), valid until `lifetime` after `now`, or until
/// its CA expires.
///
/// It is valid from the first instant of its CA, so that clients whose clock is behind this one trust it too.
///
/// # Errors
/// When a name is neither a DNS name nor an IP address, or the system has no randomness.
pub fn issue(
    ca: &Ca,
    names: &[String],
    now: SystemTime,
    lifetime: Duration,
) -> anyhow::Result<CertifiedKeyPair> {
    let sign = || -> Result<_, rcgen::Error> {
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "envoy-drainer");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = ca.info().not_before.into();
        params.not_after = (now + lifetime).min(ca.info().not_after).into();
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &ca.issuer)?;
        Ok((certificate, key))
    };
    let (certificate, key) =
        sign().with_context(|| format!("cannot issue a certificate for {}", names.join(", ")))?;
    CertifiedKeyPair::from_der(vec![certificate.into()], key.into())
}

#[cfg(test)]
pub mod tests {
    use rustls::{CertificateError, Error};

    use super::*;
    use crate::bundle::Bundle;
    use crate::clock::wall_clock;
    use crate::verify;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// Verifies a leaf as a client that trusts this bundle.
    pub fn verify(
        trusted: &Bundle,
        leaf: &CertifiedKeyPair,
        name: &str,
        at: SystemTime,
    ) -> Result<(), Error> {
        verify::verify(leaf.chain(), trusted, &[name.to_owned()], at)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().copied().map(str::to_owned).collect()
    }

    #[test]
    fn leaf_is_trusted_by_name_time_and_ca() {
        let now = wall_clock();
        let ca = Ca::try_new(now, 100 * HOUR).unwrap();
        let [trusting, others] =
            [&ca, &Ca::try_new(now, 100 * HOUR).unwrap()].map(|ca| Bundle::from(ca.der().clone()));
        let leaf = issue(&ca, &names(&["a.ns.svc", "127.0.0.1"]), now, 10 * HOUR).unwrap();
        let expired = |error: &Error| {
            matches!(
                error,
                Error::InvalidCertificate(CertificateError::ExpiredContext { .. })
            )
        };
        let early = |error: &Error| {
            matches!(
                error,
                Error::InvalidCertificate(CertificateError::NotValidYetContext { .. })
            )
        };
        for name in ["a.ns.svc", "127.0.0.1"] {
            for at in [now - 99 * HOUR, now, now + 9 * HOUR] {
                assert_eq!(verify(&trusting, &leaf, name, at), Ok(()), "{name}");
            }
        }
        let late = verify(&trusting, &leaf, "a.ns.svc", now + 10 * HOUR + HOUR / 60).unwrap_err();
        assert!(expired(&late), "{late}");
        let too_early = verify(&trusting, &leaf, "a.ns.svc", now - 101 * HOUR).unwrap_err();
        assert!(early(&too_early), "{too_early}");
        assert!(verify(&trusting, &leaf, "b.ns.svc", now).is_err());
        assert!(verify(&others, &leaf, "a.ns.svc", now).is_err());
    }

    #[test]
    fn leaf_expires_with_its_ca_at_the_latest() {
        let now = wall_clock();
        let ca = Ca::try_new(now, 10 * HOUR).unwrap();
        let leaf = issue(&ca, &names(&["a"]), now + 5 * HOUR, 10 * HOUR).unwrap();
        assert_eq!(leaf.not_after(), ca.info().not_after);
    }

    #[test]
    fn expiry_is_read_in_both_time_formats() {
        let now = wall_clock();
        // From 2050 on, certificates hold a GeneralizedTime instead of a UTCTime.
        for lifetime in [HOUR, 30 * 365 * 24 * HOUR] {
            let ca = Ca::try_new(now, lifetime).unwrap();
            let leaf = issue(&ca, &names(&["a"]), now, lifetime).unwrap();
            let off = (now + lifetime).duration_since(leaf.not_after()).unwrap();
            assert!(off < Duration::from_secs(1), "{off:?}");
        }
    }

    #[test]
    fn invalid_name_is_named_in_the_error() {
        let now = wall_clock();
        let ca = Ca::try_new(now, HOUR).unwrap();
        let error = issue(&ca, &names(&["a", "ü"]), now, HOUR).unwrap_err();
        assert_eq!(error.to_string(), "cannot issue a certificate for a, ü");
    }
}
