//! Rate limit of log lines.

use std::time::Duration;

use tokio::time::Instant;

use crate::token_bucket::{Rate, TokenBucket};

/// A burst for more pods than a cluster creates in a second, then 20 lines a second.
const RATE: Rate = Rate {
    burst: 200,
    refill: Duration::from_millis(50),
};

/// How often dropped lines are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A token bucket for log lines: thousands of forged reviews are answered in a second, and a line for each would
/// fill the node's disk.
#[derive(Debug)]
pub(super) struct LogLimit {
    bucket: TokenBucket,
    dropped: u64,
    reported_at: Instant,
}

// === impl LogLimit ===

impl LogLimit {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            bucket: TokenBucket::full(now),
            dropped: 0,
            reported_at: now,
        }
    }

    /// Takes a token for one line, or counts the line as dropped; returns true if the line may be logged.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let is_allowed = self.bucket.has_token(RATE, now);
        match is_allowed {
            true => self.bucket.take(RATE, now),
            false => self.dropped += 1,
        }
        is_allowed
    }

    /// Returns how many lines were dropped, if there are any, and none were reported in the last second.
    pub(super) fn report(&mut self, now: Instant) -> Option<u64> {
        let is_due = self.dropped > 0 && now >= self.reported_at + REPORT_INTERVAL;
        is_due.then(|| {
            self.reported_at = now;
            std::mem::take(&mut self.dropped)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn allowed_lines(limit: &mut LogLimit, count: u32, now: Instant) -> usize {
        (0..count).filter(|_| limit.take(now)).count()
    }

    #[test]
    fn flood_gets_a_burst_then_the_rate() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        assert_eq!(allowed_lines(&mut limit, 21_000, start), 200);
        assert_eq!(allowed_lines(&mut limit, 21_000, start + SECOND), 20);
        assert_eq!(allowed_lines(&mut limit, 21_000, start + 3 * SECOND), 40);
        // However long the pause, no more than a burst.
        assert_eq!(
            allowed_lines(&mut limit, 21_000, start + 3_600 * SECOND),
            200
        );
    }

    #[test]
    fn dropped_lines_are_reported_each_second() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        allowed_lines(&mut limit, 1_200, start);
        let reports: Vec<_> = (1..=2_000)
            .filter_map(|n| {
                let now = start + n * Duration::from_millis(1);
                let dropped = limit.report(now);
                limit.take(now);
                dropped
            })
            .collect();
        // 19 and 20 of each thousand were logged.
        assert_eq!(reports, [1_000 + 999 - 19, 1_000 - 20]);
    }

    #[test]
    fn slow_log_drops_no_line() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        for n in 0..10_000 {
            let now = start + n * RATE.refill;
            assert_eq!((limit.report(now), limit.take(now)), (None, true));
        }
    }
}
