//! A certificate authority of one's own.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, GeneralSubtree, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::bundle::Bundle;
use super::certified_key::{CertifiedKeyError, CertifiedKeyPair};
use super::x509::CertificateInfo;

/// The name of every authority that is made here. It tells our own line in a bundle, and a stored
/// authority is known to sign in this name: it is the same for ever.
const COMMON_NAME: &str = "envoy-drainer CA";

/// The domain of every Service, by which API servers call webhooks.
const SERVICE_DOMAIN: &str = "svc";

/// A certificate authority: it signs leaves, and clients trust its certificate.
#[derive(Debug)]
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
    info: CertificateInfo,
}

/// Why a certificate and a key are no [`Ca`].
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// They are no pair, or no PEM.
    #[error(transparent)]
    CertifiedKey(#[from] CertifiedKeyError),
    /// The key is not of the kind that is made here.
    #[error("the authority's key is no P-256 key")]
    Key(#[source] rcgen::Error),
    /// The certificate is not of our own line.
    #[error("the authority is none that was made here")]
    Foreign,
}

/// The longest certificate that counts as made here, in bytes of DER: several times what one has, and so
/// little that a Secret has room for all that it may hold.
const MAX_DER_LEN: usize = 4096;

/// Whether a certificate is of an authority that was made here, by this process or another.
#[must_use]
pub fn is_issued_by_us(der: &[u8], facts: &CertificateInfo) -> bool {
    facts.subject == SUBJECT && !is_too_long(der)
}

/// Whether a certificate is longer than any that is made here.
pub(crate) fn is_too_long(der: &[u8]) -> bool {
    der.len() > MAX_DER_LEN
}

/// Whether bytes have the name of our CAs anywhere in them, as a certificate of that owner or issuer has.
pub(crate) fn contains_our_subject(der: &[u8]) -> bool {
    der.windows(SUBJECT.len()).any(|name| name == SUBJECT)
}

// === impl Ca ===

impl Ca {
    /// Makes an authority with a new key, valid until `lifetime` after `now`.
    ///
    /// It is valid from `lifetime` before `now` too: as nothing was signed with its key then, that
    /// harms nobody, and whoever makes it with a clock that is ahead makes one that is valid today.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn try_new(now: SystemTime, lifetime: Duration) -> Result<Self, rcgen::Error> {
        Self::generate(params(), now, lifetime)
    }

    /// The same for leaves of these names. Where all of them are of Services, it is trusted for no other:
    /// whoever has its key can pass for no server outside of the cluster.
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
        if names.iter().all(|name| is_service_name(name)) {
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName(SERVICE_DOMAIN.to_owned())],
                // The permitted are DNS names: of addresses they say nothing.
                excluded_subtrees: all_addresses(),
            });
        }
        Self::generate(params, now, lifetime)
    }

    fn generate(
        mut params: CertificateParams,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Self, rcgen::Error> {
        params.not_before = (now - lifetime).into();
        params.not_after = (now + lifetime).into();
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let der = certificate.der().clone();
        let facts = CertificateInfo::read(&der).expect("rcgen writes certificates");
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem: certificate.pem(),
            der,
            info: facts,
        })
    }

    /// Takes an authority that was made here and stored, certificate and key PEM.
    ///
    /// # Errors
    /// When they are not a pair, or not of our own line.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, CaError> {
        // It reads both, and compares their public keys.
        CertifiedKeyPair::from_pem(certificate, key)?;
        let der =
            CertificateDer::from_pem_slice(certificate).map_err(CertifiedKeyError::ChainPem)?;
        let facts = CertificateInfo::read(&der).map_err(CertifiedKeyError::Certificate)?;
        if !is_issued_by_us(&der, &facts) {
            return Err(CaError::Foreign);
        }
        let key = str::from_utf8(key).unwrap_or_default();
        let key =
            KeyPair::from_pem_and_sign_algo(key, &PKCS_ECDSA_P256_SHA256).map_err(CaError::Key)?;
        Ok(Self {
            issuer: Issuer::new(params(), key),
            // Without what may stand beside it.
            pem: Bundle::from(der.clone()).pem(),
            der,
            info: facts,
        })
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The authority's key, PEM.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The authority's certificate, DER.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// When it is valid.
    #[must_use]
    pub fn info(&self) -> &CertificateInfo {
        &self.info
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }
}

