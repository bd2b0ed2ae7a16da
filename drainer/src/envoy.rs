//! Envoy, as far as a drain is concerned: its admin interface, asked one thing at a time.

pub(crate) mod bounded_json;
pub(crate) mod hidden_stats;
pub(crate) mod listeners;
pub(crate) mod server_info;
pub(crate) mod setup_warnings;
pub(crate) mod stats;

use std::future::Future;
use std::time::Duration;

use hyper::{Method, StatusCode};

use self::hidden_stats::HiddenStats;
use self::listeners::{EnvoyListeners, Listener};
use self::server_info::ServerInfo;
use self::stats::{Count, OpenConnections, Stats};
use crate::admin_address::AdminAddress;
use crate::http::client::{CallError, CallLimits, Client};
use crate::listener_selector::ListenerSelector;

/// A drain's view of Envoy. Its methods never overlap, since they need it exclusively.
pub(crate) trait Envoy {
    /// Makes Envoy fail its health checks: readiness answers 503, and each response closes its
    /// connection or sends GOAWAY, whatever the drain strategy. [`Envoy::restore_health`] undoes it.
    fn fail_health(&mut self) -> impl Future<Output = Result<(), AdminError>>;

    /// Undoes [`Envoy::fail_health`].
    fn restore_health(&mut self) -> impl Future<Output = Result<(), AdminError>>;

    /// Starts the drain that listeners heed which ignore failed health; they go on accepting.
    /// Nothing undoes it.
    fn drain_listeners(&mut self) -> impl Future<Output = Result<(), AdminError>>;

    /// Looks once at what is open.
    fn poll(&mut self) -> impl Future<Output = Snapshot>;

    /// Learns how Envoy is set up, which decides what is counted from then on.
    fn inspect(&mut self) -> impl Future<Output = Result<Setup, AdminError>>;
}

/// What one look at Envoy shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// What is open, as far as it is shown.
    Counted(Count),
    /// Something answered, but not with statistics: nothing is known, which is not zero.
    InvalidResponse(String),
    /// There was no answer: nothing is known.
    NoResponse(String),
    /// Nothing listens at the admin address.
    ConnectionRefused,
}

/// Why a call to Envoy did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdminError {
    /// Nothing listens at the admin address.
    #[error("connection refused")]
    ConnectionRefused,
    /// No usable answer: worth asking again.
    #[error("{0}")]
    NoResponse(String),
    /// Something answered, and asking again will not change its mind.
    #[error("{0}")]
    Rejected(String),
}

/// How Envoy is set up.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Its version and drain strategy.
    pub server: ServerInfo,
    /// Its listeners, and which of them count; or why they are not known.
    pub listeners: Result<EnvoyListeners, String>,
    /// What statistics hide of these; or why that is not known.
    pub hidden_stats: Result<HiddenStats, String>,
}

/// The admin interface of a real Envoy.
pub(crate) struct AdminClient {
    client: Client,
    ignored: Vec<ListenerSelector>,
    listeners: EnvoyListeners,
    /// `None` until it is known.
    hidden_stats: Option<HiddenStats>,
}

/// Short enough that a hung Envoy is noticed, long enough for the main thread of one with 10,000
/// clusters that somebody else scrapes (seen: 2.5 s).
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Big answers: 64 workers × 400 listeners in statistics, or some thousand listeners in a dump.
const MAX_BODY: usize = 4 << 20;

/// `/server_info` has 124 kB, all others far less.
const MAX_SMALL_BODY: usize = 1 << 20;

/// So much of an error's text is passed on, in bytes.
const MAX_ERROR: usize = 200;

const FAIL_HEALTH: &str = "/healthcheck/fail";
const RESTORE_HEALTH: &str = "/healthcheck/ok";

/// Both parameters bare, since only their presence counts; `skip_exit` means that listeners go on
/// accepting, and is refused without `graceful` before Envoy 1.40.
const DRAIN_LISTENERS: &str = "/drain_listeners?graceful&skip_exit";

const STATIC_LISTENERS: &str = "/config_dump?resource=static_listeners&mask=listener.name,\
    listener.stat_prefix,listener.drain_type,listener.address,listener.additional_addresses";

/// Without a mask, which Envoy does not take here.
const DYNAMIC_LISTENERS: &str = "/config_dump?resource=dynamic_listeners";

