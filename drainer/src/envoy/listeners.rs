//! Envoy's listeners from `/config_dump`: their names in statistics, and which of them are counted.

use std::collections::BTreeMap;
use std::iter::once;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::kernel::witness::ListenAddresses;
use crate::settings::admin_address::AdminAddress;
use crate::settings::listener_selector::ListenerSelector;

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
    traffic_direction: TrafficDirection,
    /// Its keys.
    udp_listener_config: BTreeMap<String, IgnoredAny>,
    listener_filters: Vec<ListenerFilter>,
    /// It hands connections over to the listener at their original destination.
    use_original_dst: bool,
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

/// The direction of a listener's traffic, as its configuration says.
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/core/v3/base.proto#envoy-v3-api-enum-config-core-v3-trafficdirection>
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum TrafficDirection {
    Inbound,
    Outbound,
    #[default]
    #[serde(other)]
    Unspecified,
}

/// Which listeners are counted, besides what Envoy says of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CountingRules {
    /// Counted, whatever their direction and address.
    pub counted: Vec<ListenerSelector>,
    /// Not counted, even if they are among `counted`.
    pub ignored: Vec<ListenerSelector>,
    /// The pod uses the node's network, so that other pods reach its loopback addresses.
    pub host_network: bool,
}

/// All known listeners, and which of them are counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct EnvoyListeners {
    /// By the name in statistics; several listeners may share one.
    by_stat_name: Arc<BTreeMap<String, Vec<Listener>>>,
    /// Whether the sessions of a UDP proxy are counted, by its `stat_prefix`.
    pub udp_proxies: Arc<BTreeMap<String, bool>>,
    pub rules: CountingRules,
    /// Listeners of unspecified direction are counted on loopback addresses and pipes too.
    counts_local: bool,
    /// Where they are bound; empty if Envoy does not tell.
    pub addresses: ListenAddresses,
}

/// The path of Envoy's listeners and their addresses, in a few bytes each.
pub(super) const LISTENERS: &str = "/listeners?format=json";

