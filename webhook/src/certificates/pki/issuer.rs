//! Whether the CAs of a chain may sign it. API servers are written in Go, whose verifier judges more of a trusted CA
//! than ours, which takes a trust anchor for a name and a key.
//! <https://github.com/golang/go/blob/master/src/crypto/x509/verify.go>

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;

use super::bundle::Bundle;
use super::verify;
use super::x509::{
    BASIC_CONSTRAINTS, BasicConstraints, CertificateInfo, EXTENDED_KEY_USAGE, Extension, KEY_USAGE,
    extensions,
};

/// `serverAuth`, and `anyExtendedKeyUsage`.
const SERVER_AUTH_PURPOSES: [&[u8]; 2] = [&[0x2b, 6, 1, 5, 5, 7, 3, 1], &[0x55, 0x1d, 37, 0]];

/// Why a certificate may not stand where it does in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// It cannot be read.
    #[error("it is no X.509 certificate")]
    Malformed,
    /// It is none of a CA.
    #[error("its basicConstraints do not say CA:TRUE")]
    NotACa,
    /// Its key is for something else.
    #[error("its keyUsage lacks keyCertSign")]
    KeyUsage,
    /// It is for other purposes.
    #[error("its extendedKeyUsage lacks serverAuth")]
    ExtendedKeyUsage,
    /// It may have fewer CAs below it.
    #[error("its basicConstraints allow at most {0} CAs below it (pathlen)")]
    PathLength(usize),
    /// Clients refuse what they do not know.
    #[error("it has a critical extension that clients do not know")]
    UnknownCriticalExtension,
    /// It is not valid now.
    #[error("it is not valid yet, or has expired")]
    OutsideValidityPeriod,
}

/// Makes sure that clients which trust `bundle` accept the CAs of a chain, leaf first, at `now`. Whether they signed
/// it at all is [`verify::signature`]'s to say.
///
/// # Errors
/// Why the CA that signed it may not.
pub fn check(
    chain: &[CertificateDer<'static>],
    bundle: &Bundle,
    now: SystemTime,
) -> Result<(), ChainError> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Ok(());
    };
    check_server_auth(&read(leaf)?)?;
    if bundle.contains(leaf) {
        return Ok(());
    }
    let mut found = None;
    let mut usable = vec![leaf.clone()];
    for intermediate in intermediates {
        match check_ca(intermediate, now) {
            Ok(_) => usable.push(intermediate.clone()),
            Err(bad) => found = found.or(Some(bad)),
        }
    }
    for anchor in bundle.iter() {
        let alone = Bundle::from(anchor.clone());
        if verify::verify_chain(chain, &alone, now).is_err() {
            continue;
        }
        let judged = check_ca(anchor, now).and_then(|length| {
            // In their order, which is that of the chain.
            let most = length.map_or(usable.len(), |length| length.saturating_add(1));
            let chain = &usable[..most.min(usable.len())];
            let too_long = ChainError::PathLength(length.unwrap_or(usize::MAX));
            match verify::verify_chain(chain, &alone, now) {
                Ok(()) => Ok(()),
                Err(_) => Err(found.unwrap_or(too_long)),
            }
        });
        match judged {
            Ok(()) => return Ok(()),
            Err(bad) => found = Some(bad),
        }
    }
    found.map_or(Ok(()), Err)
}

fn read<'a>(der: &'a CertificateDer<'_>) -> Result<Vec<Extension<'a>>, ChainError> {
    extensions(der).map_err(|_| ChainError::Malformed)
}

/// Judges a CA, and returns how many others may stand between it and a leaf.
fn check_ca(der: &CertificateDer<'_>, now: SystemTime) -> Result<Option<usize>, ChainError> {
    let facts = CertificateInfo::read(der).map_err(|_| ChainError::Malformed)?;
    if now < facts.not_before || facts.not_after <= now {
        return Err(ChainError::OutsideValidityPeriod);
    }
    let extensions = read(der)?;
    // One of version 1 says nothing, and may be a CA.
    let silent = BasicConstraints {
        is_ca: !facts.has_extensions,
        path_length: None,
    };
    let constraints = find_extension(&extensions, BASIC_CONSTRAINTS)
        .map_or(Ok(silent), Extension::basic_constraints);
    let constraints = constraints.map_err(|_| ChainError::Malformed)?;
    if !constraints.is_ca {
        return Err(ChainError::NotACa);
    }
    let usage = find_extension(&extensions, KEY_USAGE);
    let signs = usage.map_or(Ok(true), Extension::has_key_cert_sign);
    if !signs.map_err(|_| ChainError::Malformed)? {
        return Err(ChainError::KeyUsage);
    }
    check_server_auth(&extensions)?;
    match extensions.iter().all(is_accepted) {
        true => Ok(constraints.path_length),
        false => Err(ChainError::UnknownCriticalExtension),
    }
}

fn find_extension<'a, 'b>(extensions: &'b [Extension<'a>], id: &[u8]) -> Option<&'b Extension<'a>> {
    extensions.iter().find(|extension| extension.id == id)
}

/// Returns true for an extension that clients know, or need not.
fn is_accepted(extension: &Extension<'_>) -> bool {
    // Identifiers of keys, keyUsage, subjectAltName, basicConstraints, nameConstraints, CRL distribution points, the
    // policies, extKeyUsage.
    !extension.is_critical || matches!(extension.id, [0x55, 0x1d, 14..=19 | 30..=33 | 35..=37 | 54])
}

/// Makes sure that the purposes, where there are any, include servers.
fn check_server_auth(extensions: &[Extension<'_>]) -> Result<(), ChainError> {
    let Some(extension) = find_extension(extensions, EXTENDED_KEY_USAGE) else {
        return Ok(());
    };
    let includes_servers = extension.purposes().map(|purposes| {
        purposes
            .iter()
            .any(|purpose| SERVER_AUTH_PURPOSES.contains(purpose))
    });
    match includes_servers {
        Ok(true) => Ok(()),
        Ok(false) => Err(ChainError::ExtendedKeyUsage),
        Err(_) => Err(ChainError::Malformed),
    }
}
