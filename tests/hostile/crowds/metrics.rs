//! What the webhook's metrics say of a port's connections.

use anyhow::Result;
use tests::http::Client;
use tests::shipped::Shipped;

/// One port's connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Metrics {
    /// Places taken.
    pub(crate) taken: u64,
    /// Connections that had to make room.
    pub(crate) evicted: u64,
    /// Seconds in which no place was free.
    pub(crate) full: u64,
}

// === impl Metrics ===

impl Metrics {
    /// Reads those of this port.
    pub(crate) async fn read(webhook: &Shipped, port: &str) -> Result<Self> {
        let text = Client::from(webhook.metrics).get("/metrics").await?.body;
        let sum = |name: &str| {
            text.lines()
                .filter(|line| line.starts_with(&format!("envoy_drainer_{name}{{port=\"{port}\"")))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum()
        };
        Ok(Self {
            taken: sum("connections"),
            evicted: sum("connections_evicted_total"),
            full: sum("connections_full_seconds_total"),
        })
    }

    /// The greater of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            taken: self.taken.max(other.taken),
            evicted: self.evicted.max(other.evicted),
            full: self.full.max(other.full),
        }
    }
}
