//! Handles SIGINT, SIGTERM and SIGHUP, so that an interrupted run still cleans up.

use anyhow::Result;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Whether the process has received a termination signal.
#[derive(Debug)]
pub(crate) struct Interrupt {
    requested: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

// === impl Interrupt ===

impl Interrupt {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> Result<Self> {
        let (sender, requested) = watch::channel(false);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            println!("interrupted: cleaning up");
            sender.send_replace(true);
            // Kept, since receivers would take its drop for an interrupt.
            sender.closed().await;
        });
        Ok(Self {
            requested,
            _tasks: tasks,
        })
    }

    /// Whether a signal was received.
    pub(crate) fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Waits for a signal.
    pub(crate) async fn wait(&self) {
        let mut requested = self.requested.clone();
        // The sender lives as long as `self`.
        let _ = requested.wait_for(|requested| *requested).await;
    }
}
