//! Tokens of admitted pods, from the system's randomness: nothing that is published or logged leads to one.

use drainer::Token;
use rustls::crypto::{SecureRandom, ring};

/// Makes tokens, each of 64 random bits.
#[derive(Debug, Clone, Copy)]
pub struct TokenGenerator(&'static dyn SecureRandom);

// === impl TokenGenerator ===

impl TokenGenerator {
    /// A token that nobody can guess.
    ///
    /// # Panics
    /// If the system has no randomness, which Linux has from its start on.
    #[must_use]
    pub fn generate(&self) -> Token {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes).expect("the system has randomness");
        Token::new(u64::from_ne_bytes(bytes))
    }
}

impl Default for TokenGenerator {
    fn default() -> Self {
        Self(ring::default_provider().secure_random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tokens_are_the_same() {
        let tokens = TokenGenerator::default();
        assert_ne!(tokens.generate(), tokens.generate());
    }
}
