//! What one poll of Envoy counted: open connections, from its statistics. A statistic that a
//! `stats_matcher` hides is unknown, never zero.

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
    /// What is open.
    pub counts: Counts,
}

/// What one poll of Envoy's statistics counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Counts {
    /// The exact counts of every listener that is counted.
    Exact(OpenConnections),
    /// A listener's statistics are hidden: the total of the whole server, as of Envoy's last flush of
    /// statistics.
    ServerTotal {
        /// `server.total_connections`.
        connections: u64,
        /// `server.uptime` in seconds. The same flush writes it, so a change proves another flush.
        uptime: Option<u64>,
    },
    /// Neither listeners nor the server's total can be counted.
    #[default]
    Hidden,
}

/// What is open on the counted listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenConnections {
    /// Connections, including those that have no filter chain yet, and sessions of UDP proxies.
    pub connections: u64,
    /// Connections by listener, and sessions by UDP proxy, where not zero; at most the first 1,000.
    pub by_listener: BTreeMap<String, u64>,
    /// Counters since Envoy's start; `None` if accepted connections are hidden.
    pub counters: Option<Counters>,
    /// The HTTP gauges of these connections; `None` if they are hidden.
    pub http: Option<HttpCounts>,
}

/// What is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HttpCounts {
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
    /// The HTTP gauges are higher than the listeners' connections allow, so `connections` is too low.
    pub is_inconsistent: bool,
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
        let snapshot = |counts| Self {
            live: stats.get("server.live").map(|live| live > 0),
            epoch: stats.get("server.hot_restart_epoch"),
            has_new_listener: false,
            counts,
        };
        let mut open = OpenConnections::default();
        for (proxy, stat, sessions) in stats.family("udp.") {
            if stat == UDP_SESSIONS && known.udp_proxies.get(proxy) != Some(&false) {
                open.add(&format!("udp.{proxy}"), sessions);
            }
        }
        let sessions = open.connections;
        let has_udp_proxy = known.udp_proxies.values().any(|counts| *counts);
        let all_hidden = has_udp_proxy && hidden.is_none_or(|hidden| hidden.udp);
        let are_visible = is_positive("listener.admin.downstream_cx_active") && !all_hidden;
        let Some(hidden) = hidden.filter(|hidden| are_visible && hidden.listener.is_none()) else {
            let total = stats.get("server.total_connections");
            return snapshot(match total.filter(|_| !all_hidden) {
                Some(connections) => Counts::ServerTotal {
                    connections: connections.saturating_add(sessions),
                    uptime: stats.get("server.uptime"),
                },
                None => Counts::Hidden,
            });
        };
        let mut counters = Counters::default();
        let (mut excluded, mut accepted_http) = (0_u64, 0_u64);
        for (name, listener) in listeners {
            let connections = listener.pre_active.saturating_add(listener.active);
            if known.excludes(name) {
                excluded = excluded.saturating_add(connections);
                counters.excluded = counters.excluded.saturating_add(listener.total);
                continue;
            }
            counters.accepted = counters.accepted.saturating_add(listener.total);
            if owners.listeners.contains(*name) {
                accepted_http = accepted_http.saturating_add(listener.total);
            }
            open.add(name, connections);
        }
        let http = HttpSums::new(stats, owners);
        if exists("listener.admin.downstream_cx_total") && !hidden.accepted {
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
        if is_positive("http.admin.downstream_cx_active")
            && is_positive("http.admin.downstream_rq_active")
            && !hidden.http
        {
            open.http = Some(http.counts(open.connections, sessions, excluded));
        }
        snapshot(Counts::Exact(open))
    }

    /// Returns the number of open connections, exact or not; `None` if it is unknown.
    pub(crate) fn connections(&self) -> Option<u64> {
        match self.counts {
            Counts::Exact(OpenConnections { connections, .. })
            | Counts::ServerTotal { connections, .. } => Some(connections),
            Counts::Hidden => None,
        }
    }

    /// Returns the exact counts; `None` if they are unknown.
    pub(crate) fn open(&self) -> Option<&OpenConnections> {
        match &self.counts {
            Counts::Exact(open) => Some(open),
            Counts::ServerTotal { .. } | Counts::Hidden => None,
        }
    }
}

