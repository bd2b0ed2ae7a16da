//! Waits for a condition in the cluster.

use std::time::Duration;

use anyhow::Result;
use tests::until::wait_until_every;

/// Longer than any drain here with all that Kubernetes does before and after it.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The interval between two polls. Each starts a process, which must not distort what is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits until `holds` returns true.
///
/// # Errors
/// If it does not within [`TIMEOUT`], naming `what`, or if `holds` fails.
pub(crate) async fn eventually<F>(what: &str, holds: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    wait_until_every(POLL_INTERVAL, what, TIMEOUT, holds).await
}
