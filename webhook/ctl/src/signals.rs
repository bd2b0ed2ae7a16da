//! SIGTERM, SIGINT and SIGHUP, which shut the program down.

use std::io;

use futures_util::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The handlers of these signals.
#[derive(Debug)]
pub struct Signals([Signal; 3]);

// === impl Signals ===

impl Signals {
    /// Installs the handlers. Without them, the kernel ignores them for PID 1.
    ///
    /// # Errors
    /// If the system rejects a handler.
    pub fn install() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        select_all(self.0.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    }
}
