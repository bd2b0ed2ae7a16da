//! When requests are due.

use std::time::Duration;

use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Tells clients when no more are to be sent.
#[derive(Debug, Clone)]
pub(super) struct StopSignal(watch::Receiver<Option<Instant>>);

/// Requests at a steady rate. Those that the machine was late for are due at once, also those before
/// the end.
#[derive(Debug)]
pub(super) struct RequestSchedule {
    next_at: Instant,
    interval: Duration,
    stop: StopSignal,
    stopped_at: Option<Instant>,
}

/// A way to tell, and what it is told to.
pub(super) fn stop_channel() -> (watch::Sender<Option<Instant>>, StopSignal) {
    let (tell, told) = watch::channel(None);
    (tell, StopSignal(told))
}

// === impl Stop ===

impl StopSignal {
    /// Waits until no more are to be sent, and returns since when.
    pub(super) async fn stopped(&mut self) -> Instant {
        let told = self.0.wait_for(Option::is_some).await;
        told.ok().and_then(|at| *at).unwrap_or_else(Instant::now)
    }
}

// === impl Pace ===

impl RequestSchedule {
    /// So many a second, the first of them now.
    pub(super) fn new(rate: f64, stop: StopSignal) -> Self {
        Self {
            next_at: Instant::now(),
            interval: Duration::from_secs_f64(rate.recip()),
            stop,
            stopped_at: None,
        }
    }

    /// Waits until the next is due; `None` if no more are to be sent. Nothing is lost when this is
    /// dropped before.
    pub(super) async fn next(&mut self) -> Option<()> {
        if self.stopped_at.is_none() {
            select! {
                biased;
                () = sleep_until(self.next_at) => {}
                end = self.stop.stopped() => self.stopped_at = Some(end),
            }
        }
        if self.stopped_at.is_some_and(|end| self.next_at >= end) {
            return None;
        }
        self.next_at += self.interval;
        Some(())
    }
}
