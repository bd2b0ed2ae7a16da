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
pub enum Eviction {
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
pub(super) struct Connections {
    taken: Family<ByPort, Gauge>,
    places: Family<ByPort, Gauge>,
    evicted: Family<ByReason, Counter>,
    full: Family<ByPort, Counter>,
}

/// What is counted of one port.
#[derive(Debug, Clone)]
pub struct PortMetrics {
    taken: Gauge,
    places: Gauge,
    evicted: [Counter; 4],
    full: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPort {
    port: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    port: &'static str,
    reason: &'static str,
}

// === impl Connections ===

impl Connections {
    /// Adds the metrics to those of `registry`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register("connections", "Open connections", this.taken.clone());
        registry.register(
            "connections_limit",
            "Connections that may be open; one more costs another its place",
            this.places.clone(),
        );
        registry.register(
            "connections_evicted",
            "Connections closed for others, since all places were taken, by how far they had come",
            this.evicted.clone(),
        );
        registry.register(
            "connections_full_seconds",
            "Seconds in which all places were taken",
            this.full.clone(),
        );
        this
    }

    /// The metrics of one port, each of them seen at zero.
    pub(super) fn of(&self, port: PortName) -> PortMetrics {
        let port = port.label();
        let by_port = ByPort { port };
        let evicted = Eviction::ALL.map(|eviction| {
            let reason = eviction.label();
            let by_reason = ByReason { port, reason };
            self.evicted.get_or_create(&by_reason).clone()
        });
        PortMetrics {
            taken: self.taken.get_or_create(&by_port).clone(),
            places: self.places.get_or_create(&by_port).clone(),
            evicted,
            full: self.full.get_or_create(&by_port).clone(),
        }
    }
}

// === impl PortMetrics ===

impl PortMetrics {
    /// Tells how many connections are open.
    pub fn taken(&self, many: usize) {
        self.taken.set(i64::try_from(many).unwrap_or(i64::MAX));
    }

    /// Tells how many may be.
    pub fn has_places(&self, many: usize) {
        self.places.set(i64::try_from(many).unwrap_or(i64::MAX));
    }

    /// Counts a connection that was closed for another.
    pub fn evicted(&self, eviction: Eviction) {
        self.evicted[eviction as usize].inc();
    }

    /// Counts time in which all places were taken.
    pub fn was_full(&self, time: Duration) {
        self.full.inc_by(time.as_secs());
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

// === impl Eviction ===

impl Eviction {
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
