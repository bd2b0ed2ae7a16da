//! A listener whose address another process may hold: it is bound once that is free. A drainer that exited instead would
//! make the pod unready with each restart.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

/// A listener, bound or still to be bound.
pub(crate) struct Binding<L> {
    /// What it listens for.
    purpose: &'static str,
    bind: Box<dyn Fn() -> io::Result<L> + Send>,
    listener: Option<L>,
    retry_at: Instant,
}

/// Pause between two attempts.
const RETRY_DELAY: Duration = Duration::from_secs(1);

// === impl Binding ===

impl<L> Binding<L> {
    /// Binds the listener at `address`, or logs why not; [`Binding::listener`] retries.
    pub(crate) fn open(
        purpose: &'static str,
        address: &str,
        bind: impl Fn() -> io::Result<L> + Send + 'static,
    ) -> Self {
        let bound = bind().inspect_err(|error| {
            error!(address, %error, "Cannot listen for {purpose}: retrying. Does another process have the address?");
        });
        Self {
            purpose,
            listener: bound.ok(),
            bind: Box::new(bind),
            retry_at: Instant::now() + RETRY_DELAY,
        }
    }

    /// Returns the listener once it is bound. Calls that are cancelled do not postpone the next attempt.
    pub(crate) async fn listener(&mut self) -> &L {
        while self.listener.is_none() {
            sleep_until(self.retry_at).await;
            self.retry_at = Instant::now() + RETRY_DELAY;
            self.listener = (self.bind)().ok();
            if self.listener.is_some() {
                info!("Listening for {}", self.purpose);
            }
        }
        self.listener.as_ref().expect("it was bound")
    }
}
