//! The three phases of the server's life.

use tokio::sync::watch;

/// How far the server is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShutdownPhase {
    /// Ready.
    Serving,
    /// Told to end: it serves on, says that it is not ready, and closes connections with their next
    /// response.
    Draining,
    /// It accepts no connection, and serves those that it has until they are gone.
    Closing,
}

/// Waits for [`Phase::Ending`], or for the end of whoever would announce it.
pub(super) async fn wait_for_closing(phase: &mut watch::Receiver<ShutdownPhase>) {
    let _ = phase
        .wait_for(|phase| *phase == ShutdownPhase::Closing)
        .await;
}
