//! A certificate authority with its key.

use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, GeneralSubtree, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::bundle::Bundle;
use super::certified_key::CertifiedKeyPair;
use super::subject::{COMMON_NAME, is_issued_by_us};
use super::x509::CertificateInfo;

/// The top-level domain of Services. API servers call webhooks by names in it.
const SERVICE_DOMAIN: &str = "svc";

/// A CA: signs leaves for clients that trust its certificate.
#[derive(Debug)]
pub struct Ca {
    pub issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    info: CertificateInfo,
}

// === impl Ca ===

impl Ca {
    /// Creates a CA for leaves with any names, with a new key. It is valid until `lifetime` after `now`.
    ///
    /// It is also valid from `lifetime` before `now`, so that a replica whose clock is ahead creates a CA that is valid
    /// today. This is harmless, since nothing was signed with the key before.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn try_new(now: SystemTime, lifetime: Duration) -> Result<Self, rcgen::Error> {
        Self::try_new_for(&["localhost".to_owned()], now, lifetime)
    }

    /// Creates a CA for leaves with these names. If all of them are names of Services, name constraints restrict it to
    /// Services: a leaked key cannot impersonate a server outside of the cluster.
    /// <https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1.10>
    ///
    /// # Errors
    /// As [`Ca::try_new`].
    pub fn try_new_for(
        names: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Self, rcgen::Error> {
        let mut params = params();
        let is_service = |name: &String| name.rsplit('.').next() == Some(SERVICE_DOMAIN);
        if names.iter().all(is_service) {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName(SERVICE_DOMAIN.to_owned())],
                // The permitted DNS names do not restrict addresses.
                excluded_subtrees: vec![
                    GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])),
                    GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])),
                ],
            });
        }
        params.not_before = (now - lifetime).into();
        params.not_after = (now + lifetime).into();
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let der = certificate.der().clone();
        let info = CertificateInfo::read(&der).expect("rcgen writes valid certificates");
        Ok(Self {
            issuer: Issuer::new(params, key),
            der,
            info,
        })
    }

    /// Reads a stored CA that was created here, certificate and key PEM.
    ///
    /// # Errors
    /// When they are not a pair, or not created by envoy-drainer.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> anyhow::Result<Self> {
        // Parses both, and compares their public keys.
        CertifiedKeyPair::from_pem(certificate, key)?;
        let der = CertificateDer::from_pem_slice(certificate)?;
        let info = CertificateInfo::read(&der)?;
        ensure!(
            is_issued_by_us(&der, &info),
            "not a CA created by this program"
        );
        let key = str::from_utf8(key).unwrap_or_default();
        let key = KeyPair::from_pem_and_sign_algo(key, &PKCS_ECDSA_P256_SHA256)
            .context("the CA's key is not a P-256 key")?;
        Ok(Self {
            issuer: Issuer::new(params(), key),
            der,
            info,
        })
    }

    /// The certificate, PEM.
    pub fn pem(&self) -> String {
        Bundle::from(self.der.clone()).pem()
    }

    /// The key, PEM.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The certificate, DER.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The parsed fields of the certificate.
    pub fn info(&self) -> &CertificateInfo {
        &self.info
    }
}

/// The parameters that all CAs share. Together with the key, they are all that signing needs.
pub fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, COMMON_NAME);
    // Signs leaves only, no further CA.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Bundle;
    use crate::clock::wall_clock;
    use crate::leaf;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    #[test]
    fn stored_ca_still_signs() {
        let now = wall_clock();
        let created = Ca::try_new(now, YEAR).unwrap();
        let stored = Ca::from_pem(created.pem().as_bytes(), created.key_pem().as_bytes()).unwrap();
        assert_eq!(
            (stored.der(), stored.info()),
            (created.der(), created.info()),
            "the same certificate"
        );
        let leaf = leaf::issue(&stored, &["a".into()], now, YEAR / 52).unwrap();
        let trusted = Bundle::from(created.der().clone());
        leaf::tests::verify(&trusted, &leaf, "a", now).unwrap();
    }

    #[test]
    fn stored_ca_signs_within_its_validity() {
        let now = wall_clock();
        for (from, to) in [(1970, 9999), (1999, 2050)] {
            let mut params = params();
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(to, 12, 31);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            let ca = Ca::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
            let leaf = leaf::issue(&ca, &["a".into()], now, YEAR / 52).unwrap();
            leaf::tests::verify(&Bundle::from(ca.der().clone()), &leaf, "a", now).unwrap();
        }
    }

    #[test]
    fn ca_for_services_is_trusted_for_no_other_name() {
        let now = wall_clock();
        let service = || "envoy-drainer.drainers.svc".to_owned();
        for (ca_names, name, wanted) in [
            (vec![service()], service(), true),
            (vec![service()], "shop.shop.svc".into(), true),
            (vec![service()], "example.com".into(), false),
            (vec![service()], "svc.example.com".into(), false),
            (vec![service()], "10.0.0.1".into(), false),
            (vec![service()], "fd00::1".into(), false),
            (
                vec![service(), "localhost".into()],
                "localhost".into(),
                true,
            ),
            (vec!["10.0.0.1".into()], "10.0.0.1".into(), true),
        ] {
            let created = Ca::try_new_for(&ca_names, now, YEAR).unwrap();
            // The constraints are in the certificate, so storing it keeps them.
            let stored =
                Ca::from_pem(created.pem().as_bytes(), created.key_pem().as_bytes()).unwrap();
            for ca in [created, stored] {
                let leaf = leaf::issue(&ca, std::slice::from_ref(&name), now, YEAR / 52).unwrap();
                let trusted = Bundle::from(ca.der().clone());
                let verified = leaf::tests::verify(&trusted, &leaf, &name, now);
                assert_eq!(
                    verified.is_ok(),
                    wanted,
                    "{ca_names:?}, {name}: {verified:?}"
                );
            }
        }
    }

    #[test]
    fn foreign_or_incomplete_cas_are_rejected() {
        let now = wall_clock();
        let [ca, other] = [(); 2].map(|()| Ca::try_new(now, YEAR).unwrap());
        let foreign = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (foreign, foreign_key) = (foreign.cert.pem(), foreign.signing_key.serialize_pem());
        for (certificate, key, wanted) in [
            (
                ca.pem(),
                other.key_pem(),
                "the private key does not belong to the certificate",
            ),
            (
                ca.pem(),
                String::new(),
                "the private key is not a valid PEM key",
            ),
            (
                String::new(),
                ca.key_pem(),
                "the certificate chain has no certificate",
            ),
            (foreign, foreign_key, "not a CA created by this program"),
        ] {
            let error = Ca::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), wanted);
        }
    }
}
