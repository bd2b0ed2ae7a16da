//! A thread with a runtime of its own, for ports that must respond, or may be busy, apart from admissions.

use std::{io, thread};

use tokio::runtime;
use tokio::sync::oneshot;
use tracing::error;

/// Starts a thread that runs the future of `run`, which is created in it. The result waits for the thread's end.
///
/// # Errors
/// If the system cannot create the thread, or the file descriptors of its runtime.
pub(super) fn start<F>(
    name: &'static str,
    run: impl FnOnce() -> F + Send + 'static,
) -> io::Result<impl Future<Output = ()>>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (done, finished) = oneshot::channel();
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            if let Err(error) = runtime.block_on(async { run().await }) {
                error!(error = format!("{error:#}"), name, "Failed to serve");
            }
            let _ = done.send(());
        })?;
    Ok(async move {
        // Sent, or dropped by a panic, the thread is about to end.
        let _ = finished.await;
        if thread.join().is_err() {
            error!(name, "Thread panicked");
        }
    })
}
