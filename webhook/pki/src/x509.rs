//! Parses the fields of a certificate's DER that decisions need: subject, validity, extensions.

use std::time::SystemTime;

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, UtcTime};
use der::{Decode, Reader, SliceReader, Tag, TagMode, TagNumber, Tagged};
use rustls::CertificateError;
use rustls::pki_types::CertificateDer;

/// `keyUsage`
pub const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
/// `basicConstraints`
pub const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
/// `extKeyUsage`
pub const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];

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
    /// The subject, DER.
    pub subject: Vec<u8>,
    /// The first instant at which it is valid.
    pub not_before: SystemTime,
    /// The instant from which it is rejected.
    pub not_after: SystemTime,
    /// The extensions, DER; empty if there are none.
    extensions: Vec<u8>,
}

/// An extension. <https://www.rfc-editor.org/rfc/rfc5280#section-4.2>
#[derive(Debug, Clone, Copy)]
pub struct Extension<'a> {
    /// The object identifier, DER without tag and length.
    pub id: &'a [u8],
    /// The value, DER.
    value: &'a [u8],
}

// === impl CertificateInfo ===

impl CertificateInfo {
    /// Parses a certificate. <https://www.rfc-editor.org/rfc/rfc5280#section-4.1>
    ///
    /// # Errors
    /// When the DER is not a certificate.
    pub fn read(certificate: &CertificateDer<'_>) -> der::Result<Self> {
        AnyRef::from_der(certificate)?.sequence(|der| {
            let info = der.sequence(tbs_certificate)?;
            AnyRef::decode(der)?; // signatureAlgorithm
            AnyRef::decode(der)?; // signature
            Ok(info)
        })
    }

    /// Checks that it is valid at `now`.
    ///
    /// # Errors
    /// When it is not valid yet, or has expired.
    pub fn check_validity(&self, now: SystemTime) -> Result<(), CertificateError> {
        if now < self.not_before {
            return Err(CertificateError::NotValidYet);
        }
        if now >= self.not_after {
            return Err(CertificateError::Expired);
        }
        Ok(())
    }

    /// Finds the extension with this object identifier.
    ///
    /// # Errors
    /// When any extension is malformed.
    pub fn extension(&self, id: &[u8]) -> der::Result<Option<Extension<'_>>> {
        if self.extensions.is_empty() {
            return Ok(None);
        }
        let extensions = Vec::<AnyRef<'_>>::from_der(&self.extensions)?.into_iter();
        let extensions: Vec<_> = extensions.map(extension).collect::<der::Result<_>>()?;
        Ok(extensions.into_iter().find(|extension| extension.id == id))
    }
}

fn tbs_certificate(der: &mut SliceReader<'_>) -> der::Result<CertificateInfo> {
    let version: Option<u8> = der.context_specific(TagNumber(0), TagMode::Explicit)?;
    AnyRef::decode(der)?; // serialNumber
    AnyRef::decode(der)?; // signature
    AnyRef::decode(der)?; // issuer
    let (not_before, not_after) = der.sequence(|der| der::Result::Ok((time(der)?, time(der)?)))?;
    Tag::peek(der)?.assert_eq(Tag::Sequence)?;
    let subject = der.tlv_bytes()?.to_vec();
    AnyRef::decode(der)?; // subjectPublicKeyInfo
    let mut extensions = Vec::new();
    // The two unique identifiers, and the extensions.
    while !der.is_finished() {
        let field = AnyRef::decode(der)?;
        if field.tag() == EXTENSIONS {
            extensions = field.value().to_vec();
        }
    }
    Ok(CertificateInfo {
        has_extensions: version.is_some_and(|version| version >= V3),
        subject,
        not_before,
        not_after,
        extensions,
    })
}

/// <https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5>
fn time(der: &mut SliceReader<'_>) -> der::Result<SystemTime> {
    match Tag::peek(der)? {
        Tag::UtcTime => Ok(UtcTime::decode(der)?.to_system_time()),
        _ => Ok(GeneralizedTime::decode(der)?.to_system_time()),
    }
}

fn extension(der: AnyRef<'_>) -> der::Result<Extension<'_>> {
    der.sequence(|der| {
        let id = content(AnyRef::decode(der)?, Tag::ObjectIdentifier)?;
        Option::<bool>::decode(der)?; // critical
        Ok(Extension {
            id,
            value: content(AnyRef::decode(der)?, Tag::OctetString)?,
        })
    })
}

/// The content of a field, which must have this tag.
fn content<'a>(field: AnyRef<'a>, tag: Tag) -> der::Result<&'a [u8]> {
    field.tag().assert_eq(tag)?;
    Ok(field.value())
}

// === impl Extension ===

impl<'a> Extension<'a> {
    /// Returns true if the value of [`BASIC_CONSTRAINTS`] is that of a CA.
    pub fn is_ca(&self) -> der::Result<bool> {
        AnyRef::from_der(self.value)?.sequence(|der| {
            let is_ca = Option::<bool>::decode(der)?.unwrap_or(false);
            Option::<AnyRef<'_>>::decode(der)?; // pathLenConstraint
            Ok(is_ca)
        })
    }

    /// Returns true if the value of [`KEY_USAGE`] lets the key sign certificates.
    pub fn has_key_cert_sign(&self) -> der::Result<bool> {
        let bits = BitStringRef::from_der(self.value)?;
        let first = bits.raw_bytes().first();
        Ok(first.is_some_and(|first| first & KEY_CERT_SIGN != 0))
    }

    /// Parses the value of [`EXTENDED_KEY_USAGE`]: object identifiers, DER without tag and length.
    pub fn purposes(&self) -> der::Result<Vec<&'a [u8]>> {
        let purposes = Vec::<AnyRef<'a>>::from_der(self.value)?;
        let ids = purposes.into_iter();
        ids.map(|id| content(id, Tag::ObjectIdentifier)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ca::Ca;
    use crate::clock::wall_clock;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    fn ca_der() -> Vec<u8> {
        Ca::try_new(wall_clock(), YEAR).unwrap().der().to_vec()
    }

    fn read(der: &[u8]) -> der::Result<CertificateInfo> {
        CertificateInfo::read(&CertificateDer::from(der))
    }

    #[test]
    fn parsed_fields_match_the_certificate() {
        let now = wall_clock();
        let ca = Ca::try_new(now, YEAR).unwrap();
        let info = read(ca.der()).unwrap();
        assert!(info.has_extensions && crate::subject::is_issued_by_us(ca.der(), &info));
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
