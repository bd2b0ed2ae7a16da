//! Metrics of the server's connections, by port.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use strum::VariantArray;

use super::connection_slots::EvictionReason;
use crate::metrics::{Registry, register};

/// The metrics of all ports.
#[derive(Debug)]
pub(in crate::server) struct ConnectionMetrics {
    open: Family<PortLabels, Gauge>,
    limit: Family<PortLabels, Gauge>,
    evicted: Family<EvictionLabels, Counter>,
    full_seconds: Family<PortLabels, Counter>,
    /// Failed TLS handshakes of the port for API servers.
    pub(in crate::server) failed_handshakes: Counter,
}

/// The metrics of one port.
#[derive(Debug, Clone)]
pub(in crate::server) struct PortMetrics {
    pub(super) open: Gauge,
    pub(super) limit: Gauge,
    /// By [`EvictionReason`].
    pub(super) evicted: [Counter; EvictionReason::VARIANTS.len()],
    pub(super) full_seconds: Counter,
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
    /// Creates the metrics and adds them to `registry`.
    pub(in crate::server) fn register(registry: &mut Registry) -> Self {
        Self {
            open: register(registry, "connections", "Open connections"),
            limit: register(
                registry,
                "connections_limit",
                "Maximum number of open connections; one more evicts another",
            ),
            evicted: register(
                registry,
                "connections_evicted",
                "Connections closed in favor of new ones at the connection limit, by reason",
            ),
            full_seconds: register(
                registry,
                "connections_full_seconds",
                "Seconds at the connection limit",
            ),
            failed_handshakes: register(
                registry,
                "tls_handshakes_failed",
                "Connections to the TLS port whose TLS handshake failed",
            ),
        }
    }

    /// The metrics of the port with this label, each exported from now on, at zero.
    pub(in crate::server) fn for_port(&self, port: &'static str) -> PortMetrics {
        let by_port = PortLabels { port };
        let evicted = std::array::from_fn(|nth| {
            let reason = EvictionReason::VARIANTS[nth].into();
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
