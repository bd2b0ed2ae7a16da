//! What a `stats_matcher` hides of the listeners that count.
//!
//! It may hide one listener or one statistic alone. In a poll that is not seen, since `usedonly` leaves
//! out what was never counted too. The same question without `usedonly` shows what there is: it is asked
//! together with the listeners, not with each poll.

use std::collections::BTreeMap;

use super::listeners::EnvoyListeners;
use super::stats::Stats;

/// What is hidden, and therefore unknown, however the polls look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HiddenStats {
    /// The first listener that counts and whose open connections are hidden, as statistics call it.
    pub listener: Option<String>,
    /// How many connections a listener has accepted is hidden.
    pub accepted: bool,
    /// What is in flight under an HTTP prefix is hidden.
    pub http: bool,
    /// Which requests were completed, or on how many connections, is hidden.
    pub requests: bool,
}

/// Which statistics of an HTTP prefix are shown.
#[derive(Default)]
struct PrefixStats {
    gauges: usize,
    counters: usize,
}

/// Of each connection manager. Envoy creates them with its configuration, so that none is absent for
/// want of a connection. Seen alike on Envoy 1.36 and 1.40.
const HTTP_GAUGES: [&str; 4] = [
    "downstream_cx_active",
    "downstream_rq_active",
    "downstream_cx_upgrades_active",
    "downstream_cx_tx_bytes_buffered",
];
const HTTP_COUNTERS: [&str; 3] = [
    "downstream_cx_http1_total",
    "downstream_cx_http2_total",
    "downstream_cx_http3_total",
];

// === impl HiddenStats ===

impl HiddenStats {
    /// Finds what is hidden of the `known` listeners in all `stats` that Envoy shows, used or not.
    #[must_use]
    pub(crate) fn find(stats: &Stats<'_>, known: &EnvoyListeners) -> Self {
        let shows = |listener: &str, stat: &str| {
            let name = format!("listener.{listener}.{stat}");
            stats.get(&name).is_some()
        };
        let is_hidden = |listener: &&str| {
            !shows(listener, "downstream_cx_active") || !shows(listener, "downstream_pre_cx_active")
        };
        // Where all listeners are hidden, the admin's own shows that in each poll.
        let all_are_hidden = stats.get("listener.admin.downstream_cx_active").is_none();
        let mut counted = known.counted_names().filter(|_| !all_are_hidden);
        let mut hidden = Self {
            listener: counted.find(is_hidden).map(str::to_owned),
            accepted: known
                .counted_names()
                .any(|listener| !shows(listener, "downstream_cx_total")),
            ..Self::default()
        };
        let listeners = stats.listeners(known);
        let bearers = stats.prefix_owners(&listeners, known);
        for (name, prefix) in prefixes(stats) {
            let bearer = bearers.get(name);
            if bearer.is_some_and(|bearer| bearer.are_all_excluded()) {
                continue;
            }
            hidden.http |= prefix.gauges < HTTP_GAUGES.len();
            // A listener of each prefix counts the completed requests.
            hidden.requests |= prefix.counters < HTTP_COUNTERS.len() || bearer.is_none();
        }
        hidden
    }
}

fn prefixes<'a>(stats: &'a Stats<'_>) -> BTreeMap<&'a str, PrefixStats> {
    let mut prefixes = BTreeMap::<_, PrefixStats>::new();
    for (stat, _) in stats.iter() {
        let stat = stat.strip_prefix("http.");
        let Some((prefix, stat)) = stat.and_then(|stat| stat.rsplit_once('.')) else {
            continue;
        };
        if HTTP_GAUGES.contains(&stat) {
            prefixes.entry(prefix).or_default().gauges += 1;
        } else if HTTP_COUNTERS.contains(&stat) {
            prefixes.entry(prefix).or_default().counters += 1;
        }
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::listeners;

    const DUMP: &[u8] = br#"{"configs": [
        {"listener": {"name": "web", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}}}},
        {"listener": {"name": "tcp", "stat_prefix": "tcp", "address": {"pipe": {"path": "@tcp"}}}},
        {"listener": {"name": "own", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 81}}}}
    ]}"#;

    /// What an Envoy with these listeners shows, but for names that hold one of the texts.
    fn hidden(texts: &[&str]) -> HiddenStats {
        let listener = |name: &str| {
            ["cx_active", "pre_cx_active", "cx_total"]
                .map(|stat| format!("listener.{name}.downstream_{stat}"))
        };
        let prefix = |name: &str| {
            let stats = HTTP_GAUGES.iter().chain(&HTTP_COUNTERS);
            stats
                .map(|stat| format!("http.{name}.{stat}"))
                .collect::<Vec<_>>()
        };
        let names = ["0.0.0.0_80", "tcp", "127.0.0.1_81", "admin"]
            .into_iter()
            .flat_map(listener)
            .chain(["in", "out", "admin"].into_iter().flat_map(prefix))
            .chain(
                [
                    "listener.0.0.0.0_80.http.in.downstream_rq_completed",
                    "listener.127.0.0.1_81.http.out.downstream_rq_completed",
                    "listener.admin.http.admin.downstream_rq_completed",
                ]
                .map(str::to_owned),
            );
        let entries: Vec<_> = names
            .filter(|name| texts.iter().all(|text| !name.contains(text)))
            .map(|name| format!(r#"{{"name":"{name}","value":0}}"#))
            .collect();
        let body = format!(r#"{{"stats":[{}]}}"#, entries.join(","));
        let listeners = EnvoyListeners::new(listeners::read(DUMP).unwrap(), Vec::new());
        HiddenStats::find(&Stats::read(body.as_bytes()).unwrap(), &listeners)
    }

    #[test]
    fn hidden_statistics_are_those_of_counted_listeners() {
        let listener = |name: &str| HiddenStats {
            listener: Some(name.into()),
            ..HiddenStats::default()
        };
        let accepted = HiddenStats {
            accepted: true,
            ..HiddenStats::default()
        };
        let http = HiddenStats {
            http: true,
            ..HiddenStats::default()
        };
        let requests = HiddenStats {
            requests: true,
            ..HiddenStats::default()
        };
        let table: [(&[&str], HiddenStats); 13] = [
            (&[], HiddenStats::default()),
            (&["listener.127.0.0.1", "http.out"], HiddenStats::default()),
            (
                &["listener.0.0.0.0_80."],
                HiddenStats {
                    accepted: true,
                    requests: true,
                    ..listener("0.0.0.0_80")
                },
            ),
            (&["tcp.downstream_cx_active"], listener("tcp")),
            (&["tcp.downstream_pre_cx_active"], listener("tcp")),
            (&["tcp.downstream_cx_total"], accepted),
            (&["http.in.downstream_cx_active"], http.clone()),
            (&["http.in.downstream_rq_active"], http.clone()),
            (&["http.in.downstream_cx_upgrades"], http.clone()),
            (&["http.in.downstream_cx_tx"], http),
            (&["http.in.downstream_cx_http2"], requests.clone()),
            (&["0.0.0.0_80.http."], requests),
            // Its connections are outside HTTP, as far as is seen.
            (&["http.in."], HiddenStats::default()),
        ];
        for (texts, want) in table {
            assert_eq!(hidden(texts), want, "{texts:?}");
        }
    }
}
