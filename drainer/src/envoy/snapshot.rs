//! What one poll of Envoy counted: open connections, from its statistics. A statistic that a `stats_matcher` hides, or that
//! belongs to the old process of a hot restart, is unknown, never zero.

use std::collections::BTreeMap;

use super::counters::{Counters, RequestCounters};
use super::hidden_stats::{HTTP_COUNTERS, HiddenStats, UDP_SESSIONS};
use super::listeners::EnvoyListeners;
use super::prefix_owners::PrefixOwners;
use super::stats::{ListenersByName, Stats};

/// Maximum number of listeners listed by name, more than fit into a termination message. All are
/// counted.
const MAX_REPORTED_LISTENERS: usize = 1000;

/// The name of the admin interface's listener and its HTTP prefix in statistics. Connections of a connection manager with
/// the same prefix count like those of another protocol: a drain waits until they close.
const ADMIN: &str = "admin";

/// One poll of Envoy's statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// False after `/healthcheck/fail`; `None` if `server.live` is hidden.
    pub live: Option<bool>,
    /// How many hot restarts the process follows; `None` until its first flush of statistics.
    pub epoch: Option<u64>,
    /// Listeners have changed since Envoy's setup was read, or since the last poll.
    pub has_new_listener: bool,
    /// The old process of a hot restart has connections, of which Envoy's statistics do not tell.
    pub has_parent: bool,
    /// No admin interface was found, and what is open is what the kernel knows.
    pub is_unreachable: bool,
    /// What is open.
    pub open: OpenConnections,
}

/// What is open on the counted listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OpenConnections {
    /// Connections, including those that have no filter chain yet, and sessions of UDP proxies. `None` if some are hidden,
    /// or belong to the old process of a hot restart.
    pub connections: Option<u64>,
    /// Sessions of UDP proxies among them.
    pub sessions: u64,
    /// Connections of the listeners that are not counted.
    pub excluded: u64,
    /// Connections by listener, and sessions by UDP proxy, where not zero; at most the first 1,000.
    pub by_listener: BTreeMap<String, u64>,
    /// Counters since Envoy's start; `None` if accepted connections are hidden.
    pub counters: Option<Counters>,
    /// The HTTP gauges of these connections; `None` if they or `connections` are hidden.
    pub http: Option<HttpCounts>,
    /// What the kernel alone knows of them; `None` of an Envoy's.
    pub server: Option<ServerCounts>,
}

/// What the kernel alone knows of the connections of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServerCounts {
    /// Those that wait in one of its queues, have an unanswered request, or bytes on their way.
    pub in_flight: u64,
    /// The others that do not rest.
    pub in_use: u64,
}

/// What is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HttpCounts {
    /// Active requests, from their first byte; includes open upgrades.
    pub requests: u64,
    /// Open upgrades, such as WebSockets.
    pub upgrades: u64,
    /// Connections that do not speak HTTP, or have not begun to, such as those of a TCP proxy; and sessions of UDP proxies.
    pub non_http: u64,
    /// Bytes in the write buffers of Envoy's connections. A request is no longer active once its
    /// response has arrived, up to 1 MiB by default, while a slow client still reads it. This gauge has
    /// no sentinel, since the admin interface sends its responses at once: if absent, it was never used,
    /// which is zero.
    pub buffered_bytes: u64,
    /// Connections that speak HTTP/3, idle or not. The gauges of listeners do not tell them from those of a TCP listener
    /// with the same address, which has the same name in statistics.
    pub http3: u64,
}

// === impl Snapshot ===

