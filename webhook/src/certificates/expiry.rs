//! When a certificate ends: the one field that is read from its DER.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use yasna::tags::TAG_UTCTIME;
use yasna::{ASN1Result, BERReader, BERReaderSeq, Tag};

/// A certificate whose end cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is no X.509 certificate")]
pub struct NoExpiry(#[source] yasna::ASN1Error);

/// Reads `notAfter` of a certificate. <https://www.rfc-editor.org/rfc/rfc5280#section-4.1>
///
/// # Errors
/// When the DER is no certificate.
pub fn not_after(certificate: &CertificateDer<'_>) -> Result<SystemTime, NoExpiry> {
    yasna::parse_der(certificate, |certificate| {
        certificate.read_sequence(|fields| {
            let not_after = fields.next().read_sequence(tbs_certificate)?;
            skip(fields)?; // signatureAlgorithm
            skip(fields)?; // signature
            Ok(not_after)
        })
    })
    .map_err(NoExpiry)
}

fn tbs_certificate(fields: &mut BERReaderSeq<'_, '_>) -> ASN1Result<SystemTime> {
    fields.read_optional(|version| {
        version.read_tagged(Tag::context(0), |version| version.read_u8())
    })?;
    skip(fields)?; // serialNumber
    skip(fields)?; // signature
    skip(fields)?; // issuer
    let not_after = fields.next().read_sequence(|validity| {
        skip(validity)?; // notBefore
        time(validity.next())
    })?;
    skip(fields)?; // subject
    skip(fields)?; // subjectPublicKeyInfo
    // The two unique identifiers and the extensions.
    while fields.read_optional(|field| field.read_der())?.is_some() {}
    Ok(not_after)
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
