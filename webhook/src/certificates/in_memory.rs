//! A CA in this process's memory, which issues the certificate where there is no cluster: in tests, the demo and on one's
//! own machine.

use std::time::{Duration, SystemTime};

use anyhow::Context;
use pki::ca::Ca;
use pki::certified_key::CertifiedKeyPair;
use pki::leaf;

/// Longer than such a process runs, so nothing is renewed. Apple's clients accept 825 days.
/// <https://support.apple.com/en-us/103769>
const LIFETIME: Duration = Duration::from_secs(800 * 24 * 60 * 60);

/// The CA of one certificate.
#[derive(Debug)]
pub struct InMemoryCa(Ca);

// === impl InMemoryCa ===

impl InMemoryCa {
    /// Creates a CA, and its leaf for `names`.
    ///
    /// # Errors
    /// When a name is invalid, or the system has no randomness.
    pub fn try_new(names: &[String], now: SystemTime) -> anyhow::Result<(Self, CertifiedKeyPair)> {
        let ca = Ca::try_new(now, LIFETIME).context("cannot create a CA")?;
        let leaf = leaf::issue(&ca, names, now, LIFETIME)?;
        Ok((Self(ca), leaf))
    }

    /// The certificate of the CA, PEM.
    pub fn ca_pem(&self) -> String {
        self.0.pem()
    }
}
