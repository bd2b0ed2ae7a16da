//! The calls to Envoy's admin interface: fail and restore health, drain listeners, poll, inspect.

pub(crate) mod admin_call;
pub(crate) mod admin_client;
pub(crate) mod admin_probe;
pub(crate) mod admin_search;
pub(crate) mod counters;
pub(crate) mod hidden_stats;
pub(crate) mod listeners;
pub(crate) mod prefix_owners;
pub(crate) mod server_info;
pub(crate) mod setup_warnings;
pub(crate) mod snapshot;
pub(crate) mod stats;

use self::hidden_stats::HiddenStats;
use self::listeners::EnvoyListeners;
use self::server_info::ServerInfo;

/// How Envoy is set up.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Its version, drain strategy and state.
    pub server: ServerInfo,
    /// Its listeners, and which of them are counted; or why they are unknown.
    pub listeners: Result<EnvoyListeners, String>,
    /// What a `stats_matcher` hides of these; or why that is unknown.
    pub hidden_stats: Result<HiddenStats, String>,
}

// === impl Setup ===

impl Setup {
    /// Returns true if there are OUTBOUND listeners, for the app's own calls, and a drain of INBOUND ones alone makes all
    /// clients reconnect at once.
    pub(crate) fn can_spare_outbound(&self) -> bool {
        let listeners = self.listeners.as_ref();
        let untold = listeners.map(EnvoyListeners::untold_beside_outbound);
        self.server.drains_at_once() && untold == Ok(Some(Vec::new()))
    }
}
