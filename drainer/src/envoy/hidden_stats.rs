//! Which statistics of the counted listeners a `stats_matcher` hides.
//!
//! It may hide one listener or one statistic alone. A poll does not show that, since `usedonly` also
//! leaves out statistics that were never updated. The same request without `usedonly` does: it is made
//! when Envoy's listeners are read, not with each poll, and only where Envoy has a `stats_matcher`.

use std::collections::BTreeSet;

use super::listeners::EnvoyListeners;
use super::prefix_owners::PrefixOwners;
use super::stats::Stats;

/// Statistics that are hidden, and therefore unknown in every poll.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HiddenStats {
    /// The connections of a counted listener are hidden.
    pub connections: bool,
    /// The open sessions of a counted UDP proxy are hidden.
    pub udp: bool,
    /// The gauges of an HTTP prefix are hidden.
    pub http: bool,
    /// The number of completed requests, or of the connections they came on, is hidden.
    pub requests: bool,
}

/// Statistics of each connection manager. Envoy creates them with its configuration, so none is absent
/// for lack of a connection. The same on Envoy 1.36 and 1.40 (measured).
const HTTP_GAUGES: [&str; 5] = [
    "downstream_cx_active",
    "downstream_rq_active",
    "downstream_cx_upgrades_active",
    "downstream_cx_tx_bytes_buffered",
    "downstream_cx_http3_active",
];

/// The open sessions of a UDP proxy. Created with its configuration too (measured).
pub(super) const UDP_SESSIONS: &str = "downstream_sess_active";

/// Connections by their protocol, known once they have sent a first byte.
pub(super) const HTTP_COUNTERS: [&str; 3] = [
    "downstream_cx_http1_total",
    "downstream_cx_http2_total",
    "downstream_cx_http3_total",
];

// === impl HiddenStats ===

impl HiddenStats {
    /// Finds what is hidden of the `known` listeners. `stats` holds all statistics, used or not.
    pub(crate) fn find(stats: &Stats<'_>, known: &EnvoyListeners, owners: &PrefixOwners) -> Self {
        let has = |family: &str, owner: &str, stat: &str| {
            stats.get(&format!("{family}.{owner}.{stat}")).is_some()
        };
        let has_all = |name| {
            let mut stats = "cx_active pre_cx_active cx_total".split(' ');
            stats.all(|stat| has("listener", name, &format!("downstream_{stat}")))
        };
        let mut udp_proxies = known.udp_proxies.iter();
        let mut hidden = Self {
            connections: !known.counted_names().all(has_all),
            udp: udp_proxies.any(|(prefix, counts)| *counts && !has("udp", prefix, UDP_SESSIONS)),
            ..Self::default()
        };
        let counted = stats.family("http.").filter_map(|(prefix, stat, _)| {
            let is_of_manager = HTTP_GAUGES.contains(&stat) || HTTP_COUNTERS.contains(&stat);
            (is_of_manager && !owners.are_all_excluded(prefix)).then_some(prefix)
        });
        for prefix in counted.collect::<BTreeSet<_>>() {
            let is_hidden = |stat: &&str| !has("http", prefix, stat);
            hidden.http |= HTTP_GAUGES.iter().any(is_hidden);
            // Completed requests are counted by a listener of each prefix.
            hidden.requests |= HTTP_COUNTERS.iter().any(is_hidden) || !owners.has(prefix);
        }
        hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::listeners;

    const DUMP: &[u8] = br#"{"configs": [
        {"listener": {"name": "web", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}}}},
        {"listener": {"name": "tcp", "stat_prefix": "tcp", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 82}}}},
        {"listener": {"name": "dns", "stat_prefix": "dns", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 53}},
            "listener_filters": [{"typed_config": {"@type": "x/y.UdpProxyConfig", "stat_prefix": "dns"}}]}},
        {"listener": {"name": "own", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 81}}}}
    ]}"#;

    /// What is hidden if an Envoy with these listeners leaves out names that contain one of `patterns`.
    fn hidden(patterns: &[&str]) -> HiddenStats {
        let of_listener = |name| {
            let stats = ["cx_active", "pre_cx_active", "cx_total"];
            stats.map(|stat| format!("listener.{name}.downstream_{stat}"))
        };
        let of_prefix = |name| {
            let stats = HTTP_GAUGES.iter().chain(&HTTP_COUNTERS);
            stats.map(move |stat| format!("http.{name}.{stat}"))
        };
        let of_both = |pair| format!("listener.{pair}.downstream_rq_completed");
        let listeners = ["0.0.0.0_80", "tcp", "dns", "127.0.0.1_81", "admin"];
        let pairs = "0.0.0.0_80.http.in 127.0.0.1_81.http.out admin.http.admin";
        let names = listeners.into_iter().flat_map(of_listener);
        let names = names.chain(["in", "out", "admin"].into_iter().flat_map(of_prefix));
        let names = names.chain(pairs.split(' ').map(of_both));
        let names = names.chain(["udp.dns.downstream_sess_active".to_owned()]);
        let entries: Vec<_> = names
            .filter(|name| patterns.iter().all(|pattern| !name.contains(pattern)))
            .map(|name| format!(r#"{{"name":"{name}","value":0}}"#))
            .collect();
        let body = format!(r#"{{"stats":[{}]}}"#, entries.join(","));
        let listeners = EnvoyListeners::new(listeners::read(DUMP).unwrap(), Default::default());
        let stats = Stats::read(body.as_bytes()).unwrap();
        let mut owners = PrefixOwners::default();
        owners.add(&stats, &stats.listeners(&listeners), &listeners);
        HiddenStats::find(&stats, &listeners, &owners)
    }

    /// These are hidden, and nothing else.
    fn with(set: impl FnOnce(&mut HiddenStats)) -> HiddenStats {
        let mut hidden = HiddenStats::default();
        set(&mut hidden);
        hidden
    }

    #[test]
    fn hidden_statistics_of_counted_listeners_are_found() {
        let connections = with(|hidden| hidden.connections = true);
        let http = with(|hidden| hidden.http = true);
        let requests = with(|hidden| hidden.requests = true);
        let whole_listener = HiddenStats {
            connections: true,
            ..requests.clone()
        };
        let table: [(&[&str], &HiddenStats); 16] = [
            (&[], &with(|_| ())),
            (&["listener.127.0.0.1", "http.out"], &with(|_| ())),
            (&["http.out.downstream_cx_active"], &with(|_| ())),
            (&["listener.0.0.0.0_80."], &whole_listener),
            (&["tcp.downstream_cx_active"], &connections),
            (&["tcp.downstream_pre_cx_active"], &connections),
            (&["tcp.downstream_cx_total"], &connections),
            (&["udp."], &with(|hidden| hidden.udp = true)),
            (&["http.in.downstream_cx_active"], &http),
            (&["http.in.downstream_rq_active"], &http),
            (&["http.in.downstream_cx_upgrades"], &http),
            (&["http.in.downstream_cx_tx"], &http),
            (&["http.in.downstream_cx_http2"], &requests),
            (&["http.in.downstream_cx_http3_active"], &http),
            (&["0.0.0.0_80.http."], &requests),
            // Its connections look like those of another protocol than HTTP.
            (&["http.in."], &with(|_| ())),
        ];
        for (patterns, want) in table {
            assert_eq!(&hidden(patterns), want, "{patterns:?}");
        }
    }
}
