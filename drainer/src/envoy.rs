//! The calls to Envoy's admin interface: fail and restore health, drain listeners, poll, inspect.

pub(crate) mod bounded_json;
pub(crate) mod hidden_stats;
pub(crate) mod listeners;
pub(crate) mod server_info;
pub(crate) mod setup_warnings;
pub(crate) mod snapshot;
pub(crate) mod stats;

use std::time::Duration;

use hyper::{Method, StatusCode};

use self::hidden_stats::HiddenStats;
use self::listeners::{EnvoyListeners, Listener};
use self::server_info::ServerInfo;
use self::snapshot::Snapshot;
use self::stats::Stats;
use crate::admin_address::AdminAddress;
use crate::http::client::{CallError, Client};
use crate::listener_selector::ListenerSelector;

/// The calls that a drain makes to Envoy. They never overlap, since each borrows it exclusively.
pub(crate) trait Envoy {
    /// Makes Envoy fail its health checks: readiness returns 503, and each response closes its
    /// connection or sends GOAWAY, whatever the drain strategy. [`Envoy::restore_health`] undoes it.
    fn fail_health(&mut self) -> impl Future<Output = Result<(), AdminError>>;

    /// Undoes [`Envoy::fail_health`].
    fn restore_health(&mut self) -> impl Future<Output = Result<(), AdminError>>;

    /// Starts the drain of listeners with `drain_type: MODIFY_ONLY` too, which ignore failed health.
    /// Listeners still accept connections. Nothing undoes it.
    fn drain_listeners(&mut self) -> impl Future<Output = Result<(), AdminError>>;

    /// Polls the statistics once.
    fn poll(&mut self) -> impl Future<Output = Result<Snapshot, AdminError>>;

    /// Reads how Envoy is set up, which decides what later polls count.
    fn inspect(&mut self) -> impl Future<Output = Result<Setup, AdminError>>;

    /// Reads [`Setup::drains_http3`] alone, without the statistics, which Envoy's main thread would walk.
    fn drains_http3(&mut self) -> impl Future<Output = Result<bool, AdminError>>;
}

/// Why a call to Envoy's admin interface failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdminError {
    /// Nothing listens at the admin address.
    #[error("connection refused")]
    ConnectionRefused,
    /// No usable response: worth a retry.
    #[error("{0}")]
    NoResponse(String),
    /// A response that a retry does not change.
    #[error("{0}")]
    Rejected(String),
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

/// A client of Envoy's admin interface.
pub(crate) struct AdminClient {
    client: Client,
    ignored: Vec<ListenerSelector>,
    listeners: EnvoyListeners,
    /// `None` while unknown.
    hidden_stats: Option<HiddenStats>,
}

/// Timeout of one call: short enough to notice a hung Envoy, long enough for the main thread of one
/// with 10,000 clusters while its metrics are scraped (measured: 2.5 s).
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a body in bytes: statistics of 64 workers × 400 listeners, or a dump of some
/// thousand listeners.
const MAX_BODY: usize = 4 << 20;

/// Maximum size of other bodies, in bytes: `/server_info` has 124 kB, the rest far less.
const MAX_SMALL_BODY: usize = 1 << 20;

/// Maximum length of the text taken from an error response, in bytes.
const MAX_ERROR: usize = 200;

/// Both parameters have no value, since only their presence matters. With `skip_exit` listeners still
/// accept connections; before Envoy 1.40 it is rejected without `graceful`.
const DRAIN_LISTENERS: &str = "/drain_listeners?graceful&skip_exit";

const STATIC_LISTENERS: &str = "/config_dump?resource=static_listeners&mask=listener.name,\
    listener.stat_prefix,listener.drain_type,listener.address,listener.additional_addresses,\
    listener.udp_listener_config.quic_options";

/// Without a mask, which Envoy does not support for this resource.
const DYNAMIC_LISTENERS: &str = "/config_dump?resource=dynamic_listeners";

/// Tells what Envoy responded, which may be a rejection, from the lack of a response.
pub(crate) fn or_rejection<T>(
    result: Result<T, AdminError>,
) -> Result<Result<T, String>, AdminError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(AdminError::Rejected(why)) => Ok(Err(why)),
        Err(error) => Err(error),
    }
}

// === impl Setup ===

impl Setup {
    /// Returns true if `/drain_listeners` alone makes HTTP/3 clients reconnect at once: a counted listener speaks
    /// QUIC, and the drain strategy is immediate. With the gradual one only failed health does that.
    pub(crate) fn drains_http3(&self) -> bool {
        let listeners = self.listeners.as_ref();
        self.server.drains_at_once() && listeners.is_ok_and(EnvoyListeners::speak_quic)
    }
}

// === impl AdminClient ===

impl AdminClient {
    /// A client of the admin interface at `address`. The `ignored` listeners are not counted.
    pub(crate) fn new(address: AdminAddress, ignored: Vec<ListenerSelector>) -> Self {
        let listeners = EnvoyListeners::new(Vec::new(), ignored.clone());
        Self {
            client: Client::new(address),
            ignored,
            listeners,
            hidden_stats: None,
        }
    }

