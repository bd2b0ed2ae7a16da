//! Requests at a rate that no answer can slow down.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::failure::{Failure, FailureKind};
use super::report::Tally;

/// More than any test has under way at once; beyond it requests are left out, which shows in the
/// rate reached.
pub(super) const MAX_IN_FLIGHT: usize = 2_000;

/// What all clients need to know.
pub(super) struct OpenLoop {
    /// Requests a second.
    pub(super) rate: f64,
    /// How long a request may take.
    pub(super) limit: Duration,
    pub(super) tally: Arc<Tally>,
    /// Whether no more are to be sent.
    pub(super) stopped: watch::Receiver<bool>,
}

/// Sends a request at each tick, late ones at once, until it is stopped; then waits for the answers.
pub(super) async fn open_loop<F>(clients: OpenLoop, request: impl Fn() -> F)
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let OpenLoop {
        rate,
        limit,
        tally,
        mut stopped,
    } = clients;
    let mut in_flight = JoinSet::new();
    let mut tick = interval(Duration::from_secs_f64(rate.recip()));
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            _ = tick.tick() => if in_flight.len() < MAX_IN_FLIGHT {
                let (tally, request) = (Arc::clone(&tally), request());
                tally.sent();
                in_flight.spawn(async move { tally.ended(within(limit, request).await) });
            },
            Some(_) = in_flight.join_next() => {}
        }
    }
    while in_flight.join_next().await.is_some() {}
}

/// Waits for a request as long as one may take.
pub(super) async fn within(
    limit: Duration,
    request: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let late = |_| Failure::new(FailureKind::TimedOut, format!("no answer in {limit:?}"));
    timeout(limit, request).await.map_err(late).flatten()
}
