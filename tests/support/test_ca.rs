//! A CA, and its leaves in a Secret volume as the kubelet mounts it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

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

/// A `kubernetes.io/tls` Secret in a directory, updated as the kubelet does: the files are links into `..data`, a link
/// that is replaced atomically.
#[derive(Debug)]
pub struct TlsSecretMount {
    dir: TempDir,
    writes: usize,
}

// === impl TestCa ===

impl TestCa {
    /// Generates a CA.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "test CA");
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

// === impl TlsSecretMount ===

impl TlsSecretMount {
    /// Mounts a leaf.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn new(leaf: &Leaf) -> Result<Self> {
        let mut mount = Self {
            dir: tempfile::tempdir()?,
            writes: 0,
        };
        for file in [mount.certificate(), mount.key()] {
            if let Some(name) = file.file_name() {
                symlink(Path::new("..data").join(name), &file)?;
            }
        }
        mount.write(leaf)?;
        Ok(mount)
    }

    /// Replaces the leaf atomically.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&mut self, leaf: &Leaf) -> Result<()> {
        self.writes += 1;
        let [data, target, link] = [
            "..data".into(),
            format!("..{}", self.writes),
            "..data_tmp".into(),
        ]
        .map(|name| self.dir.path().join(name));
        fs::create_dir(&target)?;
        fs::write(target.join("tls.crt"), &leaf.certificate)?;
        fs::write(target.join("tls.key"), &leaf.key)?;
        symlink(&target, &link)?;
        fs::rename(link, data)?;
        Ok(())
    }

    /// The path of the certificate.
    pub fn certificate(&self) -> PathBuf {
        self.dir.path().join("tls.crt")
    }

    /// The path of its key.
    pub fn key(&self) -> PathBuf {
        self.dir.path().join("tls.key")
    }
}
