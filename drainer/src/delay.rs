//! What is waited for before the drain starts, while Envoy is still a healthy endpoint.

use tokio::time::{Instant, sleep_until};

use crate::timing::Timing;

/// Waits out the drain delay of a pod's end that began at `since`: for load balancers that go on
/// sending new connections to an endpoint long after it is gone.
pub(crate) async fn wait_for_drain_delay(timing: Timing, since: Instant) {
    sleep_until(since + timing.drain_delay).await;
}
