//! Logs failed calls to the API server, at a limited rate: drainers repeat their requests. Metrics count each.

use std::sync::{Mutex, PoisonError};

use tokio::time::{Duration, Instant};
use tracing::warn;

use crate::token_bucket::{Rate, TokenBucket};

/// A few at once, then one a minute.
const RATE: Rate = Rate {
    burst: 5,
    refill: Duration::from_secs(60),
};

/// The log of one kind of call.
#[derive(Debug)]
pub(super) struct FailureLog {
    message: &'static str,
    bucket: Mutex<TokenBucket>,
}

// === impl FailureLog ===

impl FailureLog {
    /// Logs with this message.
    pub(super) fn new(message: &'static str) -> Self {
        Self {
            message,
            bucket: Mutex::new(TokenBucket::full(Instant::now())),
        }
    }

    /// Logs an error, unless too many were logged lately.
    pub(super) fn log(&self, error: &anyhow::Error) {
        let now = Instant::now();
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if bucket.has_token(RATE, now) {
            bucket.take(RATE, now);
            warn!(error = format!("{error:#}"), "{}", self.message);
        }
    }
}
