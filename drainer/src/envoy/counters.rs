//! Envoy's counters of connections and requests, which a drain compares from one poll to the next.

/// Envoy's counters since its start. Their meaning was measured on Envoy 1.36 and 1.40, which agree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Connections accepted by the counted listeners.
    pub accepted: u64,
    /// Connections accepted by the excluded listeners.
    pub excluded: u64,
    /// Requests answered by Envoy's `health_check` filter, on the counted listeners or on others that
    /// share their HTTP prefix. Zero if hidden, which accounts for no connection.
    pub health_checks: u64,
    /// The counters of requests; `None` if they are hidden.
    pub requests: Option<RequestCounters>,
}

/// Counters of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestCounters {
    /// Requests whose response has begun, on the counted listeners. Envoy leaves out those that its
    /// `health_check` filter answered.
    pub completed: u64,
    /// Connections that have sent a first byte, on the counted listeners or on others that share their
    /// HTTP prefix. A TCP probe, which sends nothing, is not counted.
    pub connections: u64,
    /// Connections accepted by the counted listeners that speak HTTP.
    pub accepted: u64,
    /// Connections of TCP proxies, which an HTTP listener may have in other filter chains.
    pub tcp: u64,
}

// === impl Counters ===

impl Counters {
    /// So many accepted connections, of which nothing more is known.
    pub(crate) fn of_connections(accepted: u64) -> Self {
        Self {
            accepted,
            ..Self::default()
        }
    }

    /// Returns the increase since `last`; `None` if a counter is lower.
    pub(crate) fn since(self, last: Self) -> Option<Self> {
        let requests = match (self.requests, last.requests) {
            (Some(requests), Some(last)) => Some(RequestCounters {
                completed: requests.completed.checked_sub(last.completed)?,
                connections: requests.connections.checked_sub(last.connections)?,
                accepted: requests.accepted.checked_sub(last.accepted)?,
                tcp: requests.tcp.checked_sub(last.tcp)?,
            }),
            _ => None,
        };
        Some(Self {
            accepted: self.accepted.checked_sub(last.accepted)?,
            excluded: self.excluded.checked_sub(last.excluded)?,
            health_checks: self.health_checks.checked_sub(last.health_checks)?,
            requests,
        })
    }
}