    async fn get(&mut self, path: &str, max_body: usize) -> Result<bytes::Bytes, AdminError> {
        self.call(Method::GET, path, max_body).await
    }

    async fn post(&mut self, path: &str) -> Result<(), AdminError> {
        self.call(Method::POST, path, MAX_SMALL_BODY)
            .await
            .map(drop)
    }

    async fn call(
        &mut self,
        method: Method,
        path: &str,
        max_body: usize,
    ) -> Result<bytes::Bytes, AdminError> {
        let call = self.client.call(method, path, Some(CALL_TIMEOUT), max_body);
        let response = call.await?;
        let (status, body) = (response.status(), response.into_body());
        if status == StatusCode::OK {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&body[..body.len().min(MAX_ERROR)]);
        let error = format!("{status}: {}", text.lines().next().unwrap_or_default());
        Err(match status {
            StatusCode::FORBIDDEN => {
                AdminError::Rejected(format!("{error}; is it in admin.allow_paths?"))
            }
            _ if status.is_server_error() => AdminError::NoResponse(error),
            _ => AdminError::Rejected(error),
        })
    }

    async fn server_info(&mut self) -> Result<ServerInfo, AdminError> {
        let body = self.get("/server_info", MAX_SMALL_BODY).await?;
        ServerInfo::read(&body)
            .map_err(|error| AdminError::Rejected(format!("not an Envoy: {error}")))
    }

    async fn listeners(&mut self) -> Result<Vec<Listener>, AdminError> {
        let mut all = Vec::new();
        for path in [STATIC_LISTENERS, DYNAMIC_LISTENERS] {
            let body = self.get(path, MAX_BODY).await?;
            let listeners = listeners::read(&body);
            all.extend(listeners.map_err(|error| AdminError::Rejected(error.to_string()))?);
        }
        Ok(all)
    }

    async fn hidden_stats(&mut self) -> Result<HiddenStats, AdminError> {
        let body = self.get(stats::STATS_PATH, MAX_BODY).await?;
        let stats = Stats::read(&body).map_err(|error| AdminError::Rejected(error.to_string()))?;
        Ok(HiddenStats::find(&stats, &self.listeners))
    }
}

impl Envoy for AdminClient {
    async fn fail_health(&mut self) -> Result<(), AdminError> {
        self.post("/healthcheck/fail").await
    }

    async fn restore_health(&mut self) -> Result<(), AdminError> {
        self.post("/healthcheck/ok").await
    }

    async fn drain_listeners(&mut self) -> Result<(), AdminError> {
        self.post(DRAIN_LISTENERS).await
    }

    async fn poll(&mut self) -> Result<Snapshot, AdminError> {
        let path = format!("{}{}", stats::STATS_PATH, stats::USED_ONLY);
        let body = self.get(&path, MAX_BODY).await?;
        let stats = Stats::read(&body)
            .map_err(|error| AdminError::Rejected(format!("not Envoy's statistics: {error}")))?;
        let hidden = self.hidden_stats.as_ref();
        Ok(Snapshot::count(&stats, &self.listeners, hidden))
    }

    async fn inspect(&mut self) -> Result<Setup, AdminError> {
        let server = match self.server_info().await {
            // Perhaps forbidden by `admin.allow_paths`: statistics prove an Envoy as well.
            Err(AdminError::Rejected(_)) if self.poll().await.is_ok() => ServerInfo::default(),
            other => other?,
        };
        // Perhaps forbidden too, or too many: then only names in statistics are known.
        let listeners = or_rejection(self.listeners().await)?.map(|listeners| {
            self.listeners = EnvoyListeners::new(listeners, self.ignored.clone());
            self.listeners.clone()
        });
        let hidden_stats = match server.is_starting() {
            // Its listeners have no statistics yet.
            true => Ok(HiddenStats::default()),
            false => or_rejection(self.hidden_stats().await)?,
        };
        self.hidden_stats = hidden_stats.as_ref().ok().cloned();
        Ok(Setup {
            server,
            listeners,
            hidden_stats,
        })
    }

    async fn drains_http3(&mut self) -> Result<bool, AdminError> {
        // As in a setup, what is forbidden is unknown.
        let server = or_rejection(self.server_info().await)?;
        if !server.is_ok_and(|server| server.drains_at_once()) {
            return Ok(false);
        }
        let listeners = or_rejection(self.listeners().await)?;
        Ok(listeners.is_ok_and(|all| EnvoyListeners::new(all, self.ignored.clone()).speak_quic()))
    }
}

// === impl AdminError ===

impl From<CallError> for AdminError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::ConnectionRefused => Self::ConnectionRefused,
            CallError::TooLarge(_) => Self::Rejected(error.to_string()),
            _ => Self::NoResponse(error.to_string()),
        }
    }
}