impl Snapshot {
    /// Counts what is open on the listeners that are not excluded.
    ///
    /// Each family of statistics has a sentinel: the admin interface's own listener, which served this
    /// very request, is in all of them. If the sentinel is absent, a `stats_matcher` hides the family,
    /// which is not zero. `hidden` says which statistics of single listeners are hidden besides; with `None`
    /// that is unknown, and treated as if a listener were hidden.
    pub(crate) fn count(
        stats: &Stats<'_>,
        listeners: &ListenersByName<'_>,
        known: &EnvoyListeners,
        owners: &PrefixOwners,
        hidden: Option<&HiddenStats>,
    ) -> Self {
        let is_positive = |gauge| stats.get(gauge).is_some_and(|n| n > 0);
        // A counter may have been reset to zero through the admin interface.
        let exists = |counter| stats.get(counter).is_some();
        let mut snapshot = Self {
            live: stats.get("server.live").map(|live| live > 0),
            epoch: stats.get("server.hot_restart_epoch"),
            has_parent: is_positive("server.parent_connections"),
            ..Self::default()
        };
        let Some(hidden) = hidden.filter(|hidden| !hidden.connections) else {
            return snapshot;
        };
        let (open, mut connections) = (&mut snapshot.open, 0_u64);
        for (proxy, stat, sessions) in stats.family("udp.") {
            if stat == UDP_SESSIONS && known.udp_proxies.get(proxy) != Some(&false) {
                open.name(&format!("udp.{proxy}"), sessions);
                open.sessions = open.sessions.saturating_add(sessions);
            }
        }
        let mut counters = Counters::default();
        let mut accepted_http = 0_u64;
        for (name, listener) in listeners {
            let active = listener.pre_active.saturating_add(listener.active);
            if known.excludes(name) {
                open.excluded = open.excluded.saturating_add(active);
                counters.excluded = counters.excluded.saturating_add(listener.total);
                continue;
            }
            counters.accepted = counters.accepted.saturating_add(listener.total);
            if owners.listeners.contains(*name) {
                accepted_http = accepted_http.saturating_add(listener.total);
            }
            connections = connections.saturating_add(active);
            open.name(name, active);
        }
        let http = HttpSums::new(stats, owners);
        if exists("listener.admin.downstream_cx_total") {
            counters.health_checks = http.health_checks;
            if !hidden.requests
                && exists("listener.admin.http.admin.downstream_rq_completed")
                && exists("http.admin.downstream_cx_http1_total")
            {
                let all = stats.completed_requests(listeners, known);
                let counted = all.filter(|it| it.1 != ADMIN && !known.excludes(it.0));
                let tcp = stats
                    .family("tcp.")
                    .filter(|it| it.1 == "downstream_cx_total");
                counters.requests = Some(RequestCounters {
                    completed: counted.fold(0, |sum, it| sum.saturating_add(it.2)),
                    connections: http.connections,
                    accepted: accepted_http,
                    tcp: tcp.fold(0, |sum, it| sum.saturating_add(it.2)),
                });
            }
            open.counters = Some(counters);
        }
        // Gauges that a hot restart merged from the old process are absent, or as of the last flush of statistics.
        let is_visible = is_positive("listener.admin.downstream_cx_active") && !hidden.udp;
        if !is_visible || snapshot.has_parent {
            return snapshot;
        }
        let connections = connections.saturating_add(open.sessions);
        open.connections = Some(connections);
        if is_positive("http.admin.downstream_cx_active")
            && is_positive("http.admin.downstream_rq_active")
            && !hidden.http
        {
            open.http = Some(http.counts(connections, open.excluded));
        }
        snapshot
    }
}

// === impl OpenConnections ===

impl OpenConnections {
    /// How many connections are over sockets of their own, with those of the listeners that are not counted, or without.
    pub(crate) fn over_sockets(&self, has_excluded: bool) -> u64 {
        let excluded = if has_excluded { self.excluded } else { 0 };
        let http3 = self.http.map_or(0, |http| http.http3);
        let counted = self.connections.unwrap_or(0).saturating_sub(self.sessions);
        counted.saturating_sub(http3).saturating_add(excluded)
    }

