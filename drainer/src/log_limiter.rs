//! Rate limit for the log of a call to Envoy that is retried.

use std::time::Duration;

use tokio::time::Instant;

/// Allows a log at once, and then one each interval.
#[derive(Default)]
pub(crate) struct LogLimiter {
    last: Option<Instant>,
}

// === impl LogLimiter ===

impl LogLimiter {
    /// Returns true if a failure now should be logged.
    pub(crate) fn should_log(&mut self, interval: Duration) -> bool {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= interval);
        if is_due {
            self.last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn logs_are_spaced() {
        let mut limiter = LogLimiter::default();
        let mut logged = Vec::new();
        for second in 1..30 {
            advance(Duration::from_secs(1)).await;
            if limiter.should_log(Duration::from_secs(10)) {
                logged.push(second);
            }
        }
        assert_eq!(logged, [1, 11, 21]);
    }
}
