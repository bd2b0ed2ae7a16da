//! The responses of an Envoy at an address, by which the search recognizes the admin interface of the pod's Envoy.
//!
//! A listener or a reverse proxy may pass calls on to an admin interface, also to another pod's. So an Envoy that answers is
//! taken only if its responses agree with the address, and with the pod.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::admin_call::{CallError, call, or_rejection};
use super::listeners::{Address, LISTENERS, ListenerStatus, ListenerStatuses};
use super::server_info::{CommandLineOptions, ServerInfo};
use crate::kernel::Sockets;
use crate::settings::admin_address::{AdminAddress, EnvoyFlags};

/// What is at an address: an Envoy, or what else has answered.
pub(super) type Answer = Result<EnvoyAnswer, CallError>;

/// The responses of an Envoy at an address. A field is `None` if `admin.allow_paths` forbids its path.
#[derive(Debug, Clone)]
pub(crate) struct EnvoyAnswer {
    pub(crate) address: AdminAddress,
    /// The manifest places the admin interface there.
    pub(crate) is_hint: bool,
    pub(crate) asked_at: Instant,
    /// When this process started, by its uptime.
    started_at: Option<Instant>,
    /// Its version, and how it was started.
    program: Option<(String, CommandLineOptions)>,
    /// Where its listeners are bound.
    pub(super) listeners: Option<Vec<AdminAddress>>,
    /// Where its bootstrap places the admin interface; also `None` for a port that the kernel chooses, and for a Unix socket
    /// in a volume, whose path depends on the container.
    pub(super) admin: Option<AdminAddress>,
}

/// How long an address may take to answer as an Envoy does.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum size of an answer in bytes, of which there may be 64 at a time: `/server_info` has 124 kB.
const MAX_BODY: usize = 256 << 10;

/// The end of the text with which an Envoy denies a path that is not in its `admin.allow_paths`.
/// <https://github.com/envoyproxy/envoy/blob/v1.40.0/source/server/admin/admin.cc>
const NOT_ALLOWED: &str = "request to path /server_info not allowed";

/// How much two starts of a process may differ by its uptime, which is in whole seconds and known after a call.
const UPTIME_TOLERANCE: Duration = Duration::from_secs(2);

async fn get(address: &AdminAddress, path: &str) -> Result<Bytes, CallError> {
    call(address, Method::GET, path, PROBE_TIMEOUT, MAX_BODY).await
}

/// Asks what answers at an address, each time with a timeout. Returns an error unless it is an Envoy.
pub(super) async fn ask(address: &AdminAddress, is_hint: bool) -> Answer {
    let asked_at = Instant::now();
    let info = match get(address, "/server_info").await {
        Err(CallError::Forbidden(text)) if text.ends_with(NOT_ALLOWED) => None,
        body => Some(ServerInfo::read(&body?).map_err(CallError::invalid("not an Envoy"))?),
    };
    let listeners = or_rejection(listeners(address).await)?;
    let dump = or_rejection(get(address, "/config_dump?mask=bootstrap.admin").await)?;
    let uptime = info.as_ref().and_then(ServerInfo::uptime);
    Ok(EnvoyAnswer {
        address: address.clone(),
        is_hint,
        asked_at,
        started_at: uptime.and_then(|uptime| asked_at.checked_sub(uptime)),
        program: info.map(|it| (it.version, it.command_line_options)),
        listeners: listeners.ok(),
        admin: dump.ok().and_then(|dump| configured_admin(&dump)),
    })
}

/// The addresses of the listeners of the Envoy whose admin interface is at an address.
async fn listeners(address: &AdminAddress) -> Result<Vec<AdminAddress>, CallError> {
    let body = get(address, LISTENERS).await?;
    let read = serde_json::from_slice::<ListenerStatuses>(&body);
    let read = read.map_err(CallError::invalid("listeners"))?;
    let all = read.listener_statuses.iter();
    Ok(all.flat_map(ListenerStatus::addresses).collect())
}

/// Where the bootstrap in a `/config_dump` places the admin interface.
fn configured_admin(dump: &[u8]) -> Option<AdminAddress> {
    let dump: Value = serde_json::from_slice(dump).ok()?;
    let address = dump.pointer("/configs/0/bootstrap/admin/address")?;
    let admin = Address::deserialize(address).ok()?.to_admin_address();
    admin.filter(|it| it.port() != Some(0) && !matches!(it, AdminAddress::Path(_)))
}

// === impl EnvoyAnswer ===

