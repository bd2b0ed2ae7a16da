//! Rate limit by key and in total, for what any pod of the cluster can cause.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::token_bucket::{Rate, TokenBucket};

/// Token buckets: one for each key, and one for all.
#[derive(Debug)]
pub(crate) struct RateLimit<K> {
    by_key: Rate,
    in_total: Rate,
    total: TokenBucket,
    /// Buckets that were not full when they were last pruned, whose number the total rate bounds.
    buckets: BTreeMap<K, TokenBucket>,
    /// The number of buckets at which they are pruned.
    prune_at: usize,
}

/// Minimum number of buckets at which they are pruned.
const MIN_PRUNED: usize = 64;

// === impl RateLimit ===

impl<K: Ord + Clone> RateLimit<K> {
    /// Full buckets of these rates.
    pub(crate) fn new(by_key: Rate, in_total: Rate, now: Instant) -> Self {
        Self {
            by_key,
            in_total,
            total: TokenBucket::full(now),
            buckets: BTreeMap::new(),
            prune_at: MIN_PRUNED,
        }
    }

    /// Takes a token of this key, and one of all keys; returns false, and takes none, if either is missing.
    pub(crate) fn allow(&mut self, key: &K, now: Instant) -> bool {
        let known = self.buckets.get(key).copied();
        let mut bucket = known.unwrap_or(TokenBucket::full(now));
        if !bucket.has_token(self.by_key, now) || !self.total.has_token(self.in_total, now) {
            return false;
        }
        bucket.take(self.by_key, now);
        self.total.take(self.in_total, now);
        if known.is_none() && self.buckets.len() >= self.prune_at {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
            self.prune_at = MIN_PRUNED.max(2 * self.buckets.len());
        }
        self.buckets.insert(key.clone(), bucket);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn limit(start: Instant) -> RateLimit<String> {
        let rate = |burst, minutes| Rate {
            burst,
            refill: MINUTE * minutes,
        };
        RateLimit::new(rate(25, 5), rate(100, 1), start)
    }

    #[test]
    fn key_gets_its_burst_then_its_rate() {
        let start = Instant::now();
        let mut limit = limit(start);
        for (minutes, wanted) in [(0, 25), (4, 0), (5, 1), (15, 2), (600, 25)] {
            let now = start + MINUTE * minutes;
            let allowed = (0..99).filter(|_| limit.allow(&"shop".to_owned(), now));
            assert_eq!(allowed.count(), wanted, "after {minutes} min");
            let other = limit.allow(&"other".to_owned(), now);
            assert!(other, "after {minutes} min");
        }
    }

    #[test]
    fn all_keys_share_the_total() {
        let start = Instant::now();
        let mut limit = limit(start);
        let mut known = 0;
        for minute in 0..600 {
            let now = start + MINUTE * minute;
            let each = (0..200).map(|number| format!("{minute}-{number}"));
            let allowed = each.filter(|name| limit.allow(name, now)).count();
            let wanted = if minute == 0 { 100 } else { 1 };
            assert_eq!(allowed, wanted, "minute {minute}");
            known = known.max(limit.buckets.len());
        }
        assert!(known <= 128, "{known}");
    }
}
