//! The calls by which the search recognizes an admin interface.

use std::iter::once;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;

use super::admin_call::{CallError, call};
use super::listeners::Address;
use super::server_info::ServerInfo;
use crate::settings::admin_address::AdminAddress;

/// How long an address may take to answer as an Envoy does.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

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

async fn get(address: &AdminAddress, path: &str) -> Result<Bytes, CallError> {
    call(address, Method::GET, path, PROBE_TIMEOUT, MAX_BODY).await
}

/// Sends `GET /server_info`, with a timeout. Returns an error unless an Envoy answers.
pub(super) async fn ask(address: &AdminAddress) -> Result<(), CallError> {
    let info = ServerInfo::read(&get(address, "/server_info").await?);
    // Envoy's has all options.
    let is_envoy = info.is_ok_and(|info| info.command_line_options != Default::default());
    let not_envoy = || CallError::Rejected("not an Envoy".to_owned());
    is_envoy.then_some(()).ok_or_else(not_envoy)
}

/// The addresses of the listeners of the Envoy whose admin interface is at an address; `None` if it does not respond.
pub(super) async fn listeners(address: &AdminAddress) -> Option<Vec<AdminAddress>> {
    let body = match get(address, "/listeners?format=json").await {
        Err(error) if error.is_silence() => return None,
        body => body.unwrap_or_default(),
    };
    let read = serde_json::from_slice::<Listeners>(&body).unwrap_or_default();
    let listeners = read.listener_statuses.into_iter();
    let addresses =
        listeners.flat_map(|it| once(it.local_address).chain(it.additional_local_addresses));
    Some(addresses.filter_map(|it| it.to_admin_address()).collect())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::http_client::HttpError;

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
            (&b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"[..], "Err(Forbidden"),
            (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "Err(Rejected(\"404"),
            (b"HTTP/1.1 200 OK\r\n\r\n{\"version\": \"1.0\"}", "Err(Rejected(\"not an Envoy"),
            (
                b"HTTP/1.1 200 OK\r\n\r\n{\"version\": \"a/1.40.0/b\", \"command_line_options\": {\"drain_time\": \"600s\"}}",
                "Ok(())",
            ),
            // Of HTTP/2, and of TLS.
            (b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0", "Err(Http(NotHttp"),
            (b"\x15\x03\x01\0\x02\x02\x46", "Err(Http(NotHttp"),
            // An Envoy at its limit of connections closes them, and another may be overloaded.
            (b"", "Err(Http(NoResponse"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "Err(Http(NoResponse"),
            (b"HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n", "Err(Http(NoResponse"),
        ] {
            let address = serve(Some(bytes)).await;
            let answer = format!("{:?}", ask(&address).await);
            assert!(answer.starts_with(want), "{}: {answer}", bytes.escape_ascii());
        }
        let silent = serve(None).await;
        let answer = ask(&silent).await;
        assert!(
            answer.as_ref().is_err_and(CallError::is_silence),
            "{answer:?}"
        );
        assert_eq!(listeners(&silent).await, None);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let refusing = AdminAddress::Tcp(free.local_addr().unwrap());
        drop(free);
        let refused = Err(HttpError::ConnectionRefused.into());
        assert_eq!(ask(&refusing).await, refused);
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
        let found = listeners(&serve(Some(response)).await).await;
        let listeners = found.unwrap().into_iter().map(|it| it.to_string());
        let want = [
            "0.0.0.0:8080",
            "[::]:8081",
            "unix:@name",
            "unix:/run/b.sock",
        ];
        assert_eq!(listeners.collect::<Vec<_>>(), want);
    }
}
