//! When requests are due.

use std::time::Duration;

use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Tells clients when no more are to be sent.
#[derive(Debug, Clone)]
pub(super) struct Stop(watch::Receiver<Option<Instant>>);

/// Requests at a steady rate. Those that the machine was late for are due at once, also those before
/// the end.
#[derive(Debug)]
pub(super) struct Pace {
    due: Instant,
    pause: Duration,
    stop: Stop,
    end: Option<Instant>,
}

/// A way to tell, and what it is told to.
pub(super) fn stop() -> (watch::Sender<Option<Instant>>, Stop) {
    let (tell, told) = watch::channel(None);
    (tell, Stop(told))
}

// === impl Stop ===

impl Stop {
    /// Waits until no more are to be sent, and returns since when.
    pub(super) async fn told(&mut self) -> Instant {
        let told = self.0.wait_for(Option::is_some).await;
        told.ok().and_then(|at| *at).unwrap_or_else(Instant::now)
    }
}

// === impl Pace ===

impl Pace {
    /// So many a second, the first of them now.
    pub(super) fn new(rate: f64, stop: Stop) -> Self {
        Self {
            due: Instant::now(),
            pause: Duration::from_secs_f64(rate.recip()),
            stop,
            end: None,
        }
    }

    /// Waits until the next is due; `None` if no more are to be sent. Nothing is lost when this is
    /// dropped before.
    pub(super) async fn next(&mut self) -> Option<()> {
        if self.end.is_none() {
            select! {
                biased;
                () = sleep_until(self.due) => {}
                end = self.stop.told() => self.end = Some(end),
            }
        }
        if self.end.is_some_and(|end| self.due >= end) {
            return None;
        }
        self.due += self.pause;
        Some(())
    }
}