/// The response to [`LISTENERS`].
/// <https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/listeners.proto>
#[derive(Default, Deserialize)]
pub(super) struct ListenerStatuses {
    /// Absent if there is none.
    #[serde(default)]
    pub(super) listener_statuses: Vec<ListenerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ListenerStatus {
    name: String,
    local_address: Address,
    additional_local_addresses: Vec<Address>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ListenerFilter {
    typed_config: FilterConfig,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct FilterConfig {
    #[serde(rename = "@type")]
    type_url: String,
    stat_prefix: String,
}

#[derive(Debug, Clone, Default, Deserialize, PartialEq)]
pub(super) struct Address {
    socket_address: Option<SocketAddress>,
    pipe: Option<Pipe>,
}

#[derive(Debug, Clone, Deserialize)]
struct AdditionalAddress {
    address: Address,
}

#[derive(Debug, Clone, Default, Deserialize, PartialEq)]
#[serde(default)]
struct SocketAddress {
    address: String,
    port_value: u16,
}

#[derive(Debug, Clone, Deserialize, PartialEq)]
struct Pipe {
    path: String,
}

/// `/config_dump?resource=static_listeners` or `dynamic_listeners`.
#[derive(Deserialize)]
struct ConfigDump {
    #[serde(default)]
    configs: Vec<ConfigEntry>,
}

/// A static listener, a dynamic one, or a state of that. One that LDS has removed drains for a while.
#[derive(Deserialize)]
struct ConfigEntry {
    listener: Option<Listener>,
    active_state: Option<Box<Self>>,
    draining_state: Option<Box<Self>>,
}

/// Parses the listeners of one `/config_dump` response, static or dynamic.
///
/// # Errors
/// If it is not such a response.
pub(crate) fn read(body: &[u8]) -> Result<Vec<Listener>, serde_json::Error> {
    let dump: ConfigDump = serde_json::from_slice(body)?;
    let listeners = dump.configs.into_iter().filter_map(|entry| {
        let state = entry.active_state.or(entry.draining_state);
        entry.listener.or_else(|| state?.listener)
    });
    Ok(listeners.collect())
}

// === impl EnvoyListeners ===

impl EnvoyListeners {
    /// Indexes `listeners`. A dump of them that was not read is empty.
    pub(crate) fn new(listeners: Vec<Listener>, rules: CountingRules) -> Self {
        let mut by_stat_name = BTreeMap::<_, Vec<_>>::new();
        for listener in listeners {
            let name = listener.stat_name();
            by_stat_name.entry(name).or_default().push(listener);
        }
        let mut all = Self {
            by_stat_name: Arc::new(by_stat_name),
            rules,
            ..Self::default()
        };
        // Traffic reaches every Envoy. Where no other listener is counted, it comes through the local ones.
        all.counts_local = all.rules.host_network || all.counted().next().is_none();
        let mut udp_proxies = BTreeMap::new();
        for listener in all.by_stat_name.values().flatten() {
            for prefix in listener.udp_proxies() {
                *udp_proxies.entry(prefix.to_owned()).or_default() |= all.counts(listener);
            }
        }
        all.udp_proxies = Arc::new(udp_proxies);
        all
    }

    /// Returns true if the listeners with this name in statistics are not counted. Listeners that share a name are
    /// excluded only if all of them are.
    pub(crate) fn excludes(&self, stat_name: &str) -> bool {
        match self.by_stat_name.get(stat_name) {
            Some(sharing) => !sharing.iter().any(|it| self.counts(it)),
            None => !self.counts(&Listener::unlisted(stat_name)),
        }
    }

    /// Returns true unless the listener is ignored, serves the pod's own outbound traffic, or is internal: another
    /// listener has counted the connections of that already. A selector beats what Envoy says.
    fn counts(&self, listener: &Listener) -> bool {
        let is_in = |list: &[ListenerSelector]| list.iter().any(|it| listener.is_selected(it));
        match listener.traffic_direction {
            _ if is_in(&self.rules.ignored) => false,
            _ if is_in(&self.rules.counted) => true,
            _ if listener.is_internal() => false,
            TrafficDirection::Inbound => true,
            TrafficDirection::Outbound => false,
            TrafficDirection::Unspecified => self.counts_local || !listener.is_local(),
        }
    }

    /// Returns true if there are listeners, and none of them is counted.
    pub(crate) fn are_all_excluded(&self) -> bool {
        !self.by_stat_name.is_empty() && self.counted().next().is_none()
    }

    /// Returns the counted listeners, together with those that share the name of one in statistics.
    fn counted(&self) -> impl Iterator<Item = &Listener> {
        self.counted_names().flat_map(|it| &self.by_stat_name[it])
    }

    /// Returns the names of the counted listeners in statistics.
    pub(crate) fn counted_names(&self) -> impl Iterator<Item = &str> {
        let names = self.by_stat_name.keys().map(String::as_str);
        names.filter(|name| !self.excludes(name))
    }

    /// Returns true if a listener has this name in statistics.
    pub(crate) fn contains(&self, stat_name: &str) -> bool {
        self.by_stat_name.contains_key(stat_name)
    }

    /// Returns true if a counted listener is bound to `port`.
    pub(crate) fn counts_port(&self, port: NonZeroU16) -> bool {
        self.counted().any(|listener| listener.has_port(port))
    }

    /// If there are OUTBOUND listeners, for the app's own calls: returns the names of the counted listeners whose clients a
    /// drain of INBOUND ones alone does not tell. UDP without QUIC has no connections.
    pub(crate) fn untold_beside_outbound(&self) -> Option<Vec<&str>> {
        let mut all = self.by_stat_name.values().flatten();
        let has_outbound = all.any(|it| it.traffic_direction == TrafficDirection::Outbound);
        let connects = |it: &Listener| !it.is_udp() || it.speaks_quic();
        let is_untold =
            |it: &Listener| it.traffic_direction != TrafficDirection::Inbound && connects(it);
        has_outbound.then(|| self.names_where(is_untold))
    }

    /// Finds where the TCP and Unix listeners are bound, ports that the kernel chose included.
    pub(super) fn find_addresses(&self, statuses: &ListenerStatuses) -> ListenAddresses {
        let all = || self.by_stat_name.values().flatten();
        let bound = |listener: &Listener| {
            // Envoy names one without a name by itself.
            let is_own = |it: &&ListenerStatus| {
                it.name == listener.name || it.local_address == listener.address
            };
            let own = statuses.listener_statuses.iter().filter(is_own);
            let own = own.flat_map(ListenerStatus::addresses);
            own.filter(|_| !listener.is_udp()).collect()
        };
        let counted: Vec<Vec<_>> = self.counted().map(bound).collect();
        let hands_over = all().any(|listener| listener.use_original_dst);
        ListenAddresses {
            are_complete: !hands_over && !counted.iter().any(Vec::is_empty),
            counted: counted.into_iter().flatten().collect(),
            all: hands_over.then(|| all().flat_map(bound).collect()),
        }
    }

    /// Returns the names of counted listeners that meet a condition.
    pub(crate) fn names_where(&self, condition: impl Fn(&Listener) -> bool) -> Vec<&str> {
        let found = self.counted().filter(|listener| condition(listener));
        found.map(|listener| listener.name.as_str()).collect()
    }
}

// === impl Address ===

impl Address {
    /// Returns the IP address and the port, if it has them.
    fn ip_and_port(&self) -> Option<SocketAddr> {
        let at = self.socket_address.as_ref()?;
        Some(SocketAddr::new(at.address.parse().ok()?, at.port_value))
    }

    /// Returns the address in the form of an admin interface's; `None` for an internal listener.
    pub(super) fn to_admin_address(&self) -> Option<AdminAddress> {
        let pipe = || format!("unix:{}", self.pipe.as_ref()?.path).parse().ok();
        self.ip_and_port().map(AdminAddress::Tcp).or_else(pipe)
    }
}

// === impl ListenerStatus ===

impl ListenerStatus {
    /// The addresses of a listener; none if it is internal.
    pub(super) fn addresses(&self) -> impl Iterator<Item = AdminAddress> {
        let all = once(&self.local_address).chain(&self.additional_local_addresses);
        all.filter_map(Address::to_admin_address)
    }
}

// === impl Listener ===

/// Prefix of the names of internal listeners in statistics.
const INTERNAL_PREFIX: &str = "envoy_internal_";

impl Listener {
    /// A listener that is not in the dump, since the admin interface denied that or the listener was removed: what its
    /// name in statistics says.
    fn unlisted(stat_name: &str) -> Self {
        let is_internal = stat_name.starts_with(INTERNAL_PREFIX);
        // `127.0.0.1_8080`, `[__1]_8080`, or else unknown, which counts as one that is not a loopback address.
        let at = stat_name.replace('_', ":").parse();
        let at: SocketAddr = at.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let address = SocketAddress {
            address: at.ip().to_string(),
            port_value: at.port(),
        };
        let mut listener = Self {
            name: stat_name.to_owned(),
            ..Self::default()
        };
        listener.address.socket_address = (!is_internal).then_some(address);
        listener
    }

    /// Returns the name in statistics, between `listener.` and the statistic: the `stat_prefix`, else the first address
    /// in its shortest form, with `_` for `:`. Checked with Envoy 1.36 to 1.40.
    fn stat_name(&self) -> String {
        if !self.stat_prefix.is_empty() {
            return without_colons(&self.stat_prefix);
        }
        match (&self.address.socket_address, &self.address.pipe) {
            _ if let Some(at) = self.address.ip_and_port() => without_colons(&at.to_string()),
            // An IPv6 address with a zone.
            (Some(at), _) => without_colons(&format!("[{}]:{}", at.address, at.port_value)),
            (None, Some(pipe)) => without_colons(&pipe.path),
            (None, None) => format!("{INTERNAL_PREFIX}{}", self.name),
        }
    }

    fn addresses(&self) -> impl Iterator<Item = &Address> {
        let additional = self.additional_addresses.iter().map(|more| &more.address);
        once(&self.address).chain(additional)
    }

    /// Returns true if only the pod itself reaches it: on loopback addresses and pipes.
    fn is_local(&self) -> bool {
        let is_loopback = |at: SocketAddr| at.ip().to_canonical().is_loopback();
        self.addresses()
            .all(|address| address.pipe.is_some() || address.ip_and_port().is_some_and(is_loopback))
    }

    fn is_udp(&self) -> bool {
        !self.udp_listener_config.is_empty() || self.udp_proxies().next().is_some()
    }

    fn is_internal(&self) -> bool {
        // No other listener has neither.
        self.address.socket_address.is_none() && self.address.pipe.is_none()
    }

    /// Returns true if it speaks QUIC, and HTTP/3 over it. A UDP proxy does not.
    pub(crate) fn speaks_quic(&self) -> bool {
        self.udp_listener_config.contains_key("quic_options")
    }

    /// Returns the `stat_prefix` of each UDP proxy.
    fn udp_proxies(&self) -> impl Iterator<Item = &str> {
        let configs = self.listener_filters.iter().map(|it| &it.typed_config);
        let proxies = configs.filter(|config| config.type_url.ends_with(".UdpProxyConfig"));
        proxies.map(|config| config.stat_prefix.as_str())
    }

    fn is_selected(&self, selector: &ListenerSelector) -> bool {
        match selector {
            ListenerSelector::Port(port) => self.has_port(*port),
            ListenerSelector::Name(name) => {
                [&self.name, &self.stat_prefix, &self.stat_name()].contains(&name)
            }
        }
    }

    fn has_port(&self, port: NonZeroU16) -> bool {
        let mut bound = self.addresses().filter_map(|it| it.socket_address.as_ref());
        bound.any(|at| at.port_value == port.get())
    }
}

/// Sanitises a name as Envoy does for statistics.
/// <https://github.com/envoyproxy/envoy/blob/main/source/common/stats/utility.cc>
fn without_colons(name: &str) -> String {
    let name = name.replace("://", "_").replace(":/", "_");
    name.replace(':', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::value::parse_list;

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
        {"name": "warming", "warming_state": {}},
        {"name": "removed", "draining_state": {"listener": {"name": "r", "traffic_direction": "OUTBOUND",
            "address": {"socket_address": {"address": "0.0.0.0", "port_value": 91}}}}}
    ]}"#;

    fn rules(ignored: &str, counted: &str) -> CountingRules {
        CountingRules {
            ignored: parse_list(ignored).unwrap(),
            counted: parse_list(counted).unwrap(),
            host_network: false,
        }
    }

    fn listeners(ignored: &str) -> EnvoyListeners {
        let mut all = read(STATIC.as_bytes()).unwrap();
        all.extend(read(DYNAMIC.as_bytes()).unwrap());
        EnvoyListeners::new(all, rules(ignored, ""))
    }

    /// Listeners that are named after their direction and place: `in@pipe`, `out@0.0.0.0`, `@127.0.0.1`.
    fn placed(names: &[&str], rules: CountingRules) -> EnvoyListeners {
        let listener = |name: &&str| {
            let (direction, place) = name.split_once('@').unwrap();
            let direction = match direction {
                "in" => "INBOUND",
                "out" => "OUTBOUND",
                _ => "UNSPECIFIED",
            };
            let address = match place {
                "pipe" => json!({"pipe": {"path": "/x"}}),
                ip => json!({"socket_address": {"address": ip, "port_value": 80}}),
            };
            json!({"listener": {
                "name": name, "stat_prefix": name, "traffic_direction": direction, "address": address,
            }})
        };
        let dump = json!({"configs": names.iter().map(listener).collect::<Vec<_>>()});
        EnvoyListeners::new(read(dump.to_string().as_bytes()).unwrap(), rules)
    }

    #[test]
    fn direction_and_place_decide_what_is_counted() {
        let all = "in@127.0.0.1 in@pipe in@0.0.0.0 out@127.0.0.1 out@pipe out@0.0.0.0 @127.0.0.1 @::ffff:127.0.0.1 @pipe @0.0.0.0";
        let inbound = "in@127.0.0.1 in@pipe in@0.0.0.0";
        let table = [
            // (listeners, count-listeners, ignore-listeners, counted)
            (all, "", "", format!("{inbound} @0.0.0.0")),
            // Where no other is counted, local ones are.
            (
                "@127.0.0.1 @pipe out@0.0.0.0",
                "",
                "",
                "@127.0.0.1 @pipe".to_owned(),
            ),
            (
                "@127.0.0.1 @pipe @0.0.0.0",
                "",
                "@0.0.0.0",
                "@127.0.0.1 @pipe".to_owned(),
            ),
            ("out@127.0.0.1 out@0.0.0.0", "", "", String::new()),
            // A selector beats the direction, and one to ignore the other.
            (
                "out@0.0.0.0 @pipe",
                "out@0.0.0.0",
                "",
                "out@0.0.0.0".to_owned(),
            ),
            (
                all,
                "@pipe,out@pipe",
                "in@0.0.0.0,out@pipe",
                "in@127.0.0.1 in@pipe @pipe @0.0.0.0".to_owned(),
            ),
        ];
        let counted = |listeners: &str, rules| {
            let names: Vec<_> = listeners.split(' ').collect();
            let all = placed(&names, rules);
            let counted = names
                .iter()
                .filter(|name| !all.excludes(&without_colons(name)));
            let counted: Vec<_> = counted.copied().collect();
            assert_eq!(all.are_all_excluded(), counted.is_empty());
            counted.join(" ")
        };
        for (listeners, count, ignore, want) in table {
            let got = counted(listeners, rules(ignore, count));
            assert_eq!(
                got, want,
                "{listeners}, counting `{count}`, ignoring `{ignore}`"
            );
        }
        let host_network = CountingRules {
            host_network: true,
            ..CountingRules::default()
        };
        let local = format!("{inbound} @127.0.0.1 @::ffff:127.0.0.1 @pipe @0.0.0.0");
        assert_eq!(counted(all, host_network), local);
    }

    #[test]
    fn clients_of_each_counted_listener_but_udp_must_be_told() {
        let table = [
            // (listeners, count-listeners, whether one is OUTBOUND, those whose clients are not told)
            ("in@0.0.0.0 in@pipe out@127.0.0.1 @127.0.0.1", "", true, ""),
            ("in@0.0.0.0 @127.0.0.1", "", false, ""),
            ("in@0.0.0.0 @0.0.0.0 out@127.0.0.1", "", true, "@0.0.0.0"),
            (
                "in@0.0.0.0 out@127.0.0.1",
                "out@127.0.0.1",
                true,
                "out@127.0.0.1",
            ),
            ("@127.0.0.1 out@127.0.0.1", "", true, "@127.0.0.1"),
            ("out@127.0.0.1", "", true, ""),
        ];
        for (names, counted, has_outbound, want) in table {
            let names: Vec<_> = names.split(' ').collect();
            let all = placed(&names, rules("", counted));
            let want = has_outbound.then(|| want.to_owned());
            let untold = all.untold_beside_outbound().map(|it| it.join(" "));
            assert_eq!(untold, want, "{names:?}");
        }
        let all = listeners("8080,83,85,88,86,87,90");
        assert_eq!(all.untold_beside_outbound(), Some(vec!["quic"]));
    }

    #[test]
    fn addresses_of_counted_listeners_are_those_that_envoy_has_bound() {
        let status = |name, ip, port| json!({"name": name, "local_address": {"socket_address": {"address": ip, "port_value": port}}});
        let find = |dump: serde_json::Value, statuses: &[serde_json::Value]| {
            let listeners = read(json!({"configs": dump}).to_string().as_bytes()).unwrap();
            let statuses = json!({"listener_statuses": statuses});
            let all = EnvoyListeners::new(listeners, CountingRules::default());
            all.find_addresses(&serde_json::from_value(statuses).unwrap())
        };
        let listener = |name: &str, ip: &str, port: u16, fields: &str| {
            let mut fields: serde_json::Value = serde_json::from_str(fields).unwrap();
            fields["name"] = name.into();
            fields["address"]["socket_address"]["address"] = ip.into();
            fields["address"]["socket_address"]["port_value"] = port.into();
            json!({"listener": fields})
        };
        let names = |found: &ListenAddresses| {
            let names = found.counted.iter().map(ToString::to_string);
            names.collect::<Vec<_>>().join(" ")
        };
        // A port that the kernel chose, a further address, and a listener without a name.
        let web = listener("web", "0.0.0.0", 0, "{}");
        let mut web_status = status("web", "0.0.0.0", 4711);
        let pipe = json!({"pipe": {"path": "@web"}});
        web_status["additional_local_addresses"] =
            json!([status("", "::1", 4712)["local_address"], pipe]);
        let unnamed = listener("", "0.0.0.0", 82, "{}");
        let own = listener("own", "127.0.0.1", 83, "{}");
        let statuses = [
            web_status,
            status("d2b1", "0.0.0.0", 82),
            status("own", "127.0.0.1", 83),
            json!({"name": "inner", "local_address": {"envoy_internal_address": {}}}),
        ];
        let found = find(json!([web, unnamed, own]), &statuses);
        let want = "0.0.0.0:82 0.0.0.0:4711 [::1]:4712 unix:@web";
        assert_eq!(names(&found), want);
        assert!(found.are_complete && found.all.is_none());
        // One that is not bound, and one over UDP.
        let found = find(json!([web, unnamed]), &statuses[..1]);
        assert!(!found.are_complete);
        let udp = r#"{"udp_listener_config": {"quic_options": {}}}"#;
        let quic = listener("quic", "0.0.0.0", 4711, udp);
        let with_quic = [statuses[0].clone(), status("quic", "0.0.0.0", 4711)];
        let found = find(json!([web, quic]), &with_quic);
        assert!(!found.are_complete && found.counted.len() == 3);
        // Connections may be at an address that is not counted.
        let inbound = listener("in", "0.0.0.0", 15006, r#"{"use_original_dst": true}"#);
        let statuses = [
            status("in", "0.0.0.0", 15006),
            status("own", "127.0.0.1", 83),
        ];
        let found = find(json!([inbound, own]), &statuses);
        assert_eq!(names(&found), "0.0.0.0:15006");
        assert!(!found.are_complete && found.all.unwrap().len() == 2);
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
            ("", "@x_y", true),
            ("", "envoy_internal_inner", true),
            ("", "shared", false),
            ("long", "[__]_88", true),
            ("", "a_b_c_d", true),
            ("", "my.prefix", false),
            ("", "0.0.0.0_91", true),
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
                "[__]_83",
                "[__]_88",
                "shared"
            ]
        );
    }
}
