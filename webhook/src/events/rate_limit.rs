//! Limits how many Events this replica creates: reviews may be forged by any pod of the cluster, so their number is
//! bounded in each namespace and in total.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::token_bucket::{Rate, TokenBucket};

/// Rate in one namespace: that of client-go's `EventSourceObjectSpamFilter` for one object.
/// <https://github.com/kubernetes/client-go/blob/master/tools/record/events_cache.go>
const NAMESPACE_RATE: Rate = Rate {
    burst: 25,
    refill: Duration::from_secs(5 * 60),
};

/// Rate in all namespaces: more than the rollout of many workloads at once needs. The API server keeps an Event for
/// an hour.
const TOTAL_RATE: Rate = Rate {
    burst: 100,
    refill: Duration::from_secs(60),
};

/// The token buckets of new Events.
#[derive(Debug)]
pub(super) struct EventLimit {
    total: TokenBucket,
    /// Buckets that are not full, which [`TOTAL_RATE`] limits to about 225.
    namespaces: BTreeMap<String, TokenBucket>,
}

// === impl EventLimit ===

impl EventLimit {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            total: TokenBucket::full(now),
            namespaces: BTreeMap::new(),
        }
    }

    /// Takes a token for a new Event in this namespace; returns false if there is none.
    pub(super) fn allow(&mut self, namespace: &str, now: Instant) -> bool {
        self.namespaces.retain(|_, bucket| !bucket.is_full(now));
        let known = self.namespaces.get(namespace).copied();
        let mut bucket = known.unwrap_or(TokenBucket::full(now));
        if !bucket.has_token(NAMESPACE_RATE, now) || !self.total.has_token(TOTAL_RATE, now) {
            return false;
        }
        bucket.take(NAMESPACE_RATE, now);
        self.total.take(TOTAL_RATE, now);
        self.namespaces.insert(namespace.to_owned(), bucket);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn namespace_limit_is_25_then_one_in_five_minutes() {
        let start = Instant::now();
        let mut limit = EventLimit::new(start);
        for (minutes, wanted) in [(0, 25), (4, 0), (5, 1), (15, 2), (600, 25)] {
            let now = start + MINUTE * minutes;
            let allowed = (0..99).filter(|_| limit.allow("shop", now)).count();
            assert_eq!(allowed, wanted, "after {minutes} min");
            assert!(limit.allow("other", now), "after {minutes} min");
        }
    }

    #[test]
    fn total_limit_is_100_then_one_a_minute() {
        let start = Instant::now();
        let mut limit = EventLimit::new(start);
        let mut known = 0;
        for minute in 0..600 {
            let now = start + MINUTE * minute;
            let each = (0..200).map(|number| format!("{minute}-{number}"));
            let allowed = each.filter(|name| limit.allow(name, now)).count();
            assert_eq!(
                allowed,
                if minute == 0 { 100 } else { 1 },
                "minute {minute}"
            );
            known = known.max(limit.namespaces.len());
        }
        assert_eq!(known, 104);
    }
}
