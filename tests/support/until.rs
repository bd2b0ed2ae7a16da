//! Waits until a condition holds.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{sleep, timeout};

/// The interval between two polls, short compared to everything that tests measure.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls `condition` until it returns true.
///
/// # Errors
/// When it does not within `limit`, with its `name`, or when `condition` fails.
pub async fn wait_until<F>(name: &str, limit: Duration, condition: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    wait_until_every(POLL_INTERVAL, name, limit, condition).await
}

/// Polls `condition` at this interval until it returns true.
///
/// # Errors
/// As [`wait_until`].
pub async fn wait_until_every<F>(
    interval: Duration,
    name: &str,
    limit: Duration,
    mut condition: impl FnMut() -> F,
) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let poll = async {
        while !condition().await? {
            sleep(interval).await;
        }
        Ok(())
    };
    timeout(limit, poll)
        .await
        .map_err(|_| anyhow!("timed out after {limit:?}: {name}"))
        .flatten()
}
