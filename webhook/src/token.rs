//! Generates the tokens of drainers from the system's random source, so that nothing published or logged predicts one.

use drainer::Token;
use rustls::crypto::ring;

/// Returns a generator of unpredictable tokens of 64 random bits.
///
/// # Panics
/// The generator panics if the system's random source fails, which Linux's does not after boot.
pub fn token_generator() -> impl Fn() -> Token {
    let source = ring::default_provider().secure_random;
    move || {
        let mut bytes = [0; 8];
        source
            .fill(&mut bytes)
            .expect("the system has a random source");
        Token(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_distinct() {
        let generate = token_generator();
        assert_ne!(generate(), generate());
    }
}
