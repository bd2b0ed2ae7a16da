//! `drainer drain`: the drainer's own preStop hook, which follows the drain to its end.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::{Method, StatusCode};
use tokio::time::sleep;

use crate::admin_address::AdminAddress;
use crate::config::socket_in;
use crate::http::client::{CallError, CallLimits, Client};
use crate::server::DRAIN_PATH;

/// How often, and how long apart, a drainer is looked for that is just being restarted.
const MAX_ATTEMPTS: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Tells the drainer in this container that its hook has come, and waits until it may return: for
/// as long as the drainer lives, which has deadlines for all it does.
///
/// # Errors
/// If there is no drainer, or if it dies before it has answered.
pub async fn drain(run_dir: &Path) -> anyhow::Result<()> {
    let bounds = CallLimits {
        timeout: None,
        max_body: 1024,
    };
    let mut client = Client::new(AdminAddress::Path(socket_in(run_dir)));
    let mut tries = 1;
    let answer = loop {
        match client.call(Method::GET, DRAIN_PATH, bounds).await {
            Err(CallError::ConnectionRefused | CallError::Connect(_)) if tries < MAX_ATTEMPTS => {
                tries += 1;
                sleep(RETRY_DELAY).await;
            }
            other => {
                break other.with_context(|| format!("no drainer in {}", run_dir.display()))?;
            }
        }
    };
    if answer.status != StatusCode::OK {
        bail!("the drainer answered {}", answer.status);
    }
    Ok(())
}
