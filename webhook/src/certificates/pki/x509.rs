//! Parses the fields of a certificate's DER that decisions need: subject, validity, extensions.

use std::time::SystemTime;

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, UtcTime};
use der::{Decode, Reader, SliceReader, Tag, TagMode, TagNumber, Tagged};
use rustls::pki_types::CertificateDer;

/// `keyUsage`
pub(crate) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
/// `basicConstraints`
pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
/// `extKeyUsage`
pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];

/// `keyCertSign`, in the first byte of a `keyUsage`.
const KEY_CERT_SIGN: u8 = 0x04;

/// The field `[3]` of a certificate.
const EXTENSIONS: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber(3),
};

/// Version 3 of X.509, which is written as one less.
const V3: u8 = 2;

/// The fields of a certificate that decisions need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// True from X.509 version 3 on. Earlier certificates have no extensions, and so no server names.
    pub has_extensions: bool,
    /// True for a CA that has no extensions but those of the CAs that are created here: clients reject unknown critical
    /// ones, and an extended key usage would have to include servers.
    pub can_sign: bool,
    /// The subject, DER.
    pub subject: Vec<u8>,
    /// The first instant at which it is valid.
    pub not_before: SystemTime,
    /// The instant from which it is rejected.
    pub not_after: SystemTime,
}

/// An extension. <https://www.rfc-editor.org/rfc/rfc5280#section-4.2>
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extension<'a> {
    /// The object identifier, DER without tag and length.
    pub(crate) id: &'a [u8],
    /// True if clients that do not know the extension must reject the certificate.
    pub(crate) is_critical: bool,
    /// The value, DER.
    value: &'a [u8],
}

/// The value of `basicConstraints`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BasicConstraints {
    /// True for a CA.
    pub(crate) is_ca: bool,
    /// How many CAs may be between this one and a leaf; `None` for any number.
    pub(crate) path_length: Option<usize>,
}

/// The bytes are not a certificate.
#[derive(Debug, thiserror::Error)]
#[error("not an X.509 certificate")]
pub struct X509Error(#[source] der::Error);

// === impl CertificateInfo ===

impl CertificateInfo {
    /// Parses a certificate. <https://www.rfc-editor.org/rfc/rfc5280#section-4.1>
    ///
    /// # Errors
    /// When the DER is not a certificate.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, X509Error> {
        let (mut info, extensions) = parse_certificate(certificate).map_err(X509Error)?;
        info.can_sign = info.has_extensions && can_sign(extensions).unwrap_or(false);
        Ok(info)
    }
}

/// Parses the extensions of a certificate.
pub(crate) fn extensions(der: &[u8]) -> der::Result<Vec<Extension<'_>>> {
    let (_, extensions) = parse_certificate(der)?;
    read_extensions(extensions)
}

/// Parses the fields except `can_sign`, and returns the DER of the extensions, empty if there are none.
fn parse_certificate(der: &[u8]) -> der::Result<(CertificateInfo, &[u8])> {
    read_all(der, |der| {
        der.sequence(|der| {
            let read = der.sequence(tbs_certificate)?;
            AnyRef::decode(der)?; // signatureAlgorithm
            AnyRef::decode(der)?; // signature
            Ok(read)
        })
    })
}

fn tbs_certificate<'a>(der: &mut SliceReader<'a>) -> der::Result<(CertificateInfo, &'a [u8])> {
    let version: Option<u8> = der.context_specific(TagNumber(0), TagMode::Explicit)?;
    AnyRef::decode(der)?; // serialNumber
    AnyRef::decode(der)?; // signature
    AnyRef::decode(der)?; // issuer
    let (not_before, not_after) = der.sequence(|der| der::Result::Ok((time(der)?, time(der)?)))?;
    Tag::peek(der)?.assert_eq(Tag::Sequence)?;
    let subject = der.tlv_bytes()?.to_vec();
    AnyRef::decode(der)?; // subjectPublicKeyInfo
    let mut extensions: &[u8] = &[];
    // The two unique identifiers, and the extensions.
    while !der.is_finished() {
        let field = AnyRef::decode(der)?;
        if field.tag() == EXTENSIONS {
            extensions = field.value();
        }
    }
    let info = CertificateInfo {
        has_extensions: version.is_some_and(|version| version >= V3),
        can_sign: false,
        subject,
        not_before,
        not_after,
    };
    Ok((info, extensions))
}

/// <https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5>
fn time(der: &mut SliceReader<'_>) -> der::Result<SystemTime> {
    match Tag::peek(der)? {
        Tag::UtcTime => Ok(UtcTime::decode(der)?.to_system_time()),
        _ => Ok(GeneralizedTime::decode(der)?.to_system_time()),
    }
}

