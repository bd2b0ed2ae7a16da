//! The schedule of requests at a constant rate.

use std::time::Duration;

use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Longer than any load runs.
const NEVER: Duration = Duration::from_hours(10_000);

/// A constant rate of requests. Those that the machine has delayed are due at once, also after the stop.
#[derive(Debug)]
pub(super) struct RequestSchedule {
    next_at: Instant,
    interval: Duration,
    /// Gets the time at which the load is stopped.
    stop: watch::Receiver<Option<Instant>>,
}

// === impl RequestSchedule ===

impl RequestSchedule {
    /// Starts with a request now; `rate` is in requests per second. At a rate of zero, no other is due.
    pub(super) fn new(rate: f64, stop: watch::Receiver<Option<Instant>>) -> Self {
        Self {
            next_at: Instant::now(),
            interval: Duration::try_from_secs_f64(rate.recip()).unwrap_or(NEVER),
            stop,
        }
    }

    /// Waits until the next request is due; `None` after the stop. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<()> {
        if self.stop.borrow().is_none() {
            select! {
                biased;
                () = sleep_until(self.next_at) => {}
                _ = self.stop.wait_for(Option::is_some) => {}
            }
        }
        let end = *self.stop.borrow();
        if end.is_some_and(|end| self.next_at >= end) {
            return None;
        }
        self.next_at += self.interval;
        Some(())
    }

    /// Lets the next request be due in this time from now.
    pub(super) fn postpone(&mut self, time: Duration) {
        self.next_at = Instant::now() + time;
    }
}
