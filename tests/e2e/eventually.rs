//! Waiting for something in the cluster to become true.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{sleep, timeout};

/// Longer than any drain lasts here, and all that Kubernetes does around it.
const LIMIT: Duration = Duration::from_secs(180);

/// Between two looks: each is a process, and must leave the machine to what is measured.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until `holds` returns true.
///
/// # Errors
/// When it does not, naming `what`, or when `holds` fails.
pub(crate) async fn eventually<F>(what: &str, mut holds: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let waiting = async {
        while !holds().await? {
            sleep(PAUSE).await;
        }
        Ok(())
    };
    timeout(LIMIT, waiting)
        .await
        .map_err(|_| anyhow!("not within {LIMIT:?}: {what}"))
        .flatten()
}
