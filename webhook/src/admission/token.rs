//! The token that ties a pod's hooks to its drainer, where there is no admission: offline.

use drainer::Token;

/// Makes the token of a pod from its document, so that the same document always becomes the same: a
/// token that changed with each rendering would roll the pods.
///
/// FNV-1a, which never changes, as std's hasher may. It is no secret to readers of the document, who
/// can compute it, or of what it becomes, where it is in the hook's path. At admission the token comes
/// from the system's randomness instead.
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
