//! The client of Envoy's admin interface, and what it has read of Envoy's setup to count by.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use strum::VariantNames;
use tokio::time::Instant;
use tracing::{debug, info};

use super::Setup;
use super::admin_call::{AdminCall, CallError, call, or_rejection};
use super::admin_search::AdminSearch;
use super::hidden_stats::HiddenStats;
use super::listeners::{self, CountingRules, EnvoyListeners, LISTENERS};
use super::prefix_owners::PrefixOwners;
use super::server_info::ServerInfo;
use super::snapshot::Snapshot;
use super::stats::{self, Stats};
use crate::kernel;
use crate::settings::admin_address::AdminAddress;
use crate::settings::config::Config;

/// A client of the admin interface, at the address of the annotation or wherever it is found. Its calls never overlap, since
/// each borrows it exclusively.
pub(crate) struct AdminClient {
    /// `None` while it is unknown.
    address: Option<AdminAddress>,
    /// `None` if the address is annotated.
    search: Option<AdminSearch>,
    listeners: EnvoyListeners,
    owners: PrefixOwners,
    /// `None` while unknown.
    hidden_stats: Option<HiddenStats>,
    /// A hash of the last `/listeners`.
    listed: Option<u64>,
    /// The paths that `admin.allow_paths` forbids, of those that were called.
    pub(crate) forbidden: BTreeSet<&'static str>,
}

/// Timeout of one call: short enough to notice a hung Envoy, long enough for the main thread of one
/// with 10,000 clusters while its metrics are scraped (measured: 2.5 s).
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a body in bytes: statistics of 64 workers × 400 listeners, or a dump of some
/// thousand listeners.
const MAX_BODY: usize = 4 << 20;

const STATIC_LISTENERS: &str = "/config_dump?resource=static_listeners&mask=listener.name,\
    listener.stat_prefix,listener.drain_type,listener.traffic_direction,listener.address,\
    listener.additional_addresses,listener.listener_filters,listener.udp_listener_config.quic_options,\
    listener.use_original_dst";

/// Without a mask, which Envoy does not support for this resource.
const DYNAMIC_LISTENERS: &str = "/config_dump?resource=dynamic_listeners";

const NOT_STATS: &str = "not Envoy's statistics";

/// Whether Envoy has a `stats_matcher`, which may hide statistics.
const STATS_CONFIG: &str = "/config_dump?mask=bootstrap.stats_config";

// === impl AdminClient ===

impl AdminClient {
    /// A client that calls nothing yet.
    pub(crate) fn new(config: &Config) -> Self {
        let rules = CountingRules {
            counted: config.settings.count_listeners.clone(),
            ignored: config.settings.ignore_listeners.clone(),
            host_network: config.host_network,
        };
        let search = AdminSearch::new(config);
        Self {
            address: config.admin_address.clone().filter(|_| search.is_none()),
            search,
            listeners: EnvoyListeners::new(Vec::new(), rules),
            owners: PrefixOwners::default(),
            hidden_stats: None,
            listed: None,
            forbidden: BTreeSet::new(),
        }
    }

    /// Sends a GET to each path of a call that changes Envoy. The response is 405, or 403 if the call is forbidden, and nothing
    /// changes. With their queries, since Envoy compares these too: `exact: /drain_listeners` does not allow the call.
    /// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/bootstrap/v3/bootstrap.proto#envoy-v3-api-field-config-bootstrap-v3-admin-allow-paths>
    pub(crate) async fn test_calls(&mut self) -> Result<(), CallError> {
        for path in AdminCall::VARIANTS {
            let _ = or_rejection(self.get(path).await)?;
        }
        Ok(())
    }

    /// Returns true if Envoy has other listeners than at the last call. Its statistics would show one that is new at its first
    /// connection, or never: a QUIC listener has the name of a TCP listener with the same address.
    pub(crate) async fn has_other_listeners(&mut self) -> Result<bool, CallError> {
        let last = self.listed;
        let _ = self.list_listeners().await?;
        Ok(last.is_some() && self.listed != last)
    }

    /// Makes a call that changes Envoy.
    pub(crate) async fn post(&mut self, call: AdminCall) -> Result<(), CallError> {
        self.call(Method::POST, call.into()).await.map(drop)
    }

    /// Reads Envoy's version, state and uptime.
    pub(crate) async fn server_info(&mut self) -> Result<ServerInfo, CallError> {
        let body = self.get("/server_info").await?;
        ServerInfo::read(&body).map_err(CallError::invalid("not an Envoy"))
    }

    /// The address of the admin interface, if that is known.
    pub(crate) fn address(&self) -> Option<&AdminAddress> {
        self.address.as_ref()
    }

    /// Searches for the admin interface again, since Envoy may have been restarted with another address, or another Envoy may
    /// have started.
    pub(crate) async fn find_again(&mut self) {
        if let Err(CallError::Ambiguous(_) | CallError::Unproved(_)) = self.find(None).await {
            self.address = None;
        }
    }

    /// Reads how Envoy is set up, which decides what later polls count.
    pub(crate) async fn inspect(&mut self) -> Result<Setup, CallError> {
        let server = match self.server_info().await {
            // Perhaps forbidden by `admin.allow_paths`: statistics prove an Envoy as well.
            Err(error) if error.is_rejection() && self.poll().await.is_ok() => {
                ServerInfo::default()
            }
            other => other?,
        };
        // Before they are read, so that a later one is recognized.
        let listed = self.list_listeners().await?.unwrap_or_default();
        // Perhaps forbidden too, or too many: then only names in statistics are known.
        let listeners = or_rejection(self.listeners(&listed).await)?;
        let listeners = listeners.inspect(|it| self.listeners = it.clone());
        let hidden_stats = if server.is_starting() {
            // Its listeners have no statistics yet.
            Ok(HiddenStats::default())
        } else {
            or_rejection(self.read_stats_names().await)?
        };
        self.hidden_stats = hidden_stats.as_ref().ok().cloned();
        Ok(Setup {
            server,
            listeners,
            hidden_stats,
        })
    }

