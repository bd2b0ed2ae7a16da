//! Rate limit for the log of a call to Envoy that is retried.

use std::time::Duration;

use tokio::time::Instant;

/// Envoy may just be starting for this long after the drainer's start.
const STARTUP_GRACE: Duration = Duration::from_secs(5);

/// Pause between two logs after that.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Allows a log at certain intervals.
pub(crate) struct LogLimiter {
    next_at: Instant,
    interval: Duration,
    has_logged: bool,
}

// === impl LogLimiter ===

impl LogLimiter {
    /// Allows a log from `first` on, and then each `interval`.
    pub(crate) fn new(first: Instant, interval: Duration) -> Self {
        Self {
            next_at: first,
            interval,
            has_logged: false,
        }
    }

    /// A limiter for an Envoy that may just be starting.
    pub(crate) fn for_startup() -> Self {
        Self::new(Instant::now() + STARTUP_GRACE, LOG_INTERVAL)
    }

    /// Returns true if a failure at `now` should be logged. The first one that `is_rejected` is
    /// logged at once, since a retry does not change it.
    pub(crate) fn should_log(&mut self, now: Instant, is_rejected: bool) -> bool {
        let is_due = now >= self.next_at || is_rejected && !self.has_logged;
        if is_due {
            self.has_logged = true;
            self.next_at = now + self.interval;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_spaced_except_the_first_rejection() {
        const SECOND: Duration = Duration::from_secs(1);
        let start = Instant::now();
        let mut limiter = LogLimiter::new(start + 5 * SECOND, 10 * SECOND);
        for (after, is_rejected, want) in [
            (0, false, false),
            (4, false, false),
            (4, true, true),
            (5, true, false),
            (13, false, false),
            (14, false, true),
            (15, true, false),
        ] {
            let got = limiter.should_log(start + after * SECOND, is_rejected);
            assert_eq!(got, want, "{after} s, {is_rejected}");
        }
    }
}
