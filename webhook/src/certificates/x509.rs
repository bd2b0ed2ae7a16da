//! What is read from a certificate's DER: whose it is, and when it is valid.

use std::time::SystemTime;

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, ObjectIdentifier, OctetStringRef, UtcTime};
use der::{Decode, Reader, SliceReader, Tag, TagMode, TagNumber, Tagged};
use rustls::pki_types::CertificateDer;

const SUBJECT_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");
const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
const NAME_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");
const AUTHORITY_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");

/// `keyCertSign`, in the first byte of a `keyUsage`.
const KEY_CERT_SIGN: u8 = 0x04;

/// The field `[3]` of a certificate.
const EXTENSIONS: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber(3),
};

/// Version 3 of X.509, which is written as one less.
const V3: u8 = 2;

/// The fields that decide here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// True from version 3 on: earlier certificates have no extensions, and so no names of servers.
    pub has_extensions: bool,
    /// True for a CA, with no extension but those that a CA for servers here has: clients pass over no
    /// critical one that they do not know, and an extended key usage would have to include servers.
    pub may_sign: bool,
    /// The name of the certificate's owner, DER.
    pub subject: Vec<u8>,
    /// The first instant at which it is valid.
    pub not_before: SystemTime,
    /// The instant from which it is refused.
    pub not_after: SystemTime,
}

/// An extension of a CA.
enum Extension {
    BasicConstraints {
        ca: bool,
    },
    /// One that a CA for servers here may have.
    Allowed,
    /// One that clients may not know, or that forbids to sign.
    Other,
}

/// Bytes that are no certificate.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is no X.509 certificate")]
pub struct NoCertificate(#[source] der::Error);

// === impl Facts ===

impl Facts {
    /// Reads a certificate. <https://www.rfc-editor.org/rfc/rfc5280#section-4.1>
    ///
    /// # Errors
    /// When the DER is none.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, NoCertificate> {
        let mut der = SliceReader::new(certificate).map_err(NoCertificate)?;
        self::certificate(&mut der)
            .and_then(|facts| der.finish().map(|()| facts))
            .map_err(NoCertificate)
    }
}

fn certificate<'a>(der: &mut impl Reader<'a>) -> der::Result<Facts> {
    der.sequence(|der| {
        let facts = der.sequence(tbs_certificate)?;
        AnyRef::decode(der)?; // signatureAlgorithm
        AnyRef::decode(der)?; // signature
        Ok(facts)
    })
}

fn tbs_certificate<'a, R: Reader<'a>>(der: &mut R) -> der::Result<Facts> {
    let version: Option<u8> = der.context_specific(TagNumber(0), TagMode::Explicit)?;
    let has_extensions = version.is_some_and(|version| version >= V3);
    AnyRef::decode(der)?; // serialNumber
    AnyRef::decode(der)?; // signature
    AnyRef::decode(der)?; // issuer
    let (not_before, not_after) = der.sequence(|der| der::Result::Ok((time(der)?, time(der)?)))?;
    Tag::peek(der)?.assert_eq(Tag::Sequence)?;
    let subject = der.tlv_bytes()?.to_vec();
    AnyRef::decode(der)?; // subjectPublicKeyInfo
    let mut may_sign = false;
    // The two unique identifiers and the extensions.
    while !der.is_finished() {
        let field = AnyRef::decode(der)?;
        if has_extensions && field.tag() == EXTENSIONS {
            may_sign = extensions_may_sign(field.value()).unwrap_or(false);
        }
    }
    Ok(Facts {
        has_extensions,
        may_sign,
        subject,
        not_before,
        not_after,
    })
}

/// <https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5>
fn time<'a>(der: &mut impl Reader<'a>) -> der::Result<SystemTime> {
    match Tag::peek(der)? {
        Tag::UtcTime => Ok(UtcTime::decode(der)?.to_system_time()),
        _ => Ok(GeneralizedTime::decode(der)?.to_system_time()),
    }
}

