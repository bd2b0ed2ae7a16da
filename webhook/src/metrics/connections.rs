//! Metrics of the server's connections, by port.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A port of the server, as its label calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortName {
    /// The API server's.
    Webhook,
    /// The kubelet's.
    Health,
    /// Prometheus'.
    Metrics,
}

/// Why a connection had to go for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionReason {
    /// Its TLS handshake was not over.
    Handshaking,
    /// No AdmissionReview was answered on it yet.
    Unanswered,
    /// It was idle longest.
    Idle,
    /// Its own address wanted another place, and had its share of them.
    Address,
}

/// What is counted of all ports.
#[derive(Debug, Default)]
pub(super) struct ConnectionMetrics {
    open: Family<PortLabels, Gauge>,
    limit: Family<PortLabels, Gauge>,
    evicted: Family<EvictionLabels, Counter>,
    full_seconds: Family<PortLabels, Counter>,
}

/// What is counted of one port.
#[derive(Debug, Clone)]
pub struct PortMetrics {
    open: Gauge,
    limit: Gauge,
    evicted: [Counter; 4],
    full_seconds: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PortLabels {
    port: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictionLabels {
    port: &'static str,
    reason: &'static str,
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    /// Adds the metrics to those of `registry`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register("connections", "Open connections", this.open.clone());
        registry.register(
            "connections_limit",
            "Connections that may be open; one more costs another its place",
            this.limit.clone(),
        );
        registry.register(
            "connections_evicted",
            "Connections closed for others, since all places were taken, by how far they had come",
            this.evicted.clone(),
        );
        registry.register(
            "connections_full_seconds",
            "Seconds in which all places were taken",
            this.full_seconds.clone(),
        );
        this
    }

    /// The metrics of one port, each of them seen at zero.
    pub(super) fn for_port(&self, port: PortName) -> PortMetrics {
        let port = port.label();
        let by_port = PortLabels { port };
        let evicted = EvictionReason::ALL.map(|eviction| {
            let reason = eviction.label();
            let by_reason = EvictionLabels { port, reason };
            self.evicted.get_or_create(&by_reason).clone()
        });
        PortMetrics {
            open: self.open.get_or_create(&by_port).clone(),
            limit: self.limit.get_or_create(&by_port).clone(),
            evicted,
            full_seconds: self.full_seconds.get_or_create(&by_port).clone(),
        }
    }
}

// === impl PortMetrics ===

impl PortMetrics {
    /// Tells how many connections are open.
    pub fn set_open(&self, many: usize) {
        self.open.set(i64::try_from(many).unwrap_or(i64::MAX));
    }

    /// Tells how many may be.
    pub fn set_limit(&self, many: usize) {
        self.limit.set(i64::try_from(many).unwrap_or(i64::MAX));
    }

    /// Counts a connection that was closed for another.
    pub fn count_eviction(&self, eviction: EvictionReason) {
        self.evicted[eviction as usize].inc();
    }

    /// Counts time in which all places were taken.
    pub fn add_full_time(&self, time: Duration) {
        self.full_seconds.inc_by(time.as_secs());
    }
}

// === impl PortName ===

impl PortName {
    fn label(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Health => "health",
            Self::Metrics => "metrics",
        }
    }
}

// === impl EvictionReason ===

impl EvictionReason {
    /// As they are declared.
    const ALL: [Self; 4] = [
        Self::Handshaking,
        Self::Unanswered,
        Self::Idle,
        Self::Address,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Handshaking => "handshaking",
            Self::Unanswered => "unanswered",
            Self::Idle => "idle",
            Self::Address => "address",
        }
    }
}