    /// Returns true if only connections are open that are known to be idle.
    pub(crate) fn are_idle(&self) -> bool {
        let are_counted = self.counters.is_some_and(|it| it.requests.is_some());
        let are_idle = self.http.is_some_and(HttpCounts::are_idle) && are_counted;
        (self.server).map_or(are_idle, |server| server == ServerCounts::default())
    }

    fn name(&mut self, name: &str, connections: u64) {
        if connections > 0 && self.by_listener.len() < MAX_REPORTED_LISTENERS {
            self.by_listener.insert(name.to_owned(), connections);
        }
    }
}

// === impl HttpCounts ===

impl HttpCounts {
    /// Returns true if no request and no response is in flight.
    fn are_idle(self) -> bool {
        Self { http3: 0, ..self } == Self::default()
    }
}

/// Sums of the statistics of HTTP prefixes, except those surely on excluded listeners.
#[derive(Default)]
struct HttpSums {
    counts: HttpCounts,
    /// Connections on counted listeners, on excluded ones, and on either.
    counted: u64,
    excluded: u64,
    undecided: u64,
    /// Connections that have sent a first byte.
    connections: u64,
    /// Requests that the `health_check` filter answered.
    health_checks: u64,
}

// === impl HttpSums ===

impl HttpSums {
    fn new(stats: &Stats<'_>, owners: &PrefixOwners) -> Self {
        let mut sums = Self::default();
        for (owner, stat, value) in stats.family("http.") {
            let of_filter = owner.strip_suffix(".health_check");
            let of_filter = of_filter.filter(|_| stat == "request_total");
            let prefix = of_filter.unwrap_or(owner);
            if prefix == ADMIN {
                continue;
            }
            let is_excluded = owners.are_all_excluded(prefix);
            let counts = &mut sums.counts;
            let sum = match stat {
                "downstream_cx_active" if is_excluded => &mut sums.excluded,
                "downstream_cx_active" if owners.are_all_counted(prefix) => &mut sums.counted,
                "downstream_cx_active" => &mut sums.undecided,
                _ if is_excluded => continue,
                "downstream_rq_active" => &mut counts.requests,
                "downstream_cx_upgrades_active" => &mut counts.upgrades,
                "downstream_cx_tx_bytes_buffered" => &mut counts.buffered_bytes,
                "downstream_cx_http3_active" => &mut counts.http3,
                _ if of_filter.is_some() => &mut sums.health_checks,
                _ if HTTP_COUNTERS.contains(&stat) => &mut sums.connections,
                _ => continue,
            };
            *sum = sum.saturating_add(value);
        }
        sums
    }