/// Reads the extensions of a CA. <https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1>
fn extensions_may_sign(der: &[u8]) -> der::Result<bool> {
    let mut der = SliceReader::new(der)?;
    let may_sign = der.sequence(|der| {
        let (mut is_ca, mut has_others) = (false, false);
        while !der.is_finished() {
            match der.sequence(extension)? {
                Extension::BasicConstraints { ca } => is_ca = ca,
                Extension::Allowed => {}
                Extension::Other => has_others = true,
            }
        }
        der::Result::Ok(is_ca && !has_others)
    })?;
    der.finish()?;
    Ok(may_sign)
}

fn extension<'a, R: Reader<'a>>(der: &mut R) -> der::Result<Extension> {
    let id = ObjectIdentifier::decode(der)?;
    Option::<bool>::decode(der)?; // critical
    let value = <&OctetStringRef>::decode(der)?.as_bytes();
    Ok(match id {
        BASIC_CONSTRAINTS => Extension::BasicConstraints { ca: is_ca(value)? },
        KEY_USAGE => match BitStringRef::from_der(value)?.raw_bytes().first() {
            Some(first) if first & KEY_CERT_SIGN != 0 => Extension::Allowed,
            _ => Extension::Other,
        },
        AUTHORITY_KEY_IDENTIFIER | NAME_CONSTRAINTS | SUBJECT_KEY_IDENTIFIER => Extension::Allowed,
        _ => Extension::Other,
    })
}

/// Reads `basicConstraints`.
fn is_ca(der: &[u8]) -> der::Result<bool> {
    let mut der = SliceReader::new(der)?;
    der.sequence(|der| {
        let ca = Option::<bool>::decode(der)?.unwrap_or(false);
        Option::<AnyRef<'_>>::decode(der)?; // pathLenConstraint
        Ok(ca)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::ca::Ca;
    use crate::clock::wall_clock;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    fn made() -> Vec<u8> {
        Ca::try_new(wall_clock(), YEAR).unwrap().der().to_vec()
    }

    fn read(der: &[u8]) -> Result<Facts, NoCertificate> {
        Facts::read(&CertificateDer::from(der))
    }

    #[test]
    fn a_certificate_has_the_facts_it_was_made_with() {
        let now = wall_clock();
        let ca = Ca::try_new(now, YEAR).unwrap();
        let facts = read(ca.der()).unwrap();
        assert!(facts.has_extensions && crate::certificates::ca::is_own(&facts));
        for (found, made) in [
            (facts.not_before, now - YEAR),
            (facts.not_after, now + YEAR),
        ] {
            let off = made.duration_since(found).unwrap();
            assert!(off < Duration::from_secs(1), "{off:?}");
        }
    }

    #[test]
    fn no_part_of_a_certificate_is_one() {
        let der = made();
        for length in 0..der.len() {
            assert!(read(&der[..length]).is_err(), "{length}");
        }
        assert!(read(&[&der[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_certificate_with_any_byte_changed_is_read_or_refused() {
        let der = made();
        for at in 0..der.len() {
            let mut changed = der.clone();
            for byte in 0..=u8::MAX {
                changed[at] = byte;
                let _ = read(&changed);
            }
        }
    }

    fn sequence(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[0x30, 0x82][..], &length, content].concat()
    }

    #[test]
    fn a_field_of_any_length_is_refused() {
        let der = made();
        let fields = |der: &[u8]| {
            let mut der = SliceReader::new(der).unwrap();
            let all = der.sequence(|der| {
                std::iter::from_fn(|| (!der.is_finished()).then(|| der.tlv_bytes()))
                    .map(|field| field.map(<[u8]>::to_vec))
                    .collect::<der::Result<Vec<_>>>()
            });
            all.unwrap()
        };
        let [tbs, algorithm, signature] = fields(&der).try_into().unwrap();
        let signed = fields(&tbs);
        for length in u64::MAX - 1_000..=u64::MAX {
            for at in 0..signed.len() {
                let mut signed = signed.clone();
                signed[at] = [&signed[at][..1], &[0x88], &length.to_be_bytes()].concat();
                let tbs = sequence(&signed.concat());
                let whole = sequence(&[&tbs[..], &algorithm, &signature].concat());
                assert!(read(&whole).is_err(), "{length} at {at}");
            }
        }
    }
}
