//! Waiting for something to become true.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{sleep, timeout};

/// Between two looks: short against all that tests measure.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until `holds` returns true.
///
/// # Errors
/// When it does not within `limit`, naming `what`, or when `holds` fails.
pub async fn wait_until<F>(what: &str, limit: Duration, holds: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    wait_until_every(POLL_INTERVAL, what, limit, holds).await
}

/// The same, with another `pause` between two looks.
///
/// # Errors
/// As [`until`].
pub async fn wait_until_every<F>(
    pause: Duration,
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> F,
) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let waiting = async {
        while !holds().await? {
            sleep(pause).await;
        }
        Ok(())
    };
    timeout(limit, waiting)
        .await
        .map_err(|_| anyhow!("not within {limit:?}: {what}"))
        .flatten()
}
