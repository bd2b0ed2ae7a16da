//! A builder of one listener of Envoy's configuration.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value, json};

use ::load::Protocol;

use crate::port::Port;
use crate::test_ca::{Leaf, TestCa};

/// Envoy's response to [`DIRECT_PATH`], and to every path without an upstream.
pub const DIRECT_RESPONSE: &str = "answered by Envoy";

/// The path of each HTTP listener for readiness probes: 200, or 503 after `/healthcheck/fail` was called.
pub const HEALTH_PATH: &str = "/ready";

/// A path to which Envoy responds itself.
pub const DIRECT_PATH: &str = "/direct";

const HCM: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TCP_PROXY: &str =
    "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
const REDIS_PROXY: &str =
    "type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy";
const HEALTH_CHECK: &str =
    "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck";
const QUIC: &str =
    "type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport";
const UDP_PROXY: &str =
    "type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig";
const UDP_ROUTE: &str = "type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

/// A listener on its own port, of unspecified direction. It is bound to all addresses, as those of pods are; beside
/// such a one, the drainer takes one on a loopback address for the pod's outgoing traffic.
#[derive(Debug)]
pub struct Listener {
    name: String,
    port: Arc<Port>,
    ip: Ipv4Addr,
    protocol: Protocol,
    /// For HTTP/3 only.
    certificate: Option<Leaf>,
    /// Further fields, which replace others.
    fields: Map<String, Value>,
    /// The same of the HTTP connection manager.
    manager_fields: Map<String, Value>,
}

/// A listener for HTTP/1.1, HTTP/2 without TLS, and upgrades.
///
/// # Errors
/// When there is no free port.
pub fn http(name: &str) -> io::Result<Listener> {
    Listener::new(name, Protocol::Http)
}

/// A listener for HTTP/3, with its own certificate.
///
/// # Errors
/// When there is no free port, or no certificate can be issued.
pub fn http3(name: &str) -> Result<Listener> {
    let mut listener = Listener::new(name, Protocol::Http3)?;
    listener.certificate = Some(TestCa::new()?.issue_leaf_for("edge.shop")?);
    Ok(listener)
}

/// A listener that proxies TCP connections to the echo of the upstream, which it needs.
///
/// # Errors
/// When there is no free port.
pub fn tcp(name: &str) -> io::Result<Listener> {
    Listener::new(name, Protocol::Tcp)
}

/// A listener for Redis, which answers PING itself.
///
/// # Errors
/// When there is no free port.
pub fn redis(name: &str) -> io::Result<Listener> {
    let proxy = json!({
        "@type": REDIS_PROXY,
        "stat_prefix": name,
        "settings": { "op_timeout": "1s" },
        "prefix_routes": { "catch_all_route": { "cluster": "upstream_tcp" } },
    });
    let chain = json!({ "filters": [{ "name": "redis", "typed_config": proxy }] });
    Ok(Listener::new(name, Protocol::Tcp)?.field("filter_chains", json!([chain])))
}

/// A listener that proxies UDP sessions to the upstream, which it needs, under the prefix `udp.NAME` in statistics. A
/// session ends when no datagram has come for `idle_timeout`.
///
/// # Errors
/// When there is no free port.
pub fn udp(name: &str, idle_timeout: Duration) -> io::Result<Listener> {
    let listener = Listener::new(name, Protocol::Tcp)?;
    let mut address = socket_address(listener.ip, listener.port.number());
    address["socket_address"]["protocol"] = json!("UDP");
    let route = json!({ "@type": UDP_ROUTE, "cluster": "upstream_tcp" });
    let proxy = json!({
        "@type": UDP_PROXY,
        "stat_prefix": name,
        "idle_timeout": seconds(idle_timeout),
        "matcher": { "on_no_match": { "action": { "name": "route", "typed_config": route } } },
    });
    Ok(listener
        .field("address", address)
        .field(
            "udp_listener_config",
            json!({ "downstream_socket_config": {} }),
        )
        .field("filter_chains", json!([]))
        .field(
            "listener_filters",
            json!([{ "name": "proxy", "typed_config": proxy }]),
        ))
}

/// The transport socket of a QUIC listener with this certificate and key, both PEM.
pub fn quic_socket(certificate: &str, key: &str) -> Value {
    let certificate = json!({
        "certificate_chain": { "inline_string": certificate },
        "private_key": { "inline_string": key },
    });
    json!({
        "name": "quic",
        "typed_config": {
            "@type": QUIC,
            "downstream_tls_context": {
                "common_tls_context": { "tls_certificates": [certificate] },
            },
        },
    })
}

pub(crate) fn socket_address(ip: impl Into<IpAddr>, port: u16) -> Value {
    json!({ "socket_address": { "address": ip.into(), "port_value": port } })
}

// === impl Listener ===

impl Listener {
    fn new(name: &str, protocol: Protocol) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            port: Arc::new(Port::free()?),
            ip: Ipv4Addr::UNSPECIFIED,
            protocol,
            certificate: None,
            fields: Map::new(),
            manager_fields: Map::new(),
        })
    }

    /// Sets the port.
    pub fn port(mut self, port: Port) -> Self {
        self.port = Arc::new(port);
        self
    }

    /// Sets the port of another listener, whose transport protocol differs.
    pub fn port_of(mut self, other: &Self) -> Self {
        self.port = Arc::clone(&other.port);
        self
    }

    /// Binds 127.0.0.1 only, as listeners for outgoing traffic do.
    pub fn loopback(mut self) -> Self {
        self.ip = Ipv4Addr::LOCALHOST;
        self
    }

    /// Binds a Unix socket in place of its port.
    pub fn pipe(self, path: &Path) -> Self {
        self.field("address", json!({ "pipe": { "path": path } }))
    }

    /// Sets the direction, `INBOUND` or `OUTBOUND`.
    pub fn direction(self, direction: &str) -> Self {
        self.field("traffic_direction", json!(direction))
    }

    /// Sets the drain type MODIFY_ONLY, which ignores `/healthcheck/fail`.
    pub fn modify_only(self) -> Self {
        self.field("drain_type", json!("MODIFY_ONLY"))
    }

    /// Names its statistics `listener.PREFIX.*` instead of after its address.
    pub fn stat_prefix(self, prefix: &str) -> Self {
        self.field("stat_prefix", json!(prefix))
    }

    /// Names the statistics of its requests `http.PREFIX.*` instead of after the listener.
    pub fn http_stat_prefix(self, prefix: &str) -> Self {
        self.manager_field("stat_prefix", json!(prefix))
    }

    /// Sets the size of the kernel's send buffers in bytes, so that data which a slow client has not read stays in
    /// Envoy.
    pub fn send_buffer(self, bytes: usize) -> Self {
        // SOL_SOCKET and SO_SNDBUF
        let option = json!({ "level": 1, "name": 7, "int_value": bytes });
        self.field("socket_options", json!([option]))
    }

    fn field(mut self, name: &str, value: Value) -> Self {
        self.fields.insert(name.to_owned(), value);
        self
    }

    fn manager_field(mut self, name: &str, value: Value) -> Self {
        self.manager_fields.insert(name.to_owned(), value);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address for clients.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// The configuration as JSON.
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
            listener["filter_chains"][0]["transport_socket"] = quic_socket(certificate, key);
        }
        replace_fields(&mut listener, &self.fields);
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
            "stat_prefix": self.name,
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
        replace_fields(&mut manager, &self.manager_fields);
        manager
    }
}

fn replace_fields(object: &mut Value, fields: &Map<String, Value>) {
    for (name, value) in fields {
        object[name] = value.clone();
    }
}

/// A duration of Envoy's configuration.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}
