//! Somebody else who issues certificates into a Secret, as cert-manager does.

use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer as Signer, KeyPair};
use webhook::certificates::testing_api::{Bundle, SecretData};

use crate::rotation::DAY;
use crate::rotation::trust::SERVER_NAME;

/// As cert-manager's are by default.
/// <https://cert-manager.io/docs/usage/certificate/#renewal-reissuance-and-rotation>
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// An authority of another line than the webhook's own.
#[derive(Debug)]
pub(crate) struct ExternalIssuer {
    signer: Signer<'static, KeyPair>,
    pem: String,
    /// One that expired long ago, and is listed still.
    expired_ca: String,
    /// From then on its leaves might outlive it.
    pub(crate) renewal_time: SystemTime,
}

// === impl Issuer ===

impl ExternalIssuer {
    pub(crate) fn new(now: SystemTime) -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "somebody else's CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = (now - DAY).into();
        params.not_after = (now + 4 * CERTIFICATE_LIFETIME).into();
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let old = {
            let mut params = CertificateParams::default();
            params.not_after = (now - DAY).into();
            let key = KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().pem()
        };
        Self {
            signer: Signer::new(params, key),
            pem,
            expired_ca: old,
            renewal_time: now + 2 * CERTIFICATE_LIFETIME,
        }
    }

    /// Those that its clients trust.
    pub(crate) fn ca_bundle(&self) -> Bundle {
        Bundle::read(self.pem.as_bytes())
    }

    /// Fills a Secret with a new certificate.
    pub(crate) fn issue(&self, now: SystemTime) -> SecretData {
        let mut params = CertificateParams::new([SERVER_NAME.to_owned()]).unwrap();
        params.not_before = (now - DAY).into();
        params.not_after = (now + CERTIFICATE_LIFETIME).into();
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.signer).unwrap();
        SecretData::from([
            ("tls.crt".to_owned(), leaf.pem().into_bytes()),
            ("tls.key".to_owned(), key.serialize_pem().into_bytes()),
            (
                "ca.crt".to_owned(),
                format!("{}{}", self.expired_ca, self.pem).into_bytes(),
            ),
        ])
    }
}
