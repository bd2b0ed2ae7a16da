//! The phases of a graceful shutdown.

use tokio::sync::watch;

/// The server's phase, in the order of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShutdownPhase {
    /// Ready, before any shutdown.
    Serving,
    /// Shutdown requested: keeps serving, is not ready, and closes each connection with its next response.
    Draining,
    /// Accepts no more connections, and serves the open ones until they are closed.
    Closing,
}

/// Waits for [`ShutdownPhase::Closing`], or until its sender is dropped.
pub(super) async fn wait_for_closing(phase: &mut watch::Receiver<ShutdownPhase>) {
    let _ = phase
        .wait_for(|phase| *phase == ShutdownPhase::Closing)
        .await;
}