impl EnvoyAnswer {
    /// Returns itself if this is the admin interface of the pod's Envoy. `sockets` are those that listen in the pod, if they
    /// are known. On a node's network, `flags` are those of the pod's Envoy, as far as they are known.
    pub(super) fn verify(self, sockets: Option<&Sockets>, flags: Option<&EnvoyFlags>) -> Answer {
        let listens = |it: &AdminAddress| sockets.is_none_or(|all| all.contains_key(it));
        let options = self.program.as_ref().map(|(_, options)| &options.others);
        let is_own = |flags: &EnvoyFlags| {
            let mut flags = flags.iter();
            options.is_some_and(|all| flags.all(|(name, value)| all.get(name) == Some(value)))
        };
        let is_there = |it: &AdminAddress| it.covers(&self.address);
        let objection = match (&self.listeners, &self.admin) {
            (Some(all), _) if all.iter().any(is_there) => "it has a listener",
            (Some(all), _) if !all.iter().any(listens) => "none of its listeners is in this pod",
            (_, Some(admin)) if !is_there(admin) => "its admin interface is elsewhere",
            (None, None) if !self.is_hint => "it forbids /listeners",
            _ if !flags.is_none_or(is_own) => "its command line is not the pod's",
            _ => return Ok(self),
        };
        let address = &self.address;
        Err(CallError::Unproved(format!("at {address}, {objection}")))
    }

    /// Returns true if the other is an answer of the same process: they agree in all but the uptime, and in that. Two that
    /// show different places of the admin interface, each its own address, contradict each other.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let started_at = self.started_at.zip(other.started_at);
        let admins = self.admin.as_ref().zip(other.admin.as_ref());
        started_at.is_some_and(|(a, b)| a.max(b) - a.min(b) < UPTIME_TOLERANCE)
            && self.program == other.program
            && self.listeners == other.listeners
            && admins.is_none_or(|(a, b)| a == b)
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

    /// A server that sends these bytes for `/server_info` and 404 for other paths.
    async fn answer(bytes: &'static [u8]) -> String {
        match ask(&serve(Some(bytes)).await, false).await {
            Ok(envoy) if envoy.program.is_none() => "forbidding".to_owned(),
            Ok(_) => "envoy".to_owned(),
            Err(error) => format!("{error:?}"),
        }
    }

    #[tokio::test]
    async fn envoy_is_told_from_servers_that_answer_otherwise_or_not() {
        for (bytes, want) in [
            (&b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"[..], "Forbidden"),
            (
                b"HTTP/1.1 403 Forbidden\r\ncontent-length: 40\r\n\r\nrequest to path /server_info not allowed",
                "forbidding",
            ),
            (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "Rejected(\"404"),
            (b"HTTP/1.1 200 OK\r\n\r\n{\"version\": \"1.0\"}", "Rejected(\"not an Envoy"),
            (
                b"HTTP/1.1 200 OK\r\n\r\n{\"version\": \"a/1.40.0/b\", \"command_line_options\": {\"drain_time\": \"600s\"}}",
                "envoy",
            ),
            // Of HTTP/2, and of TLS.
            (b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0", "Http(NotHttp"),
            (b"\x15\x03\x01\0\x02\x02\x46", "Http(NotHttp"),
            // An Envoy at its limit of connections closes them, and another may be overloaded.
            (b"", "Http(NoResponse"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "Http(NoResponse"),
            (b"HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n", "Http(NoResponse"),
        ] {
            let answer = answer(bytes).await;
            assert!(answer.starts_with(want), "{}: {answer}", bytes.escape_ascii());
        }
        let silent = serve(None).await;
        assert!(
            ask(&silent, false)
                .await
                .is_err_and(|error| error.is_silence())
        );
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let refusing = AdminAddress::Tcp(free.local_addr().unwrap());
        drop(free);
        assert!(
            ask(&refusing, false)
                .await
                .is_err_and(|error| error.is_refusal())
        );
    }

    #[test]
    fn configured_admin_has_an_address_that_does_not_change() {
        let tcp = |port: u16| {
            format!(r#"{{"socket_address": {{"address": "0.0.0.0", "port_value": {port}}}}}"#)
        };
        for (address, want) in [
            (tcp(9901), Some("0.0.0.0:9901")),
            (tcp(0), None),
            (
                r#"{"pipe": {"path": "@admin", "mode": 438}}"#.to_owned(),
                Some("unix:@admin"),
            ),
            (r#"{"pipe": {"path": "/run/admin.sock"}}"#.to_owned(), None),
            ("null".to_owned(), None),
        ] {
            let dump = format!(
                r#"{{"configs": [{{"bootstrap": {{"admin": {{"address": {address}}}}}}}]}}"#
            );
            let admin = configured_admin(dump.as_bytes()).map(|it| it.to_string());
            assert_eq!(admin.as_deref(), want);
        }
        assert_eq!(configured_admin(b"{}"), None);
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
