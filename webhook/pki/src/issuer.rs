//! Checks whether Go's verifier accepts the CAs of a chain. API servers are written in Go, and Go checks more of a trusted
//! CA than rustls, to which a trust anchor is a name and a key.
//! <https://github.com/golang/go/blob/master/src/crypto/x509/verify.go>

use std::time::SystemTime;

use anyhow::{Context, Error, anyhow, ensure};
use rustls::pki_types::CertificateDer;

use super::bundle::Bundle;
use super::verify;
use super::x509::{
    BASIC_CONSTRAINTS, BasicConstraints, CertificateInfo, EXTENDED_KEY_USAGE, Extension, KEY_USAGE,
};

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
    let info = CertificateInfo::read(leaf)?;
    check_server_auth(&info.extensions()?)?;
    if bundle.contains(leaf) {
        return Ok(());
    }
    let mut error: Option<Error> = None;
    let mut usable = vec![leaf.clone()];
    for intermediate in intermediates {
        match check_ca(intermediate, now) {
            Ok(_) => usable.push(intermediate.clone()),
            Err(bad) => error = error.or(Some(bad)),
        }
    }
    for anchor in bundle.iter() {
        let alone = Bundle::from(anchor.clone());
        let is_trusted = |chain: &_| verify::verify_chain(chain, &alone, now).is_ok();
        if !is_trusted(chain) {
            continue;
        }
        error = match check_ca(anchor, now) {
            Err(bad) => Some(bad),
            // `usable` is in the order of the chain, so its first are those below the anchor.
            Ok(length) if is_trusted(&usable[..usable.len().min(length.saturating_add(1))]) => {
                return Ok(());
            }
            Ok(length) => error.or_else(|| {
                let limit = "its basicConstraints allow at most";
                Some(anyhow!("{limit} {length} CAs below it (pathlen)"))
            }),
        };
    }
    error.map_or(Ok(()), Err)
}

/// Checks a CA, and returns its `pathLenConstraint`: how many CAs may be below it.
pub(crate) fn check_ca(der: &CertificateDer<'_>, now: SystemTime) -> anyhow::Result<usize> {
    let info = CertificateInfo::read(der).context("it is not an X.509 certificate")?;
    ensure!(
        info.check_validity(now).is_ok(),
        "it is not valid yet, or has expired"
    );
    let extensions = info.extensions()?;
    // A certificate of version 1 has no extensions, and may be a CA.
    let absent = BasicConstraints {
        is_ca: !info.has_extensions,
        path_length: None,
    };
    let constraints = find_extension(&extensions, BASIC_CONSTRAINTS)
        .map_or(Ok(absent), Extension::basic_constraints)?;
    ensure!(constraints.is_ca, "its basicConstraints do not say CA:TRUE");
    let usage = find_extension(&extensions, KEY_USAGE);
    ensure!(
        usage.map_or(Ok(true), Extension::has_key_cert_sign)?,
        "its keyUsage lacks keyCertSign"
    );
    check_server_auth(&extensions)?;
    ensure!(
        extensions.iter().all(is_accepted),
        "it has a critical extension that clients do not know"
    );
    Ok(constraints.path_length.unwrap_or(usize::MAX))
}

fn find_extension<'a, 'b>(extensions: &'b [Extension<'a>], id: &[u8]) -> Option<&'b Extension<'a>> {
    extensions.iter().find(|extension| extension.id == id)
}

/// Returns true for an extension that Go knows, or that is not critical.
fn is_accepted(extension: &Extension<'_>) -> bool {
    // Key identifiers, keyUsage, subjectAltName, basicConstraints, nameConstraints, CRL distribution points, the
    // policies, extKeyUsage.
    !extension.is_critical || matches!(extension.id, [0x55, 0x1d, 14..=19 | 30..=33 | 35..=37 | 54])
}

/// Checks that the extended key usage, if present, includes servers.
fn check_server_auth(extensions: &[Extension<'_>]) -> anyhow::Result<()> {
    let Some(extension) = find_extension(extensions, EXTENDED_KEY_USAGE) else {
        return Ok(());
    };
    let purposes = extension.purposes()?;
    ensure!(
        purposes.iter().any(|id| SERVER_AUTH_PURPOSES.contains(id)),
        "its extendedKeyUsage lacks serverAuth"
    );
    Ok(())
}
