//! The calls by which the search recognizes an admin interface.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::{Method, Response, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::listeners::Address;
use crate::admin_address::AdminAddress;
use crate::admin_search::{AdminProbe, Answer};
use crate::http_client::call;

/// Asks servers on the pod's sockets.
pub(super) struct HttpProbe;

/// How long an address may take to answer as an Envoy does.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum size of an answer in bytes: `/server_info` has 124 kB.
const MAX_BODY: usize = 1 << 20;

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
#[derive(Default, Deserialize)]
#[serde(default)]
struct Listeners {
    listener_statuses: Vec<ListenerStatus>,
}

#[derive(Deserialize)]
struct ListenerStatus {
    local_address: Address,
}

impl AdminProbe for HttpProbe {
    async fn ask(&mut self, address: &AdminAddress) -> Answer {
        let (path, limit) = ("/server_info", PROBE_TIMEOUT * 2);
        let call = call(address, Method::GET, path, limit, MAX_BODY);
        let Ok(result) = timeout(PROBE_TIMEOUT, call).await else {
            let at = Instant::now();
            return Answer::Timeout { tries: 1, at };
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
        let response = call(address, Method::GET, path, PROBE_TIMEOUT, MAX_BODY).await;
        let body = response.map(Response::into_body).unwrap_or_default();
        let read = serde_json::from_slice::<Listeners>(&body).unwrap_or_default();
        let addresses = read.listener_statuses.into_iter();
        let addresses = addresses.filter_map(|status| status.local_address.ip_and_port());
        addresses.collect()
    }
}
