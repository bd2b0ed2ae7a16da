//! The runtime of a command.

use anyhow::Context;
use tokio::runtime;

/// Runs a command that makes calls to a cluster, on this thread.
///
/// # Errors
/// Those of the command, and if the runtime cannot start.
pub fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .context("cannot start the runtime")?
        .block_on(command)
}