fn is_service_name(name: &str) -> bool {
    name.rsplit('.').next() == Some(SERVICE_DOMAIN)
}

fn all_addresses() -> Vec<GeneralSubtree> {
    [
        CidrSubnet::V4([0; 4], [0; 4]),
        CidrSubnet::V6([0; 16], [0; 16]),
    ]
    .map(GeneralSubtree::IpAddress)
    .into()
}

/// What all of them have in common, which is all that signing needs beside the key.
pub(crate) fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, COMMON_NAME);
    // It signs leaves and no further authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// The name as DER: one relative name with one attribute.
/// <https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.4>
const SUBJECT: &[u8] = b"\x30\x1b\x31\x19\x30\x17\x06\x03\x55\x04\x03\x0c\x10envoy-drainer CA";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::pki::bundle::Bundle;
    use crate::certificates::pki::leaf;
    use crate::clock::wall_clock;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    #[test]
    fn a_stored_authority_is_of_our_own_line_and_signs_on() {
        let now = wall_clock();
        let made = Ca::try_new(now, YEAR).unwrap();
        let stored = Ca::from_pem(made.pem().as_bytes(), made.key_pem().as_bytes()).unwrap();
        assert_eq!(
            (stored.der(), stored.info()),
            (made.der(), made.info()),
            "the same certificate"
        );
        let leaf = leaf::issue(&stored, &["a".into()], now, YEAR / 52).unwrap();
        let trusted = Bundle::from(made.der().clone());
        leaf::tests::verify(&trusted, &leaf, "a", now).unwrap();
    }

    #[test]
    fn a_stored_authority_signs_in_its_own_dates() {
        let now = wall_clock();
        for (from, to) in [(1970, 9999), (1999, 2050)] {
            let mut params = params();
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(to, 12, 31);
            let key = KeyPair::generate().unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            let ca = Ca::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
            assert!(crate::certificates::rotation::renewal_time(&ca) < ca.info().not_after);
            let leaf = leaf::issue(&ca, &["a".into()], now, YEAR / 52).unwrap();
            leaf::tests::verify(&Bundle::from(ca.der().clone()), &leaf, "a", now).unwrap();
        }
    }

    #[test]
    fn a_ca_for_services_is_trusted_for_no_other_name() {
        let now = wall_clock();
        let service = || "envoy-drainer.drainers.svc".to_owned();
        for (made_for, name, wanted) in [
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
            let made = Ca::try_new_for(&made_for, now, YEAR).unwrap();
            // What it is for is in the certificate, wherever that was stored.
            let stored = Ca::from_pem(made.pem().as_bytes(), made.key_pem().as_bytes()).unwrap();
            for ca in [made, stored] {
                let leaf = leaf::issue(&ca, std::slice::from_ref(&name), now, YEAR / 52).unwrap();
                let trusted = Bundle::from(ca.der().clone());
                let verified = leaf::tests::verify(&trusted, &leaf, &name, now);
                assert_eq!(
                    verified.is_ok(),
                    wanted,
                    "{made_for:?}, {name}: {verified:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_authority_of_ours_is_refused() {
        let now = wall_clock();
        let [ca, other] = [(); 2].map(|()| Ca::try_new(now, YEAR).unwrap());
        let stranger = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let (stranger, strangers_key) = (stranger.cert.pem(), stranger.signing_key.serialize_pem());
        for (certificate, key, wanted) in [
            (
                ca.pem(),
                other.key_pem(),
                "the private key does not belong to the certificate",
            ),
            (
                ca.pem(),
                String::new(),
                "the private key is no valid PEM key",
            ),
            ("", ca.key_pem(), "the certificate chain has no certificate"),
            (
                &stranger,
                strangers_key,
                "the authority is none that was made here",
            ),
        ] {
            let told = Ca::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert_eq!(told.to_string(), wanted);
        }
    }
}