fn read_extensions(der: &[u8]) -> der::Result<Vec<Extension<'_>>> {
    if der.is_empty() {
        return Ok(Vec::new());
    }
    read_all(der, |der| {
        der.sequence(|der| {
            let mut extensions = Vec::new();
            while !der.is_finished() {
                extensions.push(der.sequence(extension)?);
            }
            Ok(extensions)
        })
    })
}

fn extension<'a>(der: &mut SliceReader<'a>) -> der::Result<Extension<'a>> {
    let id = content(der, Tag::ObjectIdentifier)?;
    let is_critical = Option::<bool>::decode(der)?.unwrap_or(false);
    let value = content(der, Tag::OctetString)?;
    Ok(Extension {
        id,
        is_critical,
        value,
    })
}

/// Reads the content of a field with this tag.
fn content<'a>(der: &mut SliceReader<'a>, tag: Tag) -> der::Result<&'a [u8]> {
    let field = AnyRef::decode(der)?;
    field.tag().assert_eq(tag)?;
    Ok(field.value())
}

/// Parses all of `der`; trailing bytes are an error.
fn read_all<'a, T>(
    der: &'a [u8],
    read: impl FnOnce(&mut SliceReader<'a>) -> der::Result<T>,
) -> der::Result<T> {
    let mut der = SliceReader::new(der)?;
    let read = read(&mut der)?;
    der.finish()?;
    Ok(read)
}

/// Returns true if a CA with these extensions may sign server certificates. <https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1>
fn can_sign(extensions: &[u8]) -> der::Result<bool> {
    let mut is_ca = false;
    for extension in read_extensions(extensions)? {
        match extension.id {
            // subjectKeyIdentifier, nameConstraints, authorityKeyIdentifier
            [0x55, 0x1d, 14 | 30 | 35] => {}
            KEY_USAGE if extension.has_key_cert_sign()? => {}
            BASIC_CONSTRAINTS => is_ca = extension.basic_constraints()?.is_ca,
            _ => return Ok(false),
        }
    }
    Ok(is_ca)
}

// === impl Extension ===

impl<'a> Extension<'a> {
    /// Parses the value of [`BASIC_CONSTRAINTS`].
    pub(crate) fn basic_constraints(&self) -> der::Result<BasicConstraints> {
        read_all(self.value, |der| {
            der.sequence(|der| {
                let is_ca = Option::<bool>::decode(der)?.unwrap_or(false);
                let length = match der.is_finished() {
                    true => None,
                    false => Some(content(der, Tag::Integer)?),
                };
                let path_length = length.map(|bytes| match bytes {
                    [length] => usize::from(*length),
                    // Longer than any chain.
                    _ => usize::MAX,
                });
                Ok(BasicConstraints { is_ca, path_length })
            })
        })
    }

    /// Returns true if the value of [`KEY_USAGE`] lets the key sign certificates.
    pub(crate) fn has_key_cert_sign(&self) -> der::Result<bool> {
        let bits = BitStringRef::from_der(self.value)?;
        Ok(bits
            .raw_bytes()
            .first()
            .is_some_and(|first| first & KEY_CERT_SIGN != 0))
    }

    /// Parses the value of [`EXTENDED_KEY_USAGE`]: object identifiers, DER without tag and length.
    pub(crate) fn purposes(&self) -> der::Result<Vec<&'a [u8]>> {
        read_all(self.value, |der| {
            der.sequence(|der| {
                let mut purposes = Vec::new();
                while !der.is_finished() {
                    purposes.push(content(der, Tag::ObjectIdentifier)?);
                }
                Ok(purposes)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::pki::ca::Ca;
    use crate::clock::wall_clock;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    fn ca_der() -> Vec<u8> {
        Ca::try_new(wall_clock(), YEAR).unwrap().der().to_vec()
    }

    fn read(der: &[u8]) -> Result<CertificateInfo, X509Error> {
        CertificateInfo::read(&CertificateDer::from(der))
    }

    #[test]
    fn parsed_fields_match_the_certificate() {
        let now = wall_clock();
        let ca = Ca::try_new(now, YEAR).unwrap();
        let info = read(ca.der()).unwrap();
        assert!(
            info.has_extensions
                && crate::certificates::pki::subject::is_issued_by_us(ca.der(), &info)
        );
        for (parsed, wanted) in [(info.not_before, now - YEAR), (info.not_after, now + YEAR)] {
            let off = wanted.duration_since(parsed).unwrap();
            assert!(off < Duration::from_secs(1), "{off:?}");
        }
    }

    #[test]
    fn truncated_and_extended_certificates_are_rejected() {
        let der = ca_der();
        for length in 0..der.len() {
            assert!(read(&der[..length]).is_err(), "{length}");
        }
        assert!(read(&[&der[..], &[0]].concat()).is_err());
    }

    #[test]
    fn changed_bytes_never_panic() {
        let der = ca_der();
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
    fn huge_field_lengths_are_rejected() {
        let der = ca_der();
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
