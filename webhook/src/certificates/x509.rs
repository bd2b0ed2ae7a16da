//! What is read from a certificate's DER: whose it is, and when it is valid.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use yasna::tags::TAG_UTCTIME;
use yasna::{ASN1Result, BERReader, BERReaderSeq, Tag};

/// The fields that decide here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// True from version 3 on: earlier certificates have no extensions, and so no names of servers.
    pub has_extensions: bool,
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
pub struct NoCertificate(#[source] yasna::ASN1Error);

// === impl Facts ===

impl Facts {
    /// Reads a certificate. <https://www.rfc-editor.org/rfc/rfc5280#section-4.1>
    ///
    /// # Errors
    /// When the DER is none.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, NoCertificate> {
        yasna::parse_der(certificate, |certificate| {
            certificate.read_sequence(|fields| {
                let facts = fields.next().read_sequence(tbs_certificate)?;
                skip(fields)?; // signatureAlgorithm
                skip(fields)?; // signature
                Ok(facts)
            })
        })
        .map_err(NoCertificate)
    }
}

fn tbs_certificate(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Facts> {
    let version = fields.read_optional(|version| {
        version.read_tagged(Tag::context(0), |version| version.read_u8())
    })?;
    skip(fields)?; // serialNumber
    skip(fields)?; // signature
    skip(fields)?; // issuer
    let (not_before, not_after) = fields
        .next()
        .read_sequence(|validity| Ok((time(validity.next())?, time(validity.next())?)))?;
    let subject = fields.next().read_der()?;
    skip(fields)?; // subjectPublicKeyInfo
    // The two unique identifiers and the extensions.
    while fields.read_optional(|field| field.read_der())?.is_some() {}
    Ok(Facts {
        // Written as one less.
        has_extensions: version.is_some_and(|version| version >= 2),
        subject,
        not_before,
        not_after,
    })
}

fn time(field: BERReader<'_, '_>) -> ASN1Result<SystemTime> {
    let at = if field.lookahead_tag()? == TAG_UTCTIME {
        *field.read_utctime()?.datetime()
    } else {
        *field.read_generalized_time()?.datetime()
    };
    Ok(at.into())
}

fn skip(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<()> {
    fields.next().read_der().map(drop)
}
