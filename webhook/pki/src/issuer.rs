//! Checks whether Go's verifier accepts the CAs of a chain. API servers are written in Go, and Go checks more of a
//! trusted CA than rustls, to which a trust anchor is a name and a key.
//! <https://github.com/golang/go/blob/master/src/crypto/x509/verify.go>

use std::time::SystemTime;

use anyhow::{Context, ensure};
use rustls::pki_types::CertificateDer;

use super::bundle::Bundle;
use super::verify;
use super::x509::{BASIC_CONSTRAINTS, CertificateInfo, EXTENDED_KEY_USAGE, KEY_USAGE};

/// `serverAuth` and `anyExtendedKeyUsage`, DER without tag and length.
const SERVER_AUTH_PURPOSES: [&[u8]; 2] = [&[0x2b, 6, 1, 5, 5, 7, 3, 1], &[0x55, 0x1d, 37, 0]];

/// Checks that clients which trust `bundle` accept the CAs of a chain, leaf first, at `now`. Signatures are left to
/// [`verify::verify_chain`].
///
/// # Errors
/// Why clients reject the CA that signed the leaf.
pub fn check(
    chain: &[CertificateDer<'static>],
    bundle: &Bundle,
    now: SystemTime,
) -> anyhow::Result<()> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Ok(());
    };
    check_server_auth(&CertificateInfo::read(leaf)?)?;
    if bundle.contains(leaf) {
        return Ok(());
    }
    let mut result = Ok(());
    let mut usable = vec![leaf.clone()];
    for intermediate in intermediates {
        match check_ca(intermediate, now) {
            Ok(()) => usable.push(intermediate.clone()),
            unusable => result = unusable,
        }
    }
    for anchor in bundle.iter() {
        let alone = Bundle::from(anchor.clone());
        if verify::verify_chain(&usable, &alone, now).is_ok() {
            result = check_ca(anchor, now);
            if result.is_ok() {
                break;
            }
        }
    }
    result
}

/// Checks a CA.
fn check_ca(der: &CertificateDer<'_>, now: SystemTime) -> anyhow::Result<()> {
    let info = CertificateInfo::read(der).context("it is not an X.509 certificate")?;
    ensure!(
        info.check_validity(now).is_ok(),
        "it is not valid yet, or has expired"
    );
    // A certificate of version 1 has no extensions, and may be a CA.
    let constraints = info.extension(BASIC_CONSTRAINTS)?;
    let is_ca = constraints.map_or(Ok(!info.has_extensions), |it| it.is_ca())?;
    ensure!(is_ca, "its basicConstraints do not say CA:TRUE");
    let usage = info.extension(KEY_USAGE)?;
    let may_sign = usage.map_or(Ok(true), |it| it.has_key_cert_sign())?;
    ensure!(may_sign, "its keyUsage lacks keyCertSign");
    check_server_auth(&info)
}

/// Checks that the extended key usage, if present, includes servers.
fn check_server_auth(info: &CertificateInfo) -> anyhow::Result<()> {
    let Some(extension) = info.extension(EXTENDED_KEY_USAGE)? else {
        return Ok(());
    };
    let purposes = extension.purposes()?;
    ensure!(
        purposes.iter().any(|id| SERVER_AUTH_PURPOSES.contains(id)),
        "its extendedKeyUsage lacks serverAuth"
    );
    Ok(())
}
