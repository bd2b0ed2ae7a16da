//! Envoy's listeners from `/config_dump`: their names in statistics, and which of them are counted.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Error, IgnoredAny};

use crate::listener_selector::ListenerSelector;

/// Maximum number of listeners in a dump, more than any Envoy of a pod has.
const MAX_LISTENERS: usize = 4096;

/// A listener of `/config_dump`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Listener {
    /// Its name, which does not appear in statistics.
    pub name: String,
    /// Its name in statistics; if empty, that is its address.
    pub stat_prefix: String,
    /// Which drains it takes part in.
    pub drain_type: DrainType,
    udp_listener_config: UdpListenerConfig,
    address: Address,
    additional_addresses: Vec<AdditionalAddress>,
}

/// The drains in which a listener closes connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum DrainType {
    /// On `/healthcheck/fail` and on `/drain_listeners`.
    #[default]
    Default,
    /// On `/drain_listeners` only, by `--drain-strategy`.
    ModifyOnly,
}

/// All known listeners, with the selectors of those that are not counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct EnvoyListeners {
    /// By the name in statistics; several listeners may share one.
    by_stat_name: Arc<BTreeMap<String, Vec<Listener>>>,
    ignored: Vec<ListenerSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct UdpListenerConfig {
    quic_options: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Address {
    socket_address: Option<SocketAddress>,
    pipe: Option<Pipe>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AdditionalAddress {
    address: Address,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SocketAddress {
    address: String,
    port_value: u16,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Pipe {
    path: String,
}

/// `/config_dump?resource=static_listeners` or `dynamic_listeners`.
#[derive(Deserialize)]
struct ConfigDump {
    #[serde(default)]
    configs: Vec<ConfigEntry>,
}

#[derive(Deserialize)]
struct ConfigEntry {
    listener: Option<Listener>,
    active_state: Option<ActiveState>,
}

#[derive(Deserialize)]
struct ActiveState {
    listener: Option<Listener>,
}

/// Parses the listeners of one `/config_dump` response, static or dynamic.
///
/// # Errors
/// If it is not such a response.
pub(crate) fn read(body: &[u8]) -> Result<Vec<Listener>, serde_json::Error> {
    let dump: ConfigDump = serde_json::from_slice(body)?;
    if dump.configs.len() > MAX_LISTENERS {
        return Err(Error::custom("too many listeners"));
    }
    let entries = dump.configs.into_iter();
    let listeners =
        entries.filter_map(|entry| entry.listener.or_else(|| entry.active_state?.listener));
    Ok(listeners.collect())
}

// === impl EnvoyListeners ===

impl EnvoyListeners {
    /// Indexes `listeners`, of which those that `ignored` selects are not counted.
    pub(crate) fn new(listeners: Vec<Listener>, ignored: Vec<ListenerSelector>) -> Self {
        let mut by_stat_name = BTreeMap::<_, Vec<_>>::new();
        for listener in listeners {
            by_stat_name
                .entry(listener.stat_name())
                .or_default()
                .push(listener);
        }
        Self {
            by_stat_name: Arc::new(by_stat_name),
            ignored,
        }
    }

    /// Returns true if the listeners with this name in statistics are not counted: those bound to a
    /// loopback address, which serve the pod's own outbound traffic; internal ones, whose connections
    /// another listener has counted already; and those that are ignored. Listeners that share a name are excluded
    /// only if all of them are.
    pub(crate) fn excludes(&self, stat_name: &str) -> bool {
        let is_excluded = |it: &Listener| it.is_loopback() || it.is_internal() || self.ignores(it);
        match self.by_stat_name.get(stat_name) {
            Some(sharing) => sharing.iter().all(is_excluded),
            None => is_excluded(&Listener::unlisted(stat_name)),
        }
    }

    /// Returns the counted listeners by their names in statistics.
    fn counted(&self) -> impl Iterator<Item = (&str, &[Listener])> {
        let all = self.by_stat_name.iter();
        all.map(|(name, sharing)| (name.as_str(), sharing.as_slice()))
            .filter(|(name, _)| !self.excludes(name))
    }

    /// Returns the names of the counted listeners in statistics.
    pub(crate) fn counted_names(&self) -> impl Iterator<Item = &str> {
        self.counted().map(|(name, _)| name)
    }

    /// Returns true if a listener has this name in statistics.
    pub(crate) fn contains(&self, stat_name: &str) -> bool {
        self.by_stat_name.contains_key(stat_name)
    }

    /// Returns true if a counted listener is bound to `port`.
    pub(crate) fn counts_port(&self, port: NonZeroU16) -> bool {
        let mut listeners = self.counted().flat_map(|(_, sharing)| sharing);
        listeners.any(|listener| listener.has_port(port))
    }

    /// Returns the names of counted listeners that meet a condition.
    pub(crate) fn names_where(&self, condition: impl Fn(&Listener) -> bool) -> Vec<&str> {
        let listeners = self.counted().flat_map(|(_, sharing)| sharing);
        let found = listeners.filter(|listener| condition(listener));
        found.map(|listener| listener.name.as_str()).collect()
    }

    fn ignores(&self, listener: &Listener) -> bool {
        self.ignored.iter().any(|selector| match selector {
            ListenerSelector::Port(port) => listener.has_port(*port),
            ListenerSelector::Name(name) => {
                *name == listener.name
                    || *name == listener.stat_prefix
                    || *name == listener.stat_name()
            }
        })
    }
}

// === impl Listener ===

/// Prefix of the names of internal listeners in statistics.
const INTERNAL_PREFIX: &str = "envoy_internal_";

impl Listener {
    /// A listener that is not in the dump, since the admin interface denied that or the listener was removed: what its name
    /// in statistics says.
    fn unlisted(stat_name: &str) -> Self {
        let address = |(ip, port_value): (IpAddr, u16)| SocketAddress {
            address: ip.to_string(),
            port_value,
        };
        Self {
            name: stat_name.to_owned(),
            address: Address {
                socket_address: ip_and_port(stat_name).map(address),
                pipe: (!stat_name.starts_with(INTERNAL_PREFIX)).then(Pipe::default),
            },
            ..Self::default()
        }
    }

    /// Returns the name in statistics, between `listener.` and the statistic: the `stat_prefix`, else
    /// the first address in its shortest form, with `_` for `:`. Checked with Envoy 1.36 to
    /// 1.40.
    fn stat_name(&self) -> String {
        if !self.stat_prefix.is_empty() {
            return without_colons(&self.stat_prefix);
        }
        match (&self.address.socket_address, &self.address.pipe) {
            (Some(at), _) if at.address.contains(':') => {
                let address = match at.address.parse::<Ipv6Addr>() {
                    Ok(ip) => ip.to_string(),
                    Err(_) => at.address.clone(),
                };
                format!("[{}]_{}", without_colons(&address), at.port_value)
            }
            (Some(at), _) => format!("{}_{}", at.address, at.port_value),
            (None, Some(pipe)) => without_colons(&pipe.path),
            (None, None) => format!("{INTERNAL_PREFIX}{}", self.name),
        }
    }

    fn addresses(&self) -> impl Iterator<Item = &Address> {
        let additional = self.additional_addresses.iter().map(|more| &more.address);
        std::iter::once(&self.address).chain(additional)
    }

    fn is_loopback(&self) -> bool {
        self.addresses().all(|address| {
            let ip = address.socket_address.as_ref().map(|at| at.address.parse());
            matches!(ip, Some(Ok::<IpAddr, _>(ip)) if ip.is_loopback())
        })
    }

    fn is_internal(&self) -> bool {
        // No other listener has neither.
        self.address.socket_address.is_none() && self.address.pipe.is_none()
    }

    /// Returns true if it speaks QUIC, and HTTP/3 over it. A UDP proxy does not.
    pub(crate) fn speaks_quic(&self) -> bool {
        self.udp_listener_config.quic_options.is_some()
    }

    fn has_port(&self, port: NonZeroU16) -> bool {
        self.addresses().any(|address| {
            let at = address.socket_address.as_ref();
            at.is_some_and(|at| at.port_value == port.get())
        })
    }
}

/// Sanitises a name as Envoy does for statistics.
/// <https://github.com/envoyproxy/envoy/blob/main/source/common/stats/utility.cc>
fn without_colons(name: &str) -> String {
    name.replace("://", "_")
        .replace(":/", "_")
        .replace(':', "_")
}

/// Parses names in statistics like `127.0.0.1_8080` and `[__1]_8080`.
fn ip_and_port(stat_name: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = stat_name.rsplit_once('_')?;
    let ip = match ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')) {
        Some(ip) => ip.replace('_', ":").parse().ok()?,
        None => ip.parse().ok()?,
    };
    Some((ip, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATIC: &str = r#"{"configs": [
        {"@type": "x", "listener": {"name": "web", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 8080}}}},
        {"listener": {"name": "own", "address": {"socket_address": {"address": "127.0.0.2", "port_value": 81}}}},
        {"listener": {"name": "own6", "stat_prefix": "outbound", "address": {"socket_address": {"address": "::1", "port_value": 82}}}},
        {"listener": {"name": "any6", "drain_type": "MODIFY_ONLY", "address": {"socket_address": {"address": "::", "port_value": 83}}}},
        {"listener": {"name": "two", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 84}},
            "additional_addresses": [{"address": {"socket_address": {"address": "10.0.0.1", "port_value": 85}}}]}},
        {"listener": {"name": "quic", "udp_listener_config": {"quic_options": {"enabled": {}}, "x": 1},
            "address": {"socket_address": {"protocol": "UDP", "address": "0.0.0.0", "port_value": 443}}}},
        {"listener": {"name": "udp-proxy", "udp_listener_config": {"downstream_socket_config": {}},
            "address": {"socket_address": {"protocol": "UDP", "address": "0.0.0.0", "port_value": 53}}}},
        {"listener": {"name": "long", "address": {"socket_address": {"address": "0:0:0:0:0:0:0:0", "port_value": 88}}}},
        {"listener": {"name": "colons", "stat_prefix": "a:b://c:/d", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 89}}}},
        {"listener": {"name": "sock", "address": {"pipe": {"path": "@x:y"}}}},
        {"listener": {"name": "inner", "internal_listener": {}}},
        {"listener": {"name": "s1", "stat_prefix": "shared", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 86}}}},
        {"listener": {"name": "s2", "stat_prefix": "shared", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 87}}}}
    ]}"#;
    const DYNAMIC: &str = r#"{"configs": [
        {"name": "d", "active_state": {"version_info": "1", "listener": {"name": "d", "stat_prefix": "my.prefix",
            "address": {"socket_address": {"address": "0.0.0.0", "port_value": 90}}}}},
        {"name": "warming", "warming_state": {}}
    ]}"#;

    fn listeners(ignored: &str) -> EnvoyListeners {
        let mut all = read(STATIC.as_bytes()).unwrap();
        all.extend(read(DYNAMIC.as_bytes()).unwrap());
        EnvoyListeners::new(all, crate::value::parse_list(ignored).unwrap())
    }

    #[test]
    fn exclusions_match_exactly() {
        let table = [
            // (ignored, name in statistics, excluded)
            ("", "0.0.0.0_8080", false),
            ("", "127.0.0.2_81", true),
            ("", "outbound", true),
            ("", "[__]_83", false),
            ("", "127.0.0.1_84", false),
            ("", "@x_y", false),
            ("", "envoy_internal_inner", true),
            ("", "shared", false),
            ("long", "[__]_88", true),
            ("", "a_b_c_d", true),
            ("", "my.prefix", false),
            // Not in the dump:
            ("", "127.0.0.1_9", true),
            ("", "[__1]_9", true),
            ("", "0.0.0.0_9", false),
            ("", "envoy_internal_x", true),
            ("", "myadmin", false),
            ("9", "0.0.0.0_9", true),
            ("9", "0.0.0.0_99", false),
            ("removed", "removed", true),
            ("web", "0.0.0.0_8080", true),
            ("8080", "0.0.0.0_8080", true),
            ("80", "0.0.0.0_8080", false),
            ("we", "0.0.0.0_8080", false),
            ("my.prefix", "my.prefix", true),
            ("d", "my.prefix", true),
            ("90", "my.prefix", true),
            ("85", "127.0.0.1_84", true),
            ("s2", "shared", true),
        ];
        for (ignored, stat_name, excluded) in table {
            let got = listeners(ignored).excludes(stat_name);
            assert_eq!(got, excluded, "{stat_name}, ignoring `{ignored}`");
        }
    }

    #[test]
    fn ports_and_drain_types_of_counted_listeners_only() {
        let all = listeners("90");
        let counts = |port| all.counts_port(NonZeroU16::new(port).unwrap());
        assert!(counts(8080) && counts(85) && counts(87));
        assert!(!counts(81) && !counts(90) && !counts(9999));
        let modify_only = |it: &Listener| it.drain_type == DrainType::ModifyOnly;
        assert_eq!(all.names_where(modify_only), ["any6"]);
        assert_eq!(all.names_where(Listener::speaks_quic), ["quic"]);
        assert!(listeners("83").names_where(modify_only).is_empty());
        assert!(all.contains("my.prefix") && !all.contains("my"));
        let counted: Vec<_> = all.counted_names().collect();
        assert_eq!(
            counted,
            [
                "0.0.0.0_443",
                "0.0.0.0_53",
                "0.0.0.0_8080",
                "127.0.0.1_84",
                "@x_y",
                "[__]_83",
                "[__]_88",
                "shared"
            ]
        );
    }
}
