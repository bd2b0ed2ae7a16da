//! Rate limit for the log of a call to Envoy that is retried.

use std::time::Duration;

use tokio::time::Instant;

/// Allows a log at once, and then one each interval.
pub(crate) struct LogLimiter {
    next_at: Instant,
    interval: Duration,
}

// === impl LogLimiter ===

impl LogLimiter {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            next_at: Instant::now(),
            interval,
        }
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
        let start = Instant::now();
        let mut limiter = LogLimiter::new(Duration::from_secs(10));
        let second = |after| start + Duration::from_secs(after);
        let logged = (1..30).filter(|after| limiter.should_log(second(*after)));
        assert_eq!(logged.collect::<Vec<_>>(), [1, 11, 21]);
    }
}
