//! Reads the webhook's metrics of connections.

use std::time::Duration;

use anyhow::Result;
use tests::http::Client;
use tests::webhook_process::WebhookProcess;

/// Prometheus' default `scrape_timeout`.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection metrics of one port.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectionMetrics {
    /// Connection slots in use.
    pub(crate) slots_used: u64,
    /// Evicted connections.
    pub(crate) evicted: u64,
    /// Seconds in which no slot was free.
    pub(crate) seconds_full: u64,
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    /// Reads the metrics of a port.
    pub(crate) async fn read(webhook: &WebhookProcess, port: &str) -> Result<Self> {
        let prometheus = Client::from(webhook.metrics).with_timeout(SCRAPE_TIMEOUT);
        let text = prometheus.get("/metrics").await?.body;
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

    /// Returns the maximum of each metric.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            slots_used: self.slots_used.max(other.slots_used),
            evicted: self.evicted.max(other.evicted),
            seconds_full: self.seconds_full.max(other.seconds_full),
        }
    }
}
