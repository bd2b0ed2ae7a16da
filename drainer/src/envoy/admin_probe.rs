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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that sends each connection the same bytes, or keeps it open without any, and its address.
    async fn serve(bytes: Option<&'static [u8]>) -> AdminAddress {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = AdminAddress::Tcp(listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                match bytes {
                    Some(bytes) => stream.write_all(bytes).await.unwrap(),
                    None => open.push(stream),
                }
            }
        });
        address
    }

    #[tokio::test]
    async fn envoy_is_told_from_servers_that_answer_otherwise_or_not() {
        for (bytes, want) in [
            (&b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"[..], "Forbidden"),
            (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "Other"),
            (b"HTTP/1.1 200 OK\r\n\r\n{\"version\": \"1.0\"}", "Other"),
            (
                b"HTTP/1.1 200 OK\r\n\r\n{\"version\": \"a/1.40.0/b\", \"command_line_options\": {\"drain_time\": \"600s\"}}",
                "Envoy",
            ),
            // Of HTTP/2, and of TLS.
            (b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0", "Other"),
            (b"\x15\x03\x01\0\x02\x02\x46", "Other"),
            // An Envoy at its limit of connections closes them, and another may be overloaded.
            (b"", "NoResponse"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "NoResponse"),
            (b"HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n", "NoResponse"),
        ] {
            let address = serve(Some(bytes)).await;
            let answer = format!("{:?}", HttpProbe.ask(&address).await);
            assert!(answer.starts_with(want), "{}: {answer}", bytes.escape_ascii());
        }
        let silent = serve(None).await;
        let answer = HttpProbe.ask(&silent).await;
        assert!(
            matches!(answer, Answer::NoResponse { tries: 1, .. }),
            "{answer:?}"
        );
        assert_eq!(HttpProbe.listeners(&silent).await, None);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let refusing = AdminAddress::Tcp(free.local_addr().unwrap());
        drop(free);
        assert_eq!(HttpProbe.ask(&refusing).await, Answer::Refused);
    }

    #[tokio::test]
    async fn listeners_have_additional_addresses_and_pipes() {
        // As Envoy 1.36 and 1.40 respond.
        let response = br#"HTTP/1.1 200 OK

{"listener_statuses": [
    {"name": "a", "local_address": {"socket_address": {"address": "0.0.0.0", "port_value": 8080}},
        "additional_local_addresses": [
            {"socket_address": {"address": "::", "port_value": 8081}}, {"pipe": {"path": "@name"}}]},
    {"name": "b", "local_address": {"pipe": {"path": "/run/b.sock"}}},
    {"name": "c", "local_address": {"envoy_internal_address": {"server_listener_name": "c"}}}]}"#;
        let listeners = HttpProbe.listeners(&serve(Some(response)).await).await;
        let listeners = listeners.unwrap().into_iter().map(|it| it.to_string());
        let want = [
            "0.0.0.0:8080",
            "[::]:8081",
            "unix:@name",
            "unix:/run/b.sock",
        ];
        assert_eq!(listeners.collect::<Vec<_>>(), want);
    }
}