    /// Searches for the address, unless it is annotated. With `since`, an Envoy that has answered before is another one.
    async fn find(&mut self, since: Option<Instant>) -> Result<AdminAddress, CallError> {
        let search = self.search.as_mut().ok_or(CallError::Unanswered)?;
        let log = |error: &_| debug!(%error, "Cannot list the sockets of the network namespace");
        let sockets = kernel::listening().inspect_err(log).ok();
        let found = match search.choose() {
            // It has answered in a search that was cancelled.
            Ok(known) if self.address.is_none() => known,
            _ => search.run(sockets.as_ref()).await?,
        };
        // What no hint names does not follow what a hint names.
        let is_hint = |it| search.hints.contains(it);
        let is_other = !found.is_hint && self.address.as_ref().is_some_and(is_hint);
        if since.is_some_and(|since| found.asked_at < since || is_other) {
            return Err(CallError::NothingListens);
        }
        if self.address.as_ref() != Some(&found.address) {
            let by = if found.is_hint { "hint" } else { "search" };
            info!(address = %found.address, by, "Found Envoy's admin interface");
            self.address = Some(found.address.clone());
        }
        Ok(found.address)
    }

    async fn get(&mut self, path: &'static str) -> Result<Bytes, CallError> {
        self.call(Method::GET, path).await
    }

    /// Makes a call. If nothing listens any more where Envoy was, it may have been restarted with another address.
    async fn call(&mut self, method: Method, path: &'static str) -> Result<Bytes, CallError> {
        let since = Instant::now();
        let address = match self.address.clone() {
            Some(address) => address,
            None => self.find(None).await?,
        };
        let mut called = call(&address, method.clone(), path, CALL_TIMEOUT, MAX_BODY).await;
        if called.as_ref().is_err_and(CallError::is_refusal)
            && let Ok(moved) = self.find(Some(since)).await
        {
            called = call(&moved, method, path, CALL_TIMEOUT, MAX_BODY).await;
        }
        if let Err(CallError::Forbidden(_)) = called {
            self.forbidden.extend(path.split('?').next());
        }
        called
    }

    /// Asks for Envoy's listeners and their addresses, and keeps a hash of the response.
    async fn list_listeners(&mut self) -> Result<Result<Bytes, String>, CallError> {
        let listed = or_rejection(self.get(LISTENERS).await)?;
        self.listed = Some(BuildHasherDefault::<DefaultHasher>::new().hash_one(&listed));
        Ok(listed)
    }

    /// Reads the configuration of the listeners; `listed` says where they are bound.
    async fn listeners(&mut self, listed: &[u8]) -> Result<EnvoyListeners, CallError> {
        let mut all = Vec::new();
        for path in [STATIC_LISTENERS, DYNAMIC_LISTENERS] {
            let body = self.get(path).await?;
            let read = listeners::read(&body);
            all.extend(read.map_err(CallError::invalid("not a list of listeners"))?);
        }
        let mut listeners = EnvoyListeners::new(all, self.listeners.rules.clone());
        let statuses = serde_json::from_slice(listed).unwrap_or_default();
        listeners.addresses = listeners.find_addresses(&statuses);
        Ok(listeners)
    }

    /// Reads which listeners own each HTTP prefix, and what is hidden. Both need the statistics that were never updated,
    /// so that Envoy walks all of them; without a `stats_matcher`, only its counters.
    async fn read_stats_names(&mut self) -> Result<HiddenStats, CallError> {
        // No other member can have the name, since the response has this one part of the bootstrap alone.
        let has_matcher = |it: Bytes| String::from_utf8_lossy(&it).contains("\"stats_matcher\":");
        let may_hide = or_rejection(self.get(STATS_CONFIG).await)?.map_or(true, has_matcher);
        let all = stats::POLL_PATH.trim_end_matches(stats::USED_ONLY);
        let path = if may_hide { all } else { stats::OWNERS_PATH };
        let body = self.get(path).await?;
        let stats = Stats::read(&body).map_err(CallError::invalid(NOT_STATS))?;
        let listeners = stats.listeners(&self.listeners);
        // Only now, since a drain does not wait for the response.
        self.owners = PrefixOwners::default();
        self.owners.add(&stats, &listeners, &self.listeners);
        let hidden = || HiddenStats::find(&stats, &self.listeners, &self.owners);
        Ok(may_hide.then(hidden).unwrap_or_default())
    }

    /// Polls the statistics once.
    pub(crate) async fn poll(&mut self) -> Result<Snapshot, CallError> {
        let body = self.get(stats::POLL_PATH).await?;
        let stats = Stats::read(&body).map_err(CallError::invalid(NOT_STATS))?;
        let listeners = stats.listeners(&self.listeners);
        // Those of an earlier poll may be gone.
        let mut owners = self.owners.clone();
        owners.add(&stats, &listeners, &self.listeners);
        let (known, hidden) = (&self.listeners, self.hidden_stats.as_ref());
        let mut snapshot = Snapshot::count(&stats, &listeners, known, &owners, hidden);
        drop(stats);
        drop(body);
        snapshot.has_new_listener = self.has_other_listeners().await?;
        Ok(snapshot)
    }
}
