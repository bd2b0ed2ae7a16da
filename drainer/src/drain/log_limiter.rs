//! When to complain of an Envoy that does not answer: what is asked again and again is not said each
//! time.

use std::time::Duration;

use tokio::time::Instant;

/// An Envoy that has not answered for so long after the drainer's start is not just starting.
const STARTUP_GRACE: Duration = Duration::from_secs(5);

/// How often it is then said again.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct LogLimiter {
    next_at: Instant,
    interval: Duration,
    has_logged: bool,
}

// === impl LogLimiter ===

impl LogLimiter {
    /// The first is due at `first`, the others so long after each other.
    pub(super) fn new(first: Instant, interval: Duration) -> Self {
        Self {
            next_at: first,
            interval,
            has_logged: false,
        }
    }

    /// Those of an Envoy that may just be starting.
    pub(super) fn for_startup() -> Self {
        Self::new(Instant::now() + STARTUP_GRACE, LOG_INTERVAL)
    }

    /// Returns true if one is to be made now: when it is time, or at once if Envoy `answered` that it
    /// will not.
    pub(super) fn should_log(&mut self, now: Instant, is_rejected: bool) -> bool {
        let due = now >= self.next_at || is_rejected && !self.has_logged;
        if due {
            self.has_logged = true;
            self.next_at = now + self.interval;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_wait_for_their_time_or_for_an_answer_and_keep_their_distance() {
        const SECOND: Duration = Duration::from_secs(1);
        let start = Instant::now();
        let mut complaints = LogLimiter::new(start + 5 * SECOND, 10 * SECOND);
        for (after, answered, wanted) in [
            (0, false, false),
            (4, false, false),
            (4, true, true),
            (5, true, false),
            (13, false, false),
            (14, false, true),
            (15, true, false),
        ] {
            let due = complaints.should_log(start + after * SECOND, answered);
            assert_eq!(due, wanted, "{after} s, {answered}");
        }
    }
}
