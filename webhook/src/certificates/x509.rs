//! What is read from a certificate's DER: whose it is, and when it is valid.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;

use super::der::{
    BIT_STRING, BOOLEAN, BadDer, CONTEXT_0, CONTEXT_3, Field, Fields, INTEGER, OCTET_STRING, OID,
    SEQUENCE,
};

/// `keyUsage`
pub(super) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
/// `basicConstraints`
pub(super) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
/// `extKeyUsage`
pub(super) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];

/// `keyCertSign`, in the first byte of a `keyUsage`.
const KEY_CERT_SIGN: u8 = 0x04;

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

/// Bytes that are no certificate.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is no X.509 certificate")]
pub struct NoCertificate(#[source] BadDer);

// === impl Facts ===

impl Facts {
    /// Reads a certificate. <https://www.rfc-editor.org/rfc/rfc5280#section-4.1>
    ///
    /// # Errors
    /// When the DER is none.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, NoCertificate> {
        self::certificate(certificate).map_err(NoCertificate)
    }
}

fn certificate(der: &[u8]) -> Result<Facts, BadDer> {
    let mut all = Fields::new(der);
    let mut fields = all.expect(SEQUENCE)?.fields();
    all.end()?;
    let facts = tbs_certificate(fields.expect(SEQUENCE)?.fields())?;
    fields.next()?; // signatureAlgorithm
    fields.next()?; // signature
    fields.end()?;
    Ok(facts)
}

fn tbs_certificate(mut fields: Fields<'_>) -> Result<Facts, BadDer> {
    let has_extensions = match fields.optional(CONTEXT_0)? {
        Some(version) => {
            let mut version = version.fields();
            let number = version.expect(INTEGER)?.content();
            version.end()?;
            // Written as one less.
            matches!(number, [2..=0x7f])
        }
        None => false,
    };
    fields.next()?; // serialNumber
    fields.next()?; // signature
    fields.next()?; // issuer
    let mut validity = fields.expect(SEQUENCE)?.fields();
    let (not_before, not_after) = (validity.next()?.date()?, validity.next()?.date()?);
    validity.end()?;
    let subject = fields.expect(SEQUENCE)?.whole().to_vec();
    fields.next()?; // subjectPublicKeyInfo
    let may_sign = has_extensions && may_sign(fields.clone()).unwrap_or(false);
    // The two unique identifiers and the extensions.
    fields.skip_rest()?;
    Ok(Facts {
        has_extensions,
        may_sign,
        subject,
        not_before,
        not_after,
    })
}

/// An extension. <https://www.rfc-editor.org/rfc/rfc5280#section-4.2>
#[derive(Debug, Clone, Copy)]
pub(super) struct Extension<'a> {
    /// The object identifier, DER without tag and length.
    pub(super) id: &'a [u8],
    /// True if a client that does not know it is to refuse the certificate.
    pub(super) is_critical: bool,
    /// The `OCTET STRING` with the value.
    pub(super) value: Field<'a>,
}

/// Reads the extensions of a certificate; none of one that has none.
pub(super) fn extensions(der: &[u8]) -> Result<Vec<Extension<'_>>, BadDer> {
    let mut fields = Fields::new(der).expect(SEQUENCE)?.fields();
    let mut fields = fields.expect(SEQUENCE)?.fields();
    fields.optional(CONTEXT_0)?; // version
    for _ in 0..6 {
        fields.next()?; // serialNumber to subjectPublicKeyInfo
    }
    read_extensions(fields)
}

/// Reads the extensions, which follow these fields of a certificate.
fn read_extensions(mut fields: Fields<'_>) -> Result<Vec<Extension<'_>>, BadDer> {
    let Some(outer) = fields.optional(CONTEXT_3)? else {
        return Ok(Vec::new());
    };
    fields.end()?;
    let mut outer = outer.fields();
    let mut list = outer.expect(SEQUENCE)?.fields();
    outer.end()?;
    let mut extensions = Vec::new();
    while let Some(extension) = list.optional(SEQUENCE)? {
        let mut extension = extension.fields();
        let id = extension.expect(OID)?.content();
        let critical = extension.optional(BOOLEAN)?;
        let value = extension.expect(OCTET_STRING)?;
        extension.end()?;
        extensions.push(Extension {
            id,
            is_critical: critical.is_some_and(|flag| flag.content() != [0]),
            value,
        });
    }
    list.end()?;
    Ok(extensions)
}

/// Judges the extensions of a CA. <https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1>
fn may_sign(fields: Fields<'_>) -> Result<bool, BadDer> {
    let mut is_ca = false;
    for Extension { id, value, .. } in read_extensions(fields)? {
        match id {
            // subjectKeyIdentifier, nameConstraints, authorityKeyIdentifier
            [0x55, 0x1d, 14 | 30 | 35] => {}
            KEY_USAGE if has_key_cert_sign(value)? => {}
            BASIC_CONSTRAINTS => is_ca = basic_constraints(value)?.is_ca,
            _ => return Ok(false),
        }
    }
    Ok(is_ca)
}

/// What `basicConstraints` say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BasicConstraints {
    /// Whether it is a CA.
    pub(super) is_ca: bool,
    /// So many CAs may stand between it and a leaf; `None` for any number.
    pub(super) path_length: Option<usize>,
}

/// Reads the value of [`BASIC_CONSTRAINTS`].
pub(super) fn basic_constraints(value: Field<'_>) -> Result<BasicConstraints, BadDer> {
    let mut constraints = value.fields().expect(SEQUENCE)?.fields();
    let flag = constraints.optional(BOOLEAN)?;
    let number = constraints.optional(INTEGER)?;
    let length = |bytes: &[u8]| match bytes {
        [length] => usize::from(*length),
        // More than any chain has.
        _ => usize::MAX,
    };
    Ok(BasicConstraints {
        is_ca: flag.is_some_and(|flag| flag.content() == [0xff]),
        path_length: number.map(|number| length(number.content())),
    })
}

/// Returns true if the value of [`KEY_USAGE`] lets the key sign certificates.
pub(super) fn has_key_cert_sign(value: Field<'_>) -> Result<bool, BadDer> {
    let bits = value.fields().expect(BIT_STRING)?.content();
    Ok(matches!(bits, [_unused, first, ..] if first & KEY_CERT_SIGN != 0))
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
        assert!(facts.has_extensions && crate::certificates::ca::is_own(ca.der(), &facts));
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
        let mut fields = Fields::new(&der).next().unwrap().fields();
        let mut tbs = fields.next().unwrap().fields();
        let signed: Vec<_> = std::iter::from_fn(|| tbs.next().ok().map(Field::whole)).collect();
        let rest: Vec<_> = std::iter::from_fn(|| fields.next().ok().map(Field::whole)).collect();
        for length in u64::MAX - 1_000..=u64::MAX {
            for at in 0..signed.len() {
                let long = [&signed[at][..1], &[0x88], &length.to_be_bytes()].concat();
                let mut signed = signed.clone();
                signed[at] = &long;
                let tbs = sequence(&signed.concat());
                let whole = sequence(&[&tbs[..], &rest.concat()].concat());
                assert!(read(&whole).is_err(), "{length} at {at}");
            }
        }
    }
}
