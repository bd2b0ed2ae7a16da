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
}

// === impl LogLimiter ===

impl LogLimiter {
    /// Allows a log from `first` on, and then each `interval`.
    pub(crate) fn new(first: Instant, interval: Duration) -> Self {
        Self {
            next_at: first,
            interval,
        }
    }

    /// A limiter for an Envoy that may just be starting.
    pub(crate) fn for_startup() -> Self {
        Self::new(Instant::now() + STARTUP_GRACE, LOG_INTERVAL)
    }

    /// Returns true if a failure at `now` should be logged.
    pub(crate) fn should_log(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_at;
        if is_due {
            self.next_at = now + self.interval;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_spaced() {
        const SECOND: Duration = Duration::from_secs(1);
        let start = Instant::now();
        let mut limiter = LogLimiter::new(start + 5 * SECOND, 10 * SECOND);
        let logged = (0..30).filter(|after| limiter.should_log(start + *after * SECOND));
        assert_eq!(logged.collect::<Vec<_>>(), [5, 15, 25]);
    }
}
