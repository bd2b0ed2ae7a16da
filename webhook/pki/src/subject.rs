//! The subject of every CA that envoy-drainer creates, by which its CAs are recognized.

use super::x509::CertificateInfo;

/// The common name. Stored CAs sign under it, so it must never change.
pub(crate) const COMMON_NAME: &str = "envoy-drainer CA";

/// The subject, DER: one relative name with one attribute. <https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.4>
const SUBJECT: &[u8] = b"\x30\x1b\x31\x19\x30\x17\x06\x03\x55\x04\x03\x0c\x10envoy-drainer CA";

/// The longest certificate that counts as issued by us, in bytes of DER: several times the length of a real one, and
/// short enough that a Secret has room for all that it may hold.
const MAX_DER_LEN: usize = 4096;

/// Returns true for the certificate of a CA that this or another process of envoy-drainer created.
pub(crate) fn is_issued_by_us(der: &[u8], info: &CertificateInfo) -> bool {
    info.subject == SUBJECT && der.len() <= MAX_DER_LEN
}
