//! Token bucket: a rate limit that allows a burst.

use std::time::Duration;

use tokio::time::Instant;

/// The maximum number of tokens, and how long each takes to be refilled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) burst: u32,
    pub(crate) refill: Duration,
}

/// The remaining tokens, stored as the instant at which the bucket is full again.
/// <https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm>
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBucket {
    full_at: Instant,
}

// === impl TokenBucket ===

impl TokenBucket {
    pub(crate) fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Returns true if the bucket is full.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }

    /// Returns true if there is a token.
    pub(crate) fn has_token(&self, rate: Rate, now: Instant) -> bool {
        self.full_at_after_take(rate, now) <= now + rate.refill * rate.burst
    }

    /// Takes a token. The caller has checked [`Self::has_token`].
    pub(crate) fn take(&mut self, rate: Rate, now: Instant) {
        self.full_at = self.full_at_after_take(rate, now);
    }

    fn full_at_after_take(&self, rate: Rate, now: Instant) -> Instant {
        self.full_at.max(now) + rate.refill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_gives_its_burst_then_one_token_per_refill() {
        let rate = Rate {
            burst: 3,
            refill: Duration::from_secs(10),
        };
        let start = Instant::now();
        let mut bucket = TokenBucket::full(start);
        // Seconds, tokens.
        for (after, wanted) in [(0, 3), (9, 0), (10, 1), (25, 1), (30, 1), (99, 3)] {
            let now = start + Duration::from_secs(after);
            let mut taken = 0;
            while bucket.has_token(rate, now) {
                bucket.take(rate, now);
                taken += 1;
            }
            assert_eq!(taken, wanted, "after {after} s");
        }
        let full_at = start + Duration::from_secs(99 + 30);
        assert!(bucket.is_full(full_at) && !bucket.is_full(full_at - rate.refill));
    }
}
