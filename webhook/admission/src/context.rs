//! The input of a decision other than the pod's manifest and the installation's defaults.

use drainer::Token;

/// What is known about a pod apart from its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodContext<'a> {
    /// The namespace of the request; if it is `None`, the manifest's applies.
    pub namespace: Option<&'a str>,
    /// Whether the pod is known to belong to a Job. A pod that a Job owns says so itself; the template of
    /// a Job does not.
    pub in_job: bool,
    /// The token in the path of Envoy's hook: random at admission; in `inject` and `explain` derived from the
    /// document by [`token`].
    pub token: Token,
}

/// Derives a pod's token from its document, for `inject` and `explain`, so that the same document always
/// gives the same output: a token that changed with each rendering would roll the pods.
///
/// The hash is FNV-1a, which is fixed; std's hasher may change. Those who can read the document can
/// compute the token, and the output contains it. At admission it is random instead.
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
    fn token_is_fnv_1a_of_the_source() {
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
