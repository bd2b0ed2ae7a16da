//! Metrics of the server's connections, by port.

use std::array;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use strum::{IntoStaticStr, VariantArray};

use crate::metrics::{Labels, Registry, metrics};

metrics! {
    /// The metrics of all ports.
    #[derive(Debug)]
    pub(in crate::server) struct ConnectionMetrics {
        open: Family<Labels<1>, Gauge>, "connections", "Open connections";
        limit: Family<Labels<1>, Gauge>, "connections_limit",
            "Maximum number of open connections; one more evicts another";
        evicted: Family<Labels<2>, Counter>, "connections_evicted",
            "Connections closed in favor of new ones at the connection limit, by reason";
        full_seconds: Family<Labels<1>, Counter>, "connections_full_seconds",
            "Seconds at the connection limit";
        /// Failed TLS handshakes of the port for API servers.
        pub(in crate::server) failed_handshakes: Counter, "tls_handshakes_failed",
            "Connections to the TLS port whose TLS handshake failed";
    }
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

/// What an evicted connection was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum EvictionReason {
    /// Nothing.
    Idle,
    /// A request was in flight. It is answered.
    InFlight,
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    /// Creates the metrics and adds them to `registry`.
    pub(in crate::server) fn register(registry: &mut Registry) -> Self {
        Self::registered(registry)
    }

    /// The metrics of the port with this label, each exported from now on, at zero.
    pub(in crate::server) fn for_port(&self, port: &'static str) -> PortMetrics {
        let by_port = [("port", port)];
        let evicted = |reason: EvictionReason| {
            let labels = [("port", port), ("reason", reason.into())];
            self.evicted.get_or_create_owned(&labels)
        };
        PortMetrics {
            open: self.open.get_or_create_owned(&by_port),
            limit: self.limit.get_or_create_owned(&by_port),
            evicted: array::from_fn(|nth| evicted(EvictionReason::VARIANTS[nth])),
            full_seconds: self.full_seconds.get_or_create_owned(&by_port),
        }
    }
}
