//! A CA for tests, and its leaves.

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A CA, which clients trust by its [`TestCa::pem`].
#[derive(Debug)]
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Leaf {
    /// The certificate, PEM.
    pub certificate: String,
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// The key, PEM.
    pub key: String,
}

/// The base64 of the DER of a PEM.
pub fn base64_of_pem(pem: &str) -> String {
    let lines = pem.lines();
    lines.filter(|line| !line.starts_with('-')).collect()
}

// === impl TestCa ===

impl TestCa {
    /// Generates a CA.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its certificate, the base64 of the DER, as the drainer's flag has it.
    pub fn base64(&self) -> String {
        base64_of_pem(&self.pem)
    }

    /// Issues a leaf for `localhost`.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn issue_leaf(&self) -> Result<Leaf> {
        self.issue_leaf_for("localhost")
    }

    /// Issues a leaf for a DNS name or an IP address.
    ///
    /// # Errors
    /// When it is neither, or the system has no randomness.
    pub fn issue_leaf_for(&self, name: &str) -> Result<Leaf> {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new([name.to_owned()])?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf {
            certificate: certificate.pem(),
            der: certificate.der().to_vec(),
            key: key.serialize_pem(),
        })
    }
}
