//! Requests at a rate that no answer can slow down.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::failure::{Failure, FailureKind};
use super::pace::{RequestSchedule, StopSignal};
use super::report::Tally;

/// More than any test has under way at once; beyond it requests are left out, which shows in the
/// rate reached.
pub(super) const MAX_IN_FLIGHT: usize = 2_000;

/// What all clients need to know.
pub(super) struct OpenLoopParams {
    /// Requests a second.
    pub(super) rate: f64,
    /// How long a request may take.
    pub(super) request_timeout: Duration,
    pub(super) tally: Arc<Tally>,
    pub(super) stop: StopSignal,
}

/// Sends each request when it is due, until it is stopped; then waits for the answers.
pub(super) async fn run_open_loop<F>(clients: OpenLoopParams, request: impl Fn() -> F)
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let OpenLoopParams {
        rate,
        request_timeout: limit,
        tally,
        stop,
    } = clients;
    let mut in_flight = JoinSet::new();
    let mut pace = RequestSchedule::new(rate, stop);
    loop {
        tokio::select! {
            biased;
            due = pace.next() => match due {
                Some(()) if in_flight.len() < MAX_IN_FLIGHT => {
                    let (tally, request) = (Arc::clone(&tally), request());
                    tally.record_sent();
                    in_flight.spawn(async move { tally.record_result(with_timeout(limit, request).await) });
                }
                Some(()) => {}
                None => break,
            },
            Some(_) = in_flight.join_next() => {}
        }
    }
    while in_flight.join_next().await.is_some() {}
}

/// Waits for a request as long as one may take.
pub(super) async fn with_timeout(
    limit: Duration,
    request: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let late = |_| Failure::new(FailureKind::TimedOut, format!("no answer in {limit:?}"));
    timeout(limit, request).await.map_err(late).flatten()
}
