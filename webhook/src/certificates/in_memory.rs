//! A CA in this process's memory, which issues the certificate where there is no cluster: in tests, the demo and on
//! one's own machine.

use std::time::{Duration, SystemTime};

use anyhow::Context;
use pki::ca::Ca;
use pki::certified_key::CertifiedKeyPair;
use pki::leaf;

/// Longer than such a process runs, so nothing is renewed. Apple's clients accept 825 days.
/// <https://support.apple.com/en-us/103769>
const LIFETIME: Duration = Duration::from_secs(800 * 24 * 60 * 60);

/// Creates a CA, and its leaf for `names`.
///
/// # Errors
/// When a name is invalid, or the system has no randomness.
pub fn issue(names: &[String], now: SystemTime) -> anyhow::Result<(Ca, CertifiedKeyPair)> {
    let ca = Ca::try_new(now, LIFETIME).context("cannot create a CA")?;
    let leaf = leaf::issue(&ca, names, now, LIFETIME)?;
    Ok((ca, leaf))
}
