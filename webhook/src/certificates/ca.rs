//! A certificate authority of one's own.

use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// How far certificates reach back, for clients whose clock is behind ours.
pub(super) const BACKDATED: Duration = Duration::from_secs(60 * 60);

/// A certificate authority: it signs leaves, and clients trust its certificate.
#[derive(Debug)]
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

// === impl Ca ===

impl Ca {
    /// Makes an authority with a new key, valid from an hour before `now` for `lifetime`.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn try_new(now: SystemTime, lifetime: Duration) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "envoy-drainer CA");
        // It signs leaves and no further authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + lifetime).into();
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }
}
