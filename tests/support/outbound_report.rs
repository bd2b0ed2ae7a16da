//! The calls that an app behind a sidecar Envoy made after SIGTERM, as it reports them in its termination message.

use serde::{Deserialize, Serialize};

/// The outbound calls of an app after SIGTERM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundReport {
    /// All calls.
    pub sent: u64,
    /// Those without a response 200.
    pub failed: u64,
    /// Why the first of these failed.
    pub first_failure: Option<String>,
}

// === impl OutboundReport ===

impl OutboundReport {
    /// Counts a call.
    pub fn record(&mut self, result: &anyhow::Result<()>) {
        self.sent += 1;
        if let Err(error) = result {
            self.failed += 1;
            self.first_failure
                .get_or_insert_with(|| format!("{error:#}"));
        }
    }
}
