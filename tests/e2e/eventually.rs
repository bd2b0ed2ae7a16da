//! Waiting for something in the cluster to become true.

use std::time::Duration;

use anyhow::Result;
use tests::until::wait_until_every;

/// Longer than any drain lasts here, and all that Kubernetes does around it.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Between two looks: each is a process, and must leave the machine to what is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits until `holds` returns true.
///
/// # Errors
/// When it does not, naming `what`, or when `holds` fails.
pub(crate) async fn eventually<F>(what: &str, holds: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    wait_until_every(POLL_INTERVAL, what, TIMEOUT, holds).await
}
