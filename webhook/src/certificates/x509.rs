//! What is read from a certificate's DER: whose it is, and when it is valid.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;

use super::der::{
    BIT_STRING, BOOLEAN, BadDer, CONTEXT_0, CONTEXT_3, Fields, INTEGER, OCTET_STRING, OID, SEQUENCE,
};

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

/// Reads the extensions of a CA. <https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1>
fn may_sign(mut fields: Fields<'_>) -> Result<bool, BadDer> {
    let mut outer = fields.expect(CONTEXT_3)?.fields();
    fields.end()?;
    let mut extensions = outer.expect(SEQUENCE)?.fields();
    outer.end()?;
    let mut is_ca = false;
    while let Some(extension) = extensions.optional(SEQUENCE)? {
        let mut extension = extension.fields();
        let id = extension.expect(OID)?.content();
        extension.optional(BOOLEAN)?; // critical
        let mut value = extension.expect(OCTET_STRING)?.fields();
        extension.end()?;
        match id {
            // subjectKeyIdentifier, nameConstraints, authorityKeyIdentifier
            [0x55, 0x1d, 14 | 30 | 35] => {}
            // keyUsage
            [0x55, 0x1d, 15] => match value.expect(BIT_STRING)?.content() {
                [_unused, first, ..] if first & KEY_CERT_SIGN != 0 => {}
                _ => return Ok(false),
            },
            // basicConstraints
            [0x55, 0x1d, 19] => {
                let mut constraints = value.expect(SEQUENCE)?.fields();
                let flag = constraints.optional(BOOLEAN)?;
                is_ca = flag.is_some_and(|flag| flag.content() == [0xff]);
            }
            _ => return Ok(false),
        }
    }
    extensions.end()?;
    Ok(is_ca)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::ca::Ca;
    use crate::certificates::der::Field;
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
