//! The token that ties a pod's hooks to its drainer.

use drainer::Token;

/// Makes the token of a pod: at admission from the request's uid, which is random; offline from the
/// document, so that the same document always becomes the same.
///
/// FNV-1a, which spreads a random uid's 122 bits well over 64 and never changes, as std's hasher may.
/// The token guards against mistakes and strangers of the network, not against readers of the pod:
/// whoever can read the pod reads it in the hook's path.
#[must_use]
pub fn token(source: &[u8]) -> Token {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    Token::new(source.iter().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // http://www.isthe.com/chongo/tech/comp/fnv/, test vectors
        for (source, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(token(source.as_bytes()), Token::new(hash), "{source}");
        }
    }
}
