//! A thread with a runtime of its own, for ports that must respond, or may be busy, apart from admissions.

use std::{io, thread};

use anyhow::{Context, anyhow};
use tokio::runtime;
use tokio::sync::oneshot;

/// Starts a thread that runs the future of `run`, which is created in it. The result waits for the thread's end.
///
/// # Errors
/// If the system cannot create the thread, or the file descriptors of its runtime. The result is an error if `run`
/// returns one or panics.
pub(in crate::server) fn start_thread<F>(
    name: &'static str,
    run: impl FnOnce() -> F + Send + 'static,
) -> io::Result<impl Future<Output = anyhow::Result<()>>>
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
            let _ = done.send(runtime.block_on(async { run().await }));
        })?;
    Ok(async move {
        // Sent, or dropped by a panic, the thread is about to end.
        let ended = finished.await;
        let joined = thread.join().map_err(|_| anyhow!("it panicked"));
        let result = joined.and_then(|()| ended?);
        result.with_context(|| format!("the thread `{name}` failed"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn end_of<F>(run: impl FnOnce() -> F + Send + 'static) -> String
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        match start_thread("port", run).unwrap().await {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[tokio::test]
    async fn failure_and_panic_of_the_thread_are_errors() {
        assert_eq!(end_of(async || Ok(())).await, "ok");
        let failed = end_of(async || Err(anyhow!("not a socket"))).await;
        assert_eq!(failed, "the thread `port` failed: not a socket");
        let panicked = end_of(async || panic!("a fault")).await;
        assert_eq!(panicked, "the thread `port` failed: it panicked");
    }
}
