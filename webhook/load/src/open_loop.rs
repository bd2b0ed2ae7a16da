//! An open loop: requests at a rate that does not depend on the responses.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::failure::{Failure, FailureKind};
use crate::report::Tally;
use crate::schedule::RequestSchedule;

/// The limit of concurrent requests, more than any test needs. Requests beyond it are skipped, which lowers the rate
/// reached.
pub(super) const MAX_IN_FLIGHT: usize = 2_000;

/// The parameters of all kinds of clients.
pub(super) struct OpenLoopParams {
    pub(super) schedule: RequestSchedule,
    /// The timeout of a request.
    pub(super) request_timeout: Duration,
    pub(super) tally: Arc<Tally>,
}

/// Sends each request when it is due, until the stop; then waits for the responses.
pub(super) async fn run_open_loop<T, F>(mut params: OpenLoopParams, request: impl Fn() -> F)
where
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let mut in_flight = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            due = params.schedule.next() => match due {
                Some(()) if in_flight.len() < MAX_IN_FLIGHT => {
                    let (tally, request) = (Arc::clone(&params.tally), request());
                    let sent_at = tally.record_sent();
                    let limit = params.request_timeout;
                    in_flight.spawn(async move {
                        tally.record_result(sent_at, within(limit, request).await.map(drop));
                    });
                }
                Some(()) => {}
                None => break,
            },
            Some(_) = in_flight.join_next() => {}
        }
    }
    while in_flight.join_next().await.is_some() {}
}

/// Waits so long for the response to a request.
pub(super) async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let text = format!("no response in {limit:?}");
    let timed_out = |_| Failure::new(FailureKind::TimedOut, text);
    timeout(limit, request).await.map_err(timed_out).flatten()
}
