//! SIGTERM and SIGINT, which shut the program down.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The handlers of both signals.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

// === impl Signals ===

impl Signals {
    /// Installs the handlers. Without them, the kernel ignores both signals for PID 1.
    ///
    /// # Errors
    /// If the system rejects a handler.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
