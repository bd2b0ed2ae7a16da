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

/// Whether to log a line, and what to report before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LogDecision {
    /// Whether the line may be logged.
    pub(super) is_allowed: bool,
    /// Dropped lines to report now; 0 for none.
    pub(super) dropped: u64,
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

    /// Takes a token for one line, if there is one. Dropped lines are reported with the first line a second or
    /// more after the last report.
    pub(super) fn take(&mut self, now: Instant) -> LogDecision {
        let is_allowed = self.bucket.has_token(RATE, now);
        if is_allowed {
            self.bucket.take(RATE, now);
        }
        let mut decision = LogDecision {
            is_allowed,
            dropped: 0,
        };
        if self.dropped > 0 && now >= self.reported_at + REPORT_INTERVAL {
            decision.dropped = std::mem::take(&mut self.dropped);
            self.reported_at = now;
        }
        self.dropped += u64::from(!is_allowed);
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn allowed_lines(limit: &mut LogLimit, count: u32, now: Instant) -> usize {
        (0..count).filter(|_| limit.take(now).is_allowed).count()
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
            .map(|n| limit.take(start + n * Duration::from_millis(1)).dropped)
            .filter(|dropped| *dropped > 0)
            .collect();
        // 19 and 20 of each thousand were logged.
        assert_eq!(reports, [1_000 + 999 - 19, 1_000 - 20]);
    }

    #[test]
    fn slow_log_drops_no_line() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        for n in 0..10_000 {
            let allowed = limit.take(start + n * RATE.refill);
            assert_eq!(
                allowed,
                LogDecision {
                    is_allowed: true,
                    dropped: 0
                }
            );
        }
    }
}
