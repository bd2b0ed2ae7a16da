//! How many lines a second the log gets.

use std::time::Duration;

use tokio::time::Instant;

use crate::token_bucket::{Rate, TokenBucket};

/// The lines of more pods than a cluster creates in a second, then 20 lines a second.
const RATE: Rate = Rate {
    burst: 200,
    refill: Duration::from_millis(50),
};

/// How often the lines that were not logged are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A token bucket for log lines: a client that forges reviews has thousands answered in a second, and a
/// line for each would fill a node's disk.
#[derive(Debug)]
pub(super) struct LogLimit {
    bucket: TokenBucket,
    dropped: u64,
    reported_at: Instant,
}

/// What to log now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LogDecision {
    /// The line itself.
    pub(super) is_allowed: bool,
    /// That so many lines before it were not logged, if any.
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

    /// Takes a token for one line, if there is one. Dropped lines are reported with the first line
    /// that comes a second or more after the last report.
    pub(super) fn take(&mut self, now: Instant) -> LogDecision {
        let line = self.bucket.has_token(RATE, now);
        if line {
            self.bucket.take(RATE, now);
        }
        let mut allowed = LogDecision {
            is_allowed: line,
            dropped: 0,
        };
        if self.dropped > 0 && now >= self.reported_at + REPORT_INTERVAL {
            allowed.dropped = std::mem::take(&mut self.dropped);
            self.reported_at = now;
        }
        self.dropped += u64::from(!line);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lines(limit: &mut LogLimit, many: u32, now: Instant) -> usize {
        (0..many).filter(|_| limit.take(now).is_allowed).count()
    }

    #[test]
    fn a_flood_gets_a_burst_and_then_its_rate() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        assert_eq!(lines(&mut limit, 21_000, start), 200);
        assert_eq!(lines(&mut limit, 21_000, start + SECOND), 20);
        assert_eq!(lines(&mut limit, 21_000, start + 3 * SECOND), 40);
        // No pause saves more than a burst.
        assert_eq!(lines(&mut limit, 21_000, start + 3_600 * SECOND), 200);
    }

    #[test]
    fn dropped_lines_are_reported_each_second() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        lines(&mut limit, 1_200, start);
        let reports: Vec<_> = (1..=2_000)
            .map(|n| limit.take(start + n * Duration::from_millis(1)).dropped)
            .filter(|dropped| *dropped > 0)
            .collect();
        // 19 and 20 of each thousand were logged.
        assert_eq!(reports, [1_000 + 999 - 19, 1_000 - 20]);
    }

    #[test]
    fn a_slow_log_is_whole() {
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
