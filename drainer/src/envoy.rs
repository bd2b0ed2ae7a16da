//! The calls to Envoy's admin interface: fail and restore health, drain listeners, poll, inspect.

pub(crate) mod admin_client;
mod admin_probe;
pub(crate) mod counters;
pub(crate) mod hidden_stats;
pub(crate) mod listeners;
pub(crate) mod prefix_owners;
pub(crate) mod server_info;
pub(crate) mod setup_warnings;
pub(crate) mod snapshot;
pub(crate) mod stats;

use strum::IntoStaticStr;

use self::hidden_stats::HiddenStats;
use self::listeners::EnvoyListeners;
use self::server_info::ServerInfo;
use crate::http_client::CallError::{self, Rejected, TooLarge};

/// A call that changes Envoy, by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
pub(crate) enum AdminCall {
    /// Makes Envoy fail its health checks: readiness returns 503, and each response closes its
    /// connection or sends GOAWAY, whatever the drain strategy.
    #[strum(serialize = "/healthcheck/fail")]
    FailHealth,
    /// Undoes [`AdminCall::FailHealth`].
    #[strum(serialize = "/healthcheck/ok")]
    RestoreHealth,
    /// Starts the drain of listeners with `drain_type: MODIFY_ONLY` too, which ignore failed health. Nothing undoes it.
    /// Both parameters have no value, since only their presence matters. With `skip_exit` listeners still accept
    /// connections; before Envoy 1.40 it is rejected without `graceful`.
    #[strum(serialize = "/drain_listeners?graceful&skip_exit")]
    DrainListeners,
}

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

/// Tells what Envoy responded, which may be a rejection, from the lack of a response.
pub(crate) fn or_rejection<T>(
    result: Result<T, CallError>,
) -> Result<Result<T, String>, CallError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error @ (Rejected(_) | TooLarge(_))) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}
