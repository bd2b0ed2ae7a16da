//! SIGTERM, SIGINT and SIGHUP, which shut the program down.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The handlers of these signals.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

// === impl Signals ===

impl Signals {
    /// Installs the handlers. Without them, the kernel ignores them for PID 1.
    ///
    /// # Errors
    /// If the system rejects a handler.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
