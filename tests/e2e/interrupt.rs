//! The wish of a person, or of what runs this, that it end: then it still cleans up.

use anyhow::Result;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Whether this process was asked to end.
#[derive(Debug)]
pub(crate) struct Interrupt {
    requested: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

// === impl Interrupt ===

impl Interrupt {
    /// Begins to listen to the signals that ask a process to end.
    ///
    /// # Errors
    /// When signals cannot be handled.
    pub(crate) fn listen() -> Result<Self> {
        let (ask, asked) = watch::channel(false);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            println!("interrupted: cleaning up");
            ask.send_replace(true);
            // Its receiver would take its end for an interrupt.
            ask.closed().await;
        });
        Ok(Self {
            requested: asked,
            _tasks: listening,
        })
    }

    /// Whether it was.
    pub(crate) fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Waits until it is.
    pub(crate) async fn wait(&self) {
        let mut asked = self.requested.clone();
        // The sender lives for as long as this does.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}
