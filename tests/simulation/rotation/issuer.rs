//! An external issuer that writes certificates to a Secret, as cert-manager does.

use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer as Signer, KeyPair};
use webhook::certificates::testing_api::{Bundle, SecretData};

use crate::{DAY, SERVER_NAME};

/// cert-manager's default.
/// <https://cert-manager.io/docs/usage/certificate/#renewal-reissuance-and-rotation>
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// A CA that is not the webhook's.
#[derive(Debug)]
pub(crate) struct ExternalIssuer {
    signer: Signer<'static, KeyPair>,
    pem: String,
    /// An expired CA that `ca.crt` still lists.
    expired_ca: String,
    /// After this, its leaves could outlive it.
    pub(crate) renewal_time: SystemTime,
}

// === impl ExternalIssuer ===

impl ExternalIssuer {
    pub(crate) fn new(now: SystemTime) -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "external CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = (now - DAY).into();
        params.not_after = (now + 4 * CERTIFICATE_LIFETIME).into();
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let expired_ca = {
            let mut params = CertificateParams::default();
            params.not_after = (now - DAY).into();
            let key = KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().pem()
        };
        Self {
            signer: Signer::new(params, key),
            pem,
            expired_ca,
            renewal_time: now + 2 * CERTIFICATE_LIFETIME,
        }
    }

    /// The certificates that its clients trust.
    pub(crate) fn ca_bundle(&self) -> Bundle {
        Bundle::read(self.pem.as_bytes())
    }

    /// The data of a Secret with a new certificate.
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