// === impl Snapshot ===

impl Snapshot {
    /// Whether Envoy says by its statistics that its health is not failed; `None` if it does not say.
    #[must_use]
    pub(crate) fn live(&self) -> Option<bool> {
        match self {
            Self::Counted(
                Count::Listeners(OpenConnections { live, .. }) | Count::Server { live, .. },
            ) => *live,
            Self::Counted(Count::Hidden)
            | Self::InvalidResponse(_)
            | Self::NoResponse(_)
            | Self::ConnectionRefused => None,
        }
    }
}

// === impl AdminClient ===

impl AdminClient {
    /// The admin interface at `address`; of its listeners, the `ignored` are not counted.
    #[must_use]
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
        let bounds = CallLimits {
            timeout: Some(CALL_TIMEOUT),
            max_body,
        };
        let answer = self.client.call(method, path, bounds).await?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            status => {
                let text = &answer.body[..answer.body.len().min(MAX_ERROR)];
                let text = String::from_utf8_lossy(text);
                let told = format!("{status}: {}", text.lines().next().unwrap_or_default());
                Err(match status {
                    StatusCode::FORBIDDEN => {
                        AdminError::Rejected(format!("{told}; is it in admin.allow_paths?"))
                    }
                    status if status.is_server_error() => AdminError::NoResponse(told),
                    _ => AdminError::Rejected(told),
                })
            }
        }
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
            let read = listeners::read(&body);
            all.extend(read.map_err(|error| AdminError::Rejected(error.to_string()))?);
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
        self.post(FAIL_HEALTH).await
    }

    async fn restore_health(&mut self) -> Result<(), AdminError> {
        self.post(RESTORE_HEALTH).await
    }

    async fn drain_listeners(&mut self) -> Result<(), AdminError> {
        self.post(DRAIN_LISTENERS).await
    }

    async fn poll(&mut self) -> Snapshot {
        let poll = format!("{}{}", stats::STATS_PATH, stats::USED_ONLY);
        let body = match self.get(&poll, MAX_BODY).await {
            Ok(body) => body,
            Err(AdminError::ConnectionRefused) => return Snapshot::ConnectionRefused,
            Err(AdminError::Rejected(why)) => return Snapshot::InvalidResponse(why),
            Err(AdminError::NoResponse(why)) => return Snapshot::NoResponse(why),
        };
        match Stats::read(&body) {
            Ok(stats) => {
                Snapshot::Counted(stats.count(&self.listeners, self.hidden_stats.as_ref()))
            }
            Err(error) => Snapshot::InvalidResponse(format!("not Envoy's statistics: {error}")),
        }
    }

    async fn inspect(&mut self) -> Result<Setup, AdminError> {
        let server = match self.server_info().await {
            // Forbidden by `admin.allow_paths`, perhaps: statistics prove an Envoy as well.
            Err(AdminError::Rejected(_)) if matches!(self.poll().await, Snapshot::Counted(_)) => {
                ServerInfo::default()
            }
            other => other?,
        };
        // Forbidden too, perhaps, or too many: then names in statistics have to do.
        let listeners = match self.listeners().await {
            Ok(listeners) => {
                self.listeners = EnvoyListeners::new(listeners, self.ignored.clone());
                Ok(self.listeners.clone())
            }
            Err(AdminError::Rejected(why)) => Err(why),
            Err(error) => return Err(error),
        };
        let hidden = match server.is_starting() {
            // Its listeners have no statistics yet.
            true => Ok(HiddenStats::default()),
            false => match self.hidden_stats().await {
                Ok(hidden) => Ok(hidden),
                Err(AdminError::Rejected(why)) => Err(why),
                Err(error) => return Err(error),
            },
        };
        self.hidden_stats = hidden.as_ref().ok().cloned();
        Ok(Setup {
            server,
            listeners,
            hidden_stats: hidden,
        })
    }
}

// === impl AdminError ===

impl From<CallError> for AdminError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::ConnectionRefused => Self::ConnectionRefused,
            CallError::TooLarge(_) => Self::Rejected(error.to_string()),
            CallError::Connect(_) | CallError::TimedOut(_) | CallError::Protocol(_) => {
                Self::NoResponse(error.to_string())
            }
        }
    }
}
