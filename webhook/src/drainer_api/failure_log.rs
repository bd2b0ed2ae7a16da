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

    /// Logs an error, and the namespace that it is about, unless too many were logged lately.
    pub(super) fn log(&self, namespace: Option<&str>, error: &anyhow::Error) {
        let now = Instant::now();
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if bucket.has_token(RATE, now) {
            bucket.take(RATE, now);
            warn!(namespace, error = format!("{error:#}"), "{}", self.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use anyhow::anyhow;
    use tracing::subscriber::with_default;

    use super::*;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_failures_are_logged_with_their_namespace() {
        let output = Output::default();
        let writer = output.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
        with_default(log.json().flatten_event(true).finish(), || {
            let failures = FailureLog::new("Cannot list");
            for namespace in [Some("shop"), None].iter().cycle().take(20) {
                failures.log(*namespace, &anyhow!("no\nanswer").context("a page"));
            }
        });
        let lines = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), 5, "{lines:?}");
        for (line, namespace) in lines.iter().zip([true, false].iter().cycle()) {
            assert_eq!(line.contains(r#""namespace":"shop""#), *namespace, "{line}");
            assert!(line.contains(r#""error":"a page: no\nanswer""#), "{line}");
        }
    }
}
