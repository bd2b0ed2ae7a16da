//! The calls by which the search recognizes an admin interface.

use std::iter::once;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, Response, StatusCode};
use serde::Deserialize;
use tokio::time::Instant;

use super::listeners::Address;
use super::server_info::ServerInfo;
use crate::admin_address::AdminAddress;
use crate::admin_search::{AdminProbe, Answer};
use crate::http_client::{CallError, call};

/// Asks servers on the pod's sockets.
pub(super) struct HttpProbe;

/// How long an address may take to answer as an Envoy does.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum size of an answer in bytes: `/server_info` has 124 kB.
const MAX_BODY: usize = 1 << 20;

/// `/listeners?format=json`.
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/listeners.proto>
#[derive(Default, Deserialize)]
struct Listeners {
    listener_statuses: Vec<ListenerStatus>,
}

#[derive(Deserialize)]
struct ListenerStatus {
    local_address: Address,
    #[serde(default)]
    additional_local_addresses: Vec<Address>,
}

async fn get(address: &AdminAddress, path: &str) -> Result<Response<Bytes>, CallError> {
    call(address, Method::GET, path, PROBE_TIMEOUT, MAX_BODY).await
}

impl AdminProbe for HttpProbe {
    async fn ask(&mut self, address: &AdminAddress) -> Answer {
        let response = get(address, "/server_info").await;
        let (tries, at) = (1, Instant::now());
        match response {
            Err(CallError::ConnectionRefused) => Answer::Refused,
            Err(CallError::NoResponse(_)) => Answer::NoResponse { tries, at },
            Err(_) => Answer::Other,
            Ok(response) => match response.status() {
                StatusCode::OK => match ServerInfo::read(response.body()) {
                    // Envoy's has all options.
                    Ok(info) if info.command_line_options != Default::default() => Answer::Envoy,
                    _ => Answer::Other,
                },
                StatusCode::FORBIDDEN => Answer::Forbidden,
                status if status.is_server_error() => Answer::NoResponse { tries, at },
                _ => Answer::Other,
            },
        }
    }

    async fn listeners(&mut self, address: &AdminAddress) -> Option<Vec<AdminAddress>> {
        let body = match get(address, "/listeners?format=json").await {
            Err(CallError::NoResponse(_)) => return None,
            response => response.map(Response::into_body).unwrap_or_default(),
        };
        let read = serde_json::from_slice::<Listeners>(&body).unwrap_or_default();
        let listeners = read.listener_statuses.into_iter();
        let addresses =
            listeners.flat_map(|it| once(it.local_address).chain(it.additional_local_addresses));
        Some(addresses.filter_map(|it| it.to_admin_address()).collect())
    }
}
