//! One listener of an Envoy under test.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::bootstrap::{HEALTH_PATH, socket_address};
use crate::port::Port;
use crate::test_ca::{Leaf, TestCa};

/// What Envoy answers to [`DIRECT_PATH`], and to everything where it has no upstream.
pub const DIRECT_RESPONSE: &str = "answered by Envoy";

/// A path that Envoy answers itself.
pub const DIRECT_PATH: &str = "/direct";

const HCM: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TCP_PROXY: &str =
    "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
const HEALTH_CHECK: &str =
    "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck";
const QUIC: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

/// A listener on a port of its own. It is bound to all addresses, as a pod's is: one bound to a
/// loopback address is the pod's own way out, which the drainer does not wait for.
#[derive(Debug)]
pub struct Listener {
    name: String,
    port: Port,
    ip: IpAddr,
    protocol: Protocol,
    modify_only: bool,
    stat_prefix: Option<String>,
    http_stat_prefix: Option<String>,
    idle_timeout: Option<Duration>,
    send_buffer: Option<usize>,
    /// Of HTTP/3 alone.
    certificate: Option<Leaf>,
}

/// What a listener understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/2 without TLS.
    Http,
    /// HTTP/3, over UDP.
    Http3,
    /// Bytes.
    Tcp,
}

/// A listener for HTTP/1.1, HTTP/2 without TLS, and upgrades.
///
/// # Errors
/// When there is no free port.
pub fn http(name: &str) -> io::Result<Listener> {
    Listener::new(name, Protocol::Http)
}

/// A listener for HTTP/3, with a certificate of its own.
///
/// # Errors
/// When there is no free port, or no certificate.
pub fn http3(name: &str) -> Result<Listener> {
    let mut listener = Listener::new(name, Protocol::Http3)?;
    listener.certificate = Some(TestCa::new()?.issue_leaf_for("edge.shop")?);
    Ok(listener)
}

/// A listener that passes TCP connections on to the upstream's echo; it needs an upstream.
///
/// # Errors
/// When there is no free port.
pub fn tcp(name: &str) -> io::Result<Listener> {
    Listener::new(name, Protocol::Tcp)
}

// === impl Listener ===

impl Listener {
    fn new(name: &str, protocol: Protocol) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            port: Port::free()?,
            ip: Ipv4Addr::UNSPECIFIED.into(),
            protocol,
            modify_only: false,
            stat_prefix: None,
            http_stat_prefix: None,
            idle_timeout: None,
            send_buffer: None,
            certificate: None,
        })
    }

    /// Uses this port.
    #[must_use]
    pub fn port(mut self, port: Port) -> Self {
        self.port = port;
        self
    }

    /// Binds 127.0.0.1 only, as a pod's own way out does.
    #[must_use]
    pub fn loopback(mut self) -> Self {
        self.ip = Ipv4Addr::LOCALHOST.into();
        self
    }

    /// Binds `[::]`; clients are then told `[::1]`.
    #[must_use]
    pub fn ipv6(mut self) -> Self {
        self.ip = Ipv6Addr::UNSPECIFIED.into();
        self
    }

    /// Gives it the drain type MODIFY_ONLY: it ignores `/healthcheck/fail`.
    #[must_use]
    pub fn modify_only(mut self) -> Self {
        self.modify_only = true;
        self
    }

    /// Names its statistics `listener.PREFIX.*` rather than after its address.
    #[must_use]
    pub fn stat_prefix(mut self, prefix: &str) -> Self {
        self.stat_prefix = Some(prefix.to_owned());
        self
    }

    /// Names the statistics of its requests `http.PREFIX.*` rather than after the listener.
    #[must_use]
    pub fn http_stat_prefix(mut self, prefix: &str) -> Self {
        self.http_stat_prefix = Some(prefix.to_owned());
        self
    }

    /// Closes a connection that is idle for so long, rather than for an hour.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Asks the kernel for send buffers of so many bytes, so that what a slow client has not read
    /// yet is in Envoy.
    #[must_use]
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where clients reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let ip: IpAddr = match self.ip {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        (ip, self.port.number()).into()
    }

    /// The listener as Envoy reads it.
    pub(crate) fn json(&self, has_upstream: bool) -> Value {
        let filter = match self.protocol {
            Protocol::Http | Protocol::Http3 => self.connection_manager(has_upstream),
            Protocol::Tcp => json!({
                "@type": TCP_PROXY,
                "stat_prefix": self.name,
                "cluster": "upstream_tcp",
            }),
        };
        let mut listener = json!({
            "name": self.name,
            "address": socket_address(self.ip, self.port.number()),
            "filter_chains": [{ "filters": [{ "name": "filter", "typed_config": filter }] }],
        });
        if let Some(Leaf {
            certificate, key, ..
        }) = &self.certificate
        {
            listener["address"]["socket_address"]["protocol"] = json!("UDP");
            listener["udp_listener_config"] = json!({ "quic_options": {} });
            let certificate = json!({
                "certificate_chain": { "inline_string": certificate },
                "private_key": { "inline_string": key },
            });
            listener["filter_chains"][0]["transport_socket"] = json!({
                "name": "quic",
                "typed_config": {
                    "@type": QUIC,
                    "downstream_tls_context": {
                        "common_tls_context": { "tls_certificates": [certificate] },
                    },
                },
            });
        }
        if self.modify_only {
            listener["drain_type"] = json!("MODIFY_ONLY");
        }
        if let Some(bytes) = self.send_buffer {
            // SOL_SOCKET, SO_SNDBUF
            listener["socket_options"] = json!([{ "level": 1, "name": 7, "int_value": bytes }]);
        }
        if let Some(prefix) = &self.stat_prefix {
            listener["stat_prefix"] = json!(prefix);
        }
        listener
    }

    fn connection_manager(&self, has_upstream: bool) -> Value {
        let direct = json!({ "status": 200, "body": { "inline_string": DIRECT_RESPONSE } });
        let direct =
            |prefix: &str| json!({ "match": { "prefix": prefix }, "direct_response": direct });
        let mut routes = vec![direct(DIRECT_PATH)];
        routes.push(if has_upstream {
            json!({ "match": { "prefix": "/" }, "route": { "cluster": "upstream", "timeout": "0s" } })
        } else {
            direct("/")
        });
        let mut manager = json!({
            "@type": HCM,
            "stat_prefix": self.http_stat_prefix.as_ref().unwrap_or(&self.name),
            "codec_type": match self.protocol {
                Protocol::Http3 => "HTTP3",
                Protocol::Http | Protocol::Tcp => "AUTO",
            },
            "upgrade_configs": [{ "upgrade_type": "echo" }],
            "route_config": {
                "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": routes }],
            },
            "http_filters": [
                { "name": "health", "typed_config": {
                    "@type": HEALTH_CHECK,
                    "pass_through_mode": false,
                    "headers": [{ "name": ":path", "string_match": { "exact": HEALTH_PATH } }],
                } },
                { "name": "router", "typed_config": { "@type": ROUTER } },
            ],
        });
        if let Some(timeout) = self.idle_timeout {
            manager["common_http_protocol_options"] =
                json!({ "idle_timeout": format!("{}s", timeout.as_secs_f64()) });
        }
        manager
    }
}
