//! The admin interface of the pod's Envoy, at the address of the annotation, or wherever it is found.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::admin_client::{AdminClient, MAX_SMALL_BODY};
use super::server_info::ServerInfo;
use super::snapshot::Snapshot;
use super::{AdminCall, Envoy, Setup};
use crate::admin_address::AdminAddress;
use crate::admin_search::{AdminAbsence, AdminProbe, AdminSearch, Answer, FoundAdmin};
use crate::config::Config;
use crate::http_client::{CallError, call};
use crate::listen_sockets;
use crate::listener_selector::ListenerSelector;

/// An admin interface that is searched for before the first call.
pub(crate) struct AdminInterface {
    /// `None` while its address is unknown.
    client: Option<AdminClient>,
    /// `None` if the address is annotated.
    search: Option<AdminSearch>,
    /// A search of the node's sockets would reach its other servers.
    host_network: bool,
    ignored: Vec<ListenerSelector>,
}

/// How long an address may take to answer as an Envoy does.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

// === impl AdminInterface ===

impl AdminInterface {
    pub(crate) fn new(config: &Config) -> Self {
        let ignored = config.settings.ignore_listeners.clone();
        let client = |address: &AdminAddress| AdminClient::new(address.clone(), ignored.clone());
        let hints = config.admin_hints.clone();
        let search = || AdminSearch::new(hints, config.settings.port);
        Self {
            client: config.admin_address.as_ref().map(client),
            search: config.admin_address.is_none().then(search),
            host_network: config.host_network,
            ignored,
        }
    }

    async fn client(&mut self) -> Result<&mut AdminClient, CallError> {
        if self.client.is_none() {
            self.search().await?;
        }
        self.client
            .as_mut()
            .ok_or(CallError::NoAddress(AdminAbsence::Unanswered))
    }

    /// Searches for the address.
    async fn search(&mut self) -> Result<(), CallError> {
        let Some(search) = &mut self.search else {
            return Ok(());
        };
        let sockets = (!self.host_network).then(listen_sockets::list).transpose();
        let sockets = sockets.unwrap_or_else(|error| {
            debug!(%error, "Cannot list the sockets of the network namespace");
            None
        });
        let found = search.run(sockets.as_ref(), &mut HttpProbe).await?;
        let FoundAdmin { address, is_hint } = found;
        if self.address() != Some(&address) {
            let by = if is_hint { "manifest" } else { "search" };
            info!(%address, by, "Found Envoy's admin interface");
            self.client = Some(AdminClient::new(address, self.ignored.clone()));
        }
        Ok(())
    }
}

impl Envoy for AdminInterface {
    async fn post(&mut self, call: AdminCall) -> Result<(), CallError> {
        self.client().await?.post(call).await
    }

    async fn poll(&mut self) -> Result<Snapshot, CallError> {
        self.client().await?.poll().await
    }

    async fn server_info(&mut self) -> Result<ServerInfo, CallError> {
        self.client().await?.server_info().await
    }

    async fn inspect(&mut self) -> Result<Setup, CallError> {
        self.client().await?.inspect().await
    }

    async fn find_again(&mut self) {
        if self.client.is_some() {
            // The error of the call that failed says more.
            let _ = self.search().await;
        }
    }

    fn address(&self) -> Option<&AdminAddress> {
        self.client.as_ref()?.address()
    }
}

/// Asks servers on the pod's sockets.
struct HttpProbe;

/// What proves an Envoy.
#[derive(Deserialize)]
struct EnvoyProof {
    #[serde(rename = "version")]
    _version: String,
    #[serde(rename = "command_line_options")]
    _command_line_options: IgnoredAny,
}

/// `/listeners?format=json`.
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/listeners.proto>
#[derive(Deserialize)]
struct Listeners {
    #[serde(default)]
    listener_statuses: Vec<ListenerStatus>,
}

#[derive(Deserialize)]
struct ListenerStatus {
    local_address: ListenerAddress,
}

#[derive(Deserialize)]
struct ListenerAddress {
    socket_address: Option<ListenerSocketAddress>,
}

#[derive(Deserialize)]
struct ListenerSocketAddress {
    address: String,
    #[serde(default)]
    port_value: u16,
}

impl AdminProbe for HttpProbe {
    async fn ask(&mut self, address: &AdminAddress) -> Answer {
        let call = call(
            address,
            Method::GET,
            "/server_info",
            PROBE_TIMEOUT * 2,
            MAX_SMALL_BODY,
        );
        let Ok(result) = timeout(PROBE_TIMEOUT, call).await else {
            return Answer::Timeout {
                tries: 1,
                at: Instant::now(),
            };
        };
        debug!(%address, error = result.as_ref().err().map(tracing::field::display), "Asked for an admin interface");
        match result {
            Ok(response) if response.status() == StatusCode::FORBIDDEN => Answer::Forbidden,
            Ok(response) if response.status() == StatusCode::OK => {
                let proof = serde_json::from_slice::<EnvoyProof>(response.body());
                proof.map_or(Answer::Other, |_| Answer::Envoy)
            }
            _ => Answer::Other,
        }
    }

    async fn listeners(&mut self, address: &AdminAddress) -> Vec<SocketAddr> {
        let path = "/listeners?format=json";
        let response = call(address, Method::GET, path, PROBE_TIMEOUT, MAX_SMALL_BODY).await;
        let read = response
            .ok()
            .and_then(|response| serde_json::from_slice::<Listeners>(response.body()).ok());
        let statuses = read
            .into_iter()
            .flat_map(|listeners| listeners.listener_statuses);
        let addresses = statuses.filter_map(|status| status.local_address.socket_address);
        addresses
            .filter_map(|socket| {
                Some(SocketAddr::new(
                    socket.address.parse().ok()?,
                    socket.port_value,
                ))
            })
            .collect()
    }
}
