//! Digests, as short keys for what clients send.

use ring::digest::{SHA256, digest};

/// The first bytes of the SHA-256 digest of a text, which may be a secret, or of any length. At most 32.
pub(super) fn sha256<const N: usize>(text: &str) -> [u8; N] {
    let digest = digest(&SHA256, text.as_bytes());
    *digest.as_ref().first_chunk().expect("it has 32 bytes")
}
