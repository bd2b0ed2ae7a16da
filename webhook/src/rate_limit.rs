//! Limits of what any pod of the cluster can cause: a token bucket for each key, and one for all.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
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
struct TokenBucket {
    full_at: Instant,
}

/// Token buckets: one for each key, and one for all.
#[derive(Debug)]
pub(crate) struct RateLimit<K> {
    by_key: Rate,
    in_total: Rate,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    total: TokenBucket,
    /// Buckets that were not full when they were last pruned, whose number the total rate bounds.
    by_key: BTreeMap<K, TokenBucket>,
}

/// Minimum number of buckets at which they are pruned.
const MIN_PRUNED: usize = 64;

// === impl Rate ===

impl Rate {
    /// `burst` tokens at most, each of which takes `refill` to be refilled.
    pub(crate) const fn new(burst: u32, refill: Duration) -> Self {
        Self { burst, refill }
    }
}

// === impl TokenBucket ===

impl TokenBucket {
    fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    fn is_full(self, now: Instant) -> bool {
        self.full_at <= now
    }

    /// Takes a token; returns false if there is none.
    fn try_take(&mut self, rate: Rate, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + rate.refill;
        let has_token = full_at <= now + rate.refill * rate.burst;
        if has_token {
            self.full_at = full_at;
        }
        has_token
    }
}

// === impl RateLimit ===

impl<K: Ord + Clone> RateLimit<K> {
    /// Full buckets of these rates.
    pub(crate) fn new(by_key: Rate, in_total: Rate, now: Instant) -> Self {
        Self {
            by_key,
            in_total,
            buckets: Mutex::new(Buckets {
                total: TokenBucket::full(now),
                by_key: BTreeMap::new(),
            }),
        }
    }

    /// Takes a token of this key, and one of all keys; returns false, and takes none, if either is missing.
    pub(crate) fn try_take(&self, key: &K, now: Instant) -> bool {
        let mut buckets = self.buckets.lock();
        let known = buckets.by_key.get(key).copied();
        let mut bucket = known.unwrap_or(TokenBucket::full(now));
        if !bucket.try_take(self.by_key, now) || !buckets.total.try_take(self.in_total, now) {
            return false;
        }
        // At each doubling, so that its cost is shared by as many calls.
        let count = buckets.by_key.len();
        if known.is_none() && count >= MIN_PRUNED && count.is_power_of_two() {
            buckets.by_key.retain(|_, bucket| !bucket.is_full(now));
        }
        buckets.by_key.insert(key.clone(), bucket);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    /// As that of admissions.
    const LOG_RATE: Rate = Rate::new(200, Duration::from_millis(50));

    fn limit(start: Instant) -> RateLimit<String> {
        let rate = |burst, minutes| Rate {
            burst,
            refill: MINUTE * minutes,
        };
        RateLimit::new(rate(25, 5), rate(100, 1), start)
    }

    #[test]
    fn bucket_gives_its_burst_then_one_token_per_refill() {
        let rate = Rate {
            burst: 3,
            refill: 10 * SECOND,
        };
        let start = Instant::now();
        let mut bucket = TokenBucket::full(start);
        // Seconds, tokens.
        for (after, wanted) in [(0, 3), (9, 0), (10, 1), (25, 1), (30, 1), (99, 3)] {
            let now = start + SECOND * after;
            let taken = (0..99).filter(|_| bucket.try_take(rate, now));
            assert_eq!(taken.count(), wanted, "after {after} s");
        }
        let full_at = start + SECOND * (99 + 30);
        assert!(bucket.is_full(full_at) && !bucket.is_full(full_at - rate.refill));
    }

    #[test]
    fn key_gets_its_burst_then_its_rate() {
        let start = Instant::now();
        let limit = limit(start);
        for (minutes, wanted) in [(0, 25), (4, 0), (5, 1), (15, 2), (600, 25)] {
            let now = start + MINUTE * minutes;
            let taken = (0..99).filter(|_| limit.try_take(&"shop".to_owned(), now));
            assert_eq!(taken.count(), wanted, "after {minutes} min");
            let other = limit.try_take(&"other".to_owned(), now);
            assert!(other, "after {minutes} min");
        }
    }

    #[test]
    fn all_keys_share_the_total() {
        let start = Instant::now();
        let limit = limit(start);
        let mut known = 0;
        for minute in 0..600 {
            let now = start + MINUTE * minute;
            let each = (0..200).map(|number| format!("{minute}-{number}"));
            let taken = each.filter(|name| limit.try_take(name, now)).count();
            let wanted = if minute == 0 { 100 } else { 1 };
            assert_eq!(taken, wanted, "minute {minute}");
            known = known.max(limit.buckets.lock().by_key.len());
        }
        assert!(known <= 128, "{known}");
    }

    #[test]
    fn flood_of_lines_gets_a_burst_then_the_rate() {
        let start = Instant::now();
        let limit = RateLimit::<()>::new(LOG_RATE, LOG_RATE, start);
        // However long the pause, no more than a burst.
        for (seconds, wanted) in [(0, 200), (1, 20), (3, 40), (3_600, 200)] {
            let now = start + SECOND * seconds;
            let logged = (0..21_000).filter(|_| limit.try_take(&(), now));
            assert_eq!(logged.count(), wanted, "after {seconds} s");
        }
    }

    #[test]
    fn slow_log_drops_no_line() {
        let start = Instant::now();
        let limit = RateLimit::<()>::new(LOG_RATE, LOG_RATE, start);
        for n in 0..10_000 {
            assert!(limit.try_take(&(), start + n * LOG_RATE.refill));
        }
    }
}
