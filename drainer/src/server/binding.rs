//! Binds a listener whose address another process may hold, once that is free. A drainer that exited instead would make the
//! pod unready with each restart.

use std::io;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, info};

/// Pause between two attempts.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Binds the listener at `address`, at once or as soon as that is possible. Logs what it listens for, its `purpose`.
pub(super) async fn bind_when_free<L>(
    purpose: &str,
    address: &str,
    bind: impl Fn() -> io::Result<L>,
) -> L {
    let mut bound = bind().inspect_err(|error| {
        error!(address, %error, "Cannot listen for {purpose}: retrying. Does another process have the address?");
    });
    loop {
        match bound {
            Ok(listener) => return listener,
            Err(_) => sleep(RETRY_DELAY).await,
        }
        bound = bind().inspect(|_| info!("Listening for {purpose}"));
    }
}
