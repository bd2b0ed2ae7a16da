//! What the webhook's metrics say of a port's connections.

use anyhow::Result;
use tests::http::Client;
use tests::shipped::WebhookProcess;

/// One port's connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectionMetrics {
    /// Places taken.
    pub(crate) slots_used: u64,
    /// Connections that had to make room.
    pub(crate) evicted: u64,
    /// Seconds in which no place was free.
    pub(crate) seconds_full: u64,
}

// === impl Metrics ===

impl ConnectionMetrics {
    /// Reads those of this port.
    pub(crate) async fn read(webhook: &WebhookProcess, port: &str) -> Result<Self> {
        let text = Client::from(webhook.metrics).get("/metrics").await?.body;
        let sum = |name: &str| {
            text.lines()
                .filter(|line| line.starts_with(&format!("envoy_drainer_{name}{{port=\"{port}\"")))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum()
        };
        Ok(Self {
            slots_used: sum("connections"),
            evicted: sum("connections_evicted_total"),
            seconds_full: sum("connections_full_seconds_total"),
        })
    }

    /// The greater of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            slots_used: self.slots_used.max(other.slots_used),
            evicted: self.evicted.max(other.evicted),
            seconds_full: self.seconds_full.max(other.seconds_full),
        }
    }
}
