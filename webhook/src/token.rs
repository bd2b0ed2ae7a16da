//! Generates the tokens of drainers from the system's random source, so that nothing published or logged predicts one.

use drainer::Token;
use rustls::crypto::{SecureRandom, ring};

/// Generates tokens of 64 random bits.
#[derive(Debug, Clone, Copy)]
pub struct TokenGenerator(&'static dyn SecureRandom);

// === impl TokenGenerator ===

impl TokenGenerator {
    /// Generates an unpredictable token.
    ///
    /// # Panics
    /// If the system's random source fails, which Linux's does not after boot.
    pub fn generate(&self) -> Token {
        let mut bytes = [0; 8];
        self.0
            .fill(&mut bytes)
            .expect("the system has a random source");
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
    fn tokens_are_distinct() {
        let tokens = TokenGenerator::default();
        assert_ne!(tokens.generate(), tokens.generate());
    }
}