// === impl OpenConnections ===

impl OpenConnections {
    fn add(&mut self, name: &str, connections: u64) {
        self.connections = self.connections.saturating_add(connections);
        if connections > 0 && self.by_listener.len() < MAX_REPORTED_LISTENERS {
            self.by_listener.insert(name.to_owned(), connections);
        }
    }
}

// === impl HttpCounts ===

impl HttpCounts {
    /// Returns true if no request and no response is in flight.
    pub(crate) fn are_idle(self) -> bool {
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
    /// A request is active that may be on any listener.
    has_unowned: bool,
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
                "downstream_rq_active" => {
                    sums.has_unowned |= value > 0 && !owners.has(prefix);
                    &mut counts.requests
                }
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

    /// Returns the gauges of the `connections` on counted listeners, `sessions` of which are over UDP proxies, while
    /// `excluded` connections are open on others.
    fn counts(&self, connections: u64, sessions: u64, excluded: u64) -> HttpCounts {
        // At most `excluded - self.excluded` of the undecided connections are on excluded listeners; the rest are on
        // counted ones.
        let max_undecided_excluded = excluded.saturating_sub(self.excluded);
        let undecided_counted = self.undecided.saturating_sub(max_undecided_excluded);
        let speaking_http = self.counted.saturating_add(undecided_counted);
        let has_surplus = self.has_unowned || self.counts.requests > 0 && excluded == 0;
        HttpCounts {
            non_http: connections.saturating_sub(speaking_http),
            is_inconsistent: speaking_http > connections - sessions
                || has_surplus && connections == sessions,
            ..self.counts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::listeners::{self, CountingRules};
    use crate::settings::value::parse_list;

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
        let snapshot = count_only(&format!("{OWN} {stats}"));
        snapshot.open().unwrap().clone()
    }

    #[test]
    fn hidden_statistics_are_not_zero() {
        assert_eq!(count_only(""), Snapshot::default());
        assert_eq!(count_only("server.live=1").live, Some(true));
        let server = Counts::ServerTotal {
            connections: 7,
            uptime: None,
        };
        assert_eq!(count_only("server.total_connections=7").counts, server);
        let without = |name: &str| {
            let kept = OWN.split_whitespace().filter(|own| !own.starts_with(name));
            count_only(&kept.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(without("listener.admin.cx_active").open(), None);
        let open = |name| without(name).open().unwrap().clone();
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
        let of_listener = count(|hidden| hidden.listener = Some("web".into()));
        assert_eq!(of_listener.open(), None);
        let open = |hide| count(hide).open().unwrap().clone();
        assert_eq!(open(|hidden| hidden.accepted = true).counters, None);
        let counters = open(|hidden| hidden.requests = true).counters;
        assert_eq!(counters, Some(Counters::default()));
        assert_eq!(open(|hidden| hidden.http = true).http, None);
    }

    #[test]
    fn own_admin_request_is_not_counted() {
        let want = OpenConnections {
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
        assert_eq!(count_only(&reset).open(), Some(&want));
    }

    #[test]
    fn listeners_count_once_including_pre_filter_chain_connections() {
        let open = open(
            "listener.0.0.0.0_80.cx_active=5 listener.0.0.0.0_80.pre_cx_active=2
            listener.0.0.0.0_80.worker_0.cx_active=3 listener.0.0.0.0_80.worker_11.cx_active=2
            listener.0.0.0.0_80.cx_total=40
            listener.0.0.0.0_80.worker_0.cx_total=20 listener.0.0.0.0_80.worker_11.cx_total=20",
        );
        assert_eq!((open.connections, open.counters.unwrap().accepted), (7, 40));
        assert_eq!(open.by_listener, BTreeMap::from([("0.0.0.0_80".into(), 7)]));
        // None of them speaks HTTP.
        assert_eq!(open.http.unwrap().non_http, 7);
    }

    #[test]
    fn listeners_named_like_excluded_ones_count() {
        let connections = |stats: &str| open(stats).connections;
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
        assert_eq!((in_dump.connections(), connections(web)), (Some(3), 1));
    }

    #[test]
    fn loopback_internal_and_ignored_listeners_are_not_counted() {
        let stats = "listener.127.0.0.1_81.cx_active=1 listener.[__1]_82.cx_active=1
            listener.envoy_internal_x.cx_active=1 listener.0.0.0.0_8001.cx_active=1
            listener.probes.cx_active=1 listener.probes2.cx_active=1";
        assert_eq!(open(stats).connections, 3);
        let rules = CountingRules {
            ignored: parse_list("8001,probes").unwrap(),
            ..CountingRules::default()
        };
        let ignored = EnvoyListeners::new(Vec::new(), rules);
        let snapshot = count(&format!("{OWN} {stats}"), &ignored, &HiddenStats::default());
        assert_eq!(snapshot.connections(), Some(1));
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
        let inconsistent = |requests| HttpCounts {
            is_inconsistent: true,
            ..counts(requests, 0, 0)
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
        // A connection accepted between the two reads, or on a hidden listener.
        assert_eq!(http(&[web, "http.in.cx_active=6"]), inconsistent(0));
        // A request without a connection.
        assert_eq!(http(&["http.in.rq_active=1"]), inconsistent(1));
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
    fn requests_of_an_unknown_listener_are_not_subtracted() {
        let inconsistent = |stats: &str| open(stats).http.unwrap().is_inconsistent;
        let outbound =
            "listener.127.0.0.1_81.cx_active=1 listener.127.0.0.1_81.http.out.rq_completed=1
            http.out.cx_active=1";
        assert!(!inconsistent(&format!("{outbound} http.out.rq_active=1")));
        let unknown = format!("{outbound} http.new.cx_active=1 http.new.rq_active=1");
        assert!(inconsistent(&unknown));
        // The connections that are counted may be theirs.
        let counted = format!("{unknown} listener.0.0.0.0_80.cx_active=1");
        assert!(!inconsistent(&counted));
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
        let open = visible.open().unwrap();
        assert_eq!((open.connections, open.http.unwrap().non_http), (4, 4));
        assert!(!open.http.unwrap().is_inconsistent);
        let names = [("udp.d:n.s".to_owned(), 3), ("udp.new".to_owned(), 1)];
        assert_eq!(open.by_listener, BTreeMap::from(names));
        let total = format!("server.total_connections=7 {stats}");
        let hidden = |set: fn(&mut HiddenStats)| {
            let mut hidden = HiddenStats::default();
            set(&mut hidden);
            count(&format!("{OWN} {total}"), &hidden).connections()
        };
        assert_eq!(
            hidden(|hidden| hidden.listener = Some("dns".into())),
            Some(11)
        );
        assert_eq!(hidden(|hidden| hidden.udp = true), None);
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
            is_inconsistent: false,
        };
        assert_eq!(open.http, Some(want));
        assert_eq!(
            (open.connections, open.counters.unwrap().accepted),
            (MAX, MAX)
        );
        let by_listener = [("0.0.0.0_80".into(), MAX), ("0.0.0.0_81".into(), MAX)];
        assert_eq!(open.by_listener, BTreeMap::from(by_listener));
    }

    #[test]
    fn all_listeners_are_counted_but_only_some_named() {
        let number = 2 * MAX_REPORTED_LISTENERS;
        let stats = (0..number).map(|n| format!("listener.{n}.cx_active=1 "));
        let open = open(&stats.collect::<String>());
        assert_eq!(open.connections, number as u64);
        assert_eq!(open.by_listener.len(), MAX_REPORTED_LISTENERS);
    }
}