    /// Returns the gauges of the `connections` on counted listeners, while `excluded` connections are open on others.
    fn counts(&self, connections: u64, excluded: u64) -> HttpCounts {
        // At most `excluded - self.excluded` of the undecided connections are on excluded listeners; the rest are on
        // counted ones.
        let max_undecided_excluded = excluded.saturating_sub(self.excluded);
        let undecided_counted = self.undecided.saturating_sub(max_undecided_excluded);
        let speaking_http = self.counted.saturating_add(undecided_counted);
        HttpCounts {
            non_http: connections.saturating_sub(speaking_http),
            ..self.counts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::listeners::{self, CountingRules};
    use crate::settings::value::parse_list;
    use serde_json::json;

    /// What the request of the statistics itself adds to them.
    const OWN: &str = "listener.admin.cx_active=1 listener.admin.cx_total=3 \
        listener.admin.main_thread.cx_active=1 listener.admin.main_thread.cx_total=3 \
        http.admin.cx_active=1 http.admin.rq_active=1 http.admin.cx_http1_total=3 \
        listener.admin.http.admin.rq_completed=9 server.live=1";

    /// Parses a statistic such as `http.in.rq_active=1`: Envoy's name without `downstream_`, and its value.
    fn parse(stat: &str) -> (String, u64) {
        let (name, value) = stat.split_once('=').unwrap();
        let (owner, stat) = name.rsplit_once('.').unwrap();
        let is_downstream = ["cx_", "pre_cx_", "rq_"]
            .iter()
            .any(|start| stat.starts_with(start));
        let prefix = if is_downstream { "downstream_" } else { "" };
        (format!("{owner}.{prefix}{stat}"), value.parse().unwrap())
    }

    fn count(stats: &str, known: &EnvoyListeners, hidden: &HiddenStats) -> Snapshot {
        let mut sums = BTreeMap::<_, u64>::new();
        for (name, value) in stats.split_whitespace().map(parse) {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
        let entry = |(name, value)| format!(r#"{{"name":"{name}","value":{value}}},"#);
        let entries: String = sums.into_iter().map(entry).collect();
        let body = format!(r#"{{"stats":[{entries}{{"histograms":{{}}}}]}}"#);
        let stats = Stats::read(body.as_bytes()).unwrap();
        let mut owners = PrefixOwners::default();
        let counts = stats.listeners(known);
        owners.add(&stats, &counts, known);
        Snapshot::count(&stats, &counts, known, &owners, Some(hidden))
    }

    /// Counts these statistics alone.
    fn count_only(stats: &str) -> Snapshot {
        count(stats, &EnvoyListeners::default(), &HiddenStats::default())
    }

    /// Counts these statistics and those of the request itself, which add up if they have the same name.
    fn open(stats: &str) -> OpenConnections {
        count_only(&format!("{OWN} {stats}")).open
    }

    #[test]
    fn hidden_statistics_are_not_zero() {
        assert_eq!(count_only(""), Snapshot::default());
        assert_eq!(count_only("server.live=1").live, Some(true));
        let without = |name: &str| {
            let kept = OWN.split_whitespace().filter(|own| !own.starts_with(name));
            count_only(&kept.collect::<Vec<_>>().join(" "))
        };
        let open = |name| without(name).open;
        let hidden = open("listener.admin.cx_active");
        assert_eq!((hidden.connections, hidden.http), (None, None));
        assert_eq!(open("listener.admin.cx_total").counters, None);
        for gauge in ["http.admin.cx_active", "http.admin.rq_active"] {
            assert_eq!(open(gauge).http, None);
        }
        for counter in [
            "http.admin.cx_http1_total",
            "listener.admin.http.admin.rq_completed",
        ] {
            assert_eq!(open(counter).counters.unwrap().requests, None);
        }
    }

    #[test]
    fn statistics_hidden_for_one_listener_are_not_zero() {
        let count = |hide: fn(&mut HiddenStats)| {
            let mut hidden = HiddenStats::default();
            hide(&mut hidden);
            count(OWN, &EnvoyListeners::default(), &hidden)
        };
        let open = |hide| count(hide).open;
        let of_listener = open(|hidden| hidden.connections = true);
        assert_eq!(of_listener, OpenConnections::default());
        let counters = open(|hidden| hidden.requests = true).counters;
        assert_eq!(counters, Some(Counters::default()));
        assert_eq!(open(|hidden| hidden.http = true).http, None);
    }

    #[test]
    fn own_admin_request_is_not_counted() {
        let want = OpenConnections {
            connections: Some(0),
            counters: Some(Counters {
                requests: Some(RequestCounters::default()),
                ..Counters::default()
            }),
            http: Some(HttpCounts::default()),
            ..OpenConnections::default()
        };
        assert_eq!(open(""), want);
        // Counters that were reset are not hidden.
        let reset = OWN.replace("=3", "=0").replace("=9", "=0");
        assert_eq!(count_only(&reset).open, want);
    }

    #[test]
    fn listeners_count_once_including_pre_filter_chain_connections() {
        let open = open(
            "listener.0.0.0.0_80.cx_active=5 listener.0.0.0.0_80.pre_cx_active=2
            listener.0.0.0.0_80.worker_0.cx_active=3 listener.0.0.0.0_80.worker_11.cx_active=2
            listener.0.0.0.0_80.cx_total=40
            listener.0.0.0.0_80.worker_0.cx_total=20 listener.0.0.0.0_80.worker_11.cx_total=20",
        );
        assert_eq!(open.connections, Some(7));
        assert_eq!(open.counters.unwrap().accepted, 40);
        assert_eq!(open.by_listener, BTreeMap::from([("0.0.0.0_80".into(), 7)]));
        // None of them speaks HTTP.
        assert_eq!(open.http.unwrap().non_http, 7);
    }

    #[test]
    fn listeners_named_like_excluded_ones_count() {
        let connections = |stats: &str| open(stats).connections.unwrap();
        // The main thread of `admin` and the workers of a listener are none of their own.
        for name in "my_admin admin.x worker_1 web.worker_1 main_thread".split(' ') {
            let stats = format!("listener.{name}.cx_active=2");
            assert_eq!(connections(&stats), 2, "{name}");
        }
        // A listener with stat_prefix `admin`.
        let admin = "listener.admin.cx_active=2 listener.admin.worker_0.cx_active=2";
        assert_eq!(connections(admin), 2);
        // A listener with stat_prefix `web.worker_1` besides one with `web`: Envoy's dump proves it.
        let web = "listener.web.cx_active=1 listener.web.worker_1.cx_active=2";
        let dump = br#"{"configs":[{"listener":{"stat_prefix":"web.worker_1","address":{"socket_address":{"address":"::","port_value":1}}}}]}"#;
        let known = EnvoyListeners::new(listeners::read(dump).unwrap(), Default::default());
        let in_dump = count(&format!("{OWN} {web}"), &known, &HiddenStats::default());
        assert_eq!((in_dump.open.connections, connections(web)), (Some(3), 1));
    }

    #[test]
    fn loopback_internal_and_ignored_listeners_are_not_counted() {
        let stats = "listener.127.0.0.1_81.cx_active=1 listener.[__1]_82.cx_active=1
            listener.envoy_internal_x.cx_active=1 listener.0.0.0.0_8001.cx_active=1
            listener.probes.cx_active=1 listener.probes2.cx_active=1";
        assert_eq!(open(stats).connections, Some(3));
        let rules = CountingRules {
            ignored: parse_list("8001,probes").unwrap(),
            ..CountingRules::default()
        };
        let address = json!({ "socket_address": { "address": "0.0.0.0", "port_value": 80 } });
        let dump = json!({ "configs": [{ "listener": { "address": address } }] });
        let other = listeners::read(dump.to_string().as_bytes()).unwrap();
        let connections = |listeners, rules, stats: &str| {
            let known = EnvoyListeners::new(listeners, rules);
            let snapshot = count(&format!("{OWN} {stats}"), &known, &HiddenStats::default());
            snapshot.open.connections
        };
        assert_eq!(connections(other, rules, stats), Some(1));
        // Where Envoy does not tell its listeners, the local ones may be all that it has.
        let local = "listener.127.0.0.1_81.cx_active=1";
        let rules = CountingRules::default();
        assert_eq!(connections(Vec::new(), rules, local), Some(1));
    }

    #[test]
    fn http_and_other_connections_are_distinguished() {
        let http = |stats: &[&str]| open(&stats.join(" ")).http.unwrap();
        let counts = |requests, upgrades, non_http| HttpCounts {
            requests,
            upgrades,
            non_http,
            ..HttpCounts::default()
        };
        let buffered = HttpCounts {
            buffered_bytes: 70_000,
            ..HttpCounts::default()
        };
        let (none, two_tcp) = (counts(0, 0, 0), counts(0, 0, 2));
        let web = "listener.0.0.0.0_80.cx_active=5";
        let all = "http.in.cx_active=5";
        // One request, one upgrade, and nothing but HTTP.
        let upgrade = "http.in.rq_active=2 http.in.cx_upgrades_active=1";
        assert_eq!(http(&[web, all, upgrade]), counts(2, 1, 0));
        // Two TCP streams.
        assert_eq!(http(&[web, "http.in.cx_active=3"]), two_tcp);
        // A client that reads its response slowly.
        let slow = "http.in.cx_tx_bytes_buffered=70000";
        assert_eq!(http(&[web, all, slow]), buffered);
        // A connection manager named admin counts like TCP.
        let admin = "http.admin.cx_active=5 http.admin.rq_active=3";
        assert_eq!(http(&[web, admin]), counts(0, 0, 5));

        let loopback = "listener.127.0.0.1_81.cx_active=2";
        let web_owns = "listener.0.0.0.0_80.http.in.rq_completed=1";
        let loopback_owns = "listener.127.0.0.1_81.http.out.rq_completed=1";
        let loopback_shares = "listener.127.0.0.1_81.http.in.rq_completed=1";
        // Outbound requests of the pod itself are not counted, nor slow clients there and on the admin interface.
        let both = &[web, loopback, web_owns, loopback_owns].join(" ");
        let outbound = "http.out.cx_active=2 http.out.rq_active=2";
        let slow = "http.out.cx_tx_bytes_buffered=7 http.admin.cx_tx_bytes_buffered=7";
        assert_eq!(http(&[both, all, outbound, slow]), none);
        // HTTP connections of an excluded listener do not offset TCP.
        let three_and_outbound = "http.in.cx_active=3 http.out.cx_active=2";
        assert_eq!(http(&[both, three_and_outbound]), two_tcp);
        // Nor do those under a shared prefix, nor those without a completed request.
        let shared = &[web, loopback, web_owns, loopback_shares].join(" ");
        assert_eq!(http(&[shared, all]), two_tcp);
        assert_eq!(http(&[web, loopback, all]), two_tcp);
    }

    #[test]
    fn connections_of_a_hot_restarts_old_process_are_unknown() {
        let stats = "listener.0.0.0.0_80.cx_active=2 listener.0.0.0.0_80.cx_total=9";
        let count =
            |parent| count_only(&format!("{OWN} {stats} server.parent_connections={parent}"));
        let (without, with) = (count(0), count(1));
        assert_eq!(
            (without.has_parent, without.open.connections),
            (false, Some(2))
        );
        let unknown = (with.open.connections, with.open.http);
        assert_eq!((with.has_parent, unknown), (true, (None, None)));
        // The new process alone accepts connections.
        assert_eq!(with.open.counters.unwrap().accepted, 9);
    }

    #[test]
    fn sessions_of_udp_proxies_are_connections_outside_http() {
        let dump = br#"{"configs":[
            {"listener": {"stat_prefix":"dns","address":{"socket_address":{"address":"0.0.0.0","port_value":53}},
                "listener_filters":[{"typed_config":{"@type":"x/y.UdpProxyConfig","stat_prefix":"d:n.s"}}]}},
            {"listener": {"stat_prefix":"out","address":{"socket_address":{"address":"0.0.0.0","port_value":54}},
                "traffic_direction":"OUTBOUND",
                "listener_filters":[{"typed_config":{"@type":"x/y.UdpProxyConfig","stat_prefix":"out"}}]}}]}"#;
        let known = EnvoyListeners::new(listeners::read(dump).unwrap(), Default::default());
        let stats = "listener.dns.cx_active=0 udp.d:n.s.sess_active=3 udp.out.sess_active=4 udp.new.sess_active=1";
        let stats = stats.replace("sess", "downstream_sess");
        let count = |stats: &str, hidden: &HiddenStats| count(stats, &known, hidden);
        let visible = count(&format!("{OWN} {stats}"), &HiddenStats::default());
        let open = visible.open;
        assert_eq!((open.connections, open.sessions), (Some(4), 4));
        assert_eq!(open.http.unwrap().non_http, 4);
        let names = [("udp.d:n.s".to_owned(), 3), ("udp.new".to_owned(), 1)];
        assert_eq!(open.by_listener, BTreeMap::from(names));
        let hidden = HiddenStats {
            udp: true,
            ..HiddenStats::default()
        };
        let open = count(&format!("{OWN} {stats}"), &hidden).open;
        assert_eq!((open.connections, open.http), (None, None));
    }

    #[test]
    fn http3_connections_are_those_of_counted_listeners() {
        let open = open(
            "listener.0.0.0.0_443.cx_active=9 listener.0.0.0.0_443.http.in.rq_completed=1
            http.in.cx_active=9 http.in.cx_http3_active=2 http.unused.cx_http3_active=1
            listener.127.0.0.1_81.cx_active=4 listener.127.0.0.1_81.http.out.rq_completed=1
            http.out.cx_active=4 http.out.cx_http3_active=4",
        );
        assert_eq!(open.http.unwrap().http3, 3);
    }

    #[test]
    fn counters_are_those_of_counted_listeners() {
        let open = open(
            "listener.0.0.0.0_80.cx_total=40 listener.127.0.0.1_81.cx_total=30
            listener.0.0.0.0_80.http.in.rq_completed=70 listener.0.0.0.0_80.http.both.rq_completed=5
            listener.127.0.0.1_81.http.out.rq_completed=1000
            listener.127.0.0.1_81.http.both.rq_completed=2000
            http.in.cx_http1_total=20 http.in.cx_http2_total=3 http.in.cx_http3_total=1
            http.out.cx_http1_total=300 http.both.cx_http1_total=100
            http.in.health_check.request_total=9 http.out.health_check.request_total=90
            http.both.health_check.request_total=1 tcp.t.cx_total=6 tcp.u.cx_total=1",
        );
        let want = Counters {
            accepted: 40,
            excluded: 30,
            health_checks: 10,
            requests: Some(RequestCounters {
                completed: 75,
                connections: 124,
                accepted: 40,
                tcp: 7,
            }),
        };
        assert_eq!(open.counters, Some(want));
    }

    #[test]
    fn sums_saturate() {
        const MAX: u64 = u64::MAX;
        let stats = "listener.0.0.0.0_80.cx_active=MAX listener.0.0.0.0_80.pre_cx_active=1
            listener.0.0.0.0_81.cx_active=MAX listener.0.0.0.0_81.cx_active=2
            listener.0.0.0.0_80.cx_total=MAX listener.0.0.0.0_81.cx_total=MAX
            listener.127.0.0.1_82.cx_active=MAX listener.127.0.0.1_83.cx_active=MAX
            http.a.cx_active=1
            http.a.rq_active=MAX http.b.rq_active=MAX
            http.a.cx_upgrades_active=MAX http.b.cx_upgrades_active=MAX
            http.a.cx_tx_bytes_buffered=MAX http.b.cx_tx_bytes_buffered=MAX";
        let open = open(&stats.replace("MAX", &MAX.to_string()));
        let want = HttpCounts {
            requests: MAX,
            upgrades: MAX,
            non_http: MAX,
            buffered_bytes: MAX,
            http3: 0,
        };
        assert_eq!(open.http, Some(want));
        assert_eq!(open.connections, Some(MAX));
        assert_eq!(open.counters.unwrap().accepted, MAX);
        let by_listener = [("0.0.0.0_80".into(), MAX), ("0.0.0.0_81".into(), MAX)];
        assert_eq!(open.by_listener, BTreeMap::from(by_listener));
    }

    #[test]
    fn all_listeners_are_counted_but_only_some_named() {
        let number = 2 * MAX_REPORTED_LISTENERS;
        let stats = (0..number).map(|n| format!("listener.{n}.cx_active=1 "));
        let open = open(&stats.collect::<String>());
        assert_eq!(open.connections, Some(number as u64));
        assert_eq!(open.by_listener.len(), MAX_REPORTED_LISTENERS);
    }
}
