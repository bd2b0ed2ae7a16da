//! What one poll of Envoy counted: open connections, from its statistics. A statistic that a
//! `stats_matcher` hides is unknown, never zero.

use std::collections::BTreeMap;

use super::hidden_stats::{HTTP_COUNTERS, HTTP_GAUGES, HTTP3_GAUGE, HiddenStats};
use super::listeners::EnvoyListeners;
use super::prefix_owners::PrefixOwners;
use super::stats::{ListenersByName, Stats};
use crate::client_activity::{Counters, RequestCounters};

/// Maximum number of listeners listed by name, more than fit into a termination message. All are
/// counted.
const MAX_REPORTED_LISTENERS: usize = 1000;

/// What one poll of Envoy's statistics counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Snapshot {
    /// The exact counts of every listener that is counted.
    Counted(OpenConnections),
    /// A listener's statistics are hidden: the total of the whole server, as of Envoy's last flush of
    /// statistics.
    ServerTotal {
        /// `server.total_connections`.
        connections: u64,
        /// `server.uptime` in seconds. The same flush writes it, so a change proves another flush.
        uptime: Option<u64>,
        /// As in [`OpenConnections`].
        live: Option<bool>,
    },
    /// Neither listeners nor the server's total can be counted.
    Hidden,
}

/// What is open on the counted listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenConnections {
    /// Connections, including those that have no filter chain yet.
    pub connections: u64,
    /// Connections by listener, where not zero; at most the first 1,000.
    pub by_listener: BTreeMap<String, u64>,
    /// Counters since Envoy's start; `None` if accepted connections are hidden.
    pub counters: Option<Counters>,
    /// The HTTP gauges of these connections; `None` if they are hidden.
    pub http: Option<HttpCounts>,
    /// Connections that speak HTTP/3, idle or not; `None` if they are hidden.
    pub http3: Option<u64>,
    /// False after `/healthcheck/fail`; `None` if `server.live` is hidden.
    pub live: Option<bool>,
    /// A listener has appeared since Envoy's setup was read.
    pub has_new_listener: bool,
}

/// What is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HttpCounts {
    /// Active requests, from their first byte; includes open upgrades.
    pub requests: u64,
    /// Open upgrades, such as WebSockets.
    pub upgrades: u64,
    /// Connections that do not speak HTTP, or have not begun to, such as those of a TCP proxy.
    pub non_http: u64,
    /// Bytes in the write buffers of Envoy's connections. A request is no longer active once its
    /// response has arrived, up to 1 MiB by default, while a slow client still reads it. This gauge has
    /// no sentinel, since the admin interface sends its responses at once: if absent, it was never used,
    /// which is zero.
    pub buffered_bytes: u64,
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
        let live = stats.get("server.live").map(|live| live > 0);
        let are_listeners_visible = is_positive("listener.admin.downstream_cx_active");
        let hidden = hidden.filter(|hidden| are_listeners_visible && hidden.listener.is_none());
        let Some(hidden) = hidden else {
            return match stats.get("server.total_connections") {
                Some(connections) => Self::ServerTotal {
                    connections,
                    uptime: stats.get("server.uptime"),
                    live,
                },
                None => Self::Hidden,
            };
        };
        let mut open = OpenConnections {
            live,
            ..OpenConnections::default()
        };
        let mut counters = Counters::default();
        let mut excluded = 0_u64;
        for (name, listener) in listeners {
            let connections = listener.pre_active.saturating_add(listener.active);
            if known.excludes(name) {
                excluded = excluded.saturating_add(connections);
                counters.excluded = counters.excluded.saturating_add(listener.total);
                continue;
            }
            counters.accepted = counters.accepted.saturating_add(listener.total);
            open.connections = open.connections.saturating_add(connections);
            if connections > 0 && open.by_listener.len() < MAX_REPORTED_LISTENERS {
                open.by_listener.insert((*name).to_owned(), connections);
            }
        }
        let http = HttpSums::new(stats, owners);
        if exists("listener.admin.downstream_cx_total") && !hidden.accepted {
            counters.health_checks = http.health_checks;
            if !hidden.requests
                && exists("listener.admin.http.admin.downstream_rq_completed")
                && exists("http.admin.downstream_cx_http1_total")
            {
                counters.requests = Some(RequestCounters {
                    completed: completed_requests(stats, listeners, known),
                    connections: http.connections,
                });
            }
            open.counters = Some(counters);
        }
        if is_positive("http.admin.downstream_cx_active")
            && is_positive("http.admin.downstream_rq_active")
            && !hidden.http
        {
            open.http = Some(http.counts(open.connections, excluded));
            open.http3 = (!hidden.http3).then_some(http.http3);
        }
        Self::Counted(open)
    }

    /// Returns `server.live`: false while Envoy's health is failed, `None` if it is unknown.
    pub(crate) fn live(&self) -> Option<bool> {
        match self {
            Self::Counted(OpenConnections { live, .. }) | Self::ServerTotal { live, .. } => *live,
            Self::Hidden => None,
        }
    }

    /// Returns the number of open connections, exact or not; `None` if it is unknown.
    pub(crate) fn connections(&self) -> Option<u64> {
        match self {
            Self::Counted(OpenConnections { connections, .. })
            | Self::ServerTotal { connections, .. } => Some(*connections),
            Self::Hidden => None,
        }
    }

    /// Returns the exact counts; `None` if they are unknown.
    pub(crate) fn open(&self) -> Option<&OpenConnections> {
        match self {
            Self::Counted(open) => Some(open),
            Self::ServerTotal { .. } | Self::Hidden => None,
        }
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
    /// HTTP/3 connections. The gauges of listeners do not tell them from those of a TCP listener with the same address,
    /// which has the same name in statistics.
    http3: u64,
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
            let prefix = owner.strip_suffix(".health_check").unwrap_or(owner);
            let is_of_filter = prefix != owner && stat == "request_total";
            let prefix = if is_of_filter { prefix } else { owner };
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
                HTTP3_GAUGE => &mut sums.http3,
                _ if is_of_filter => &mut sums.health_checks,
                // The admin interface's own connections complete no request on counted listeners.
                _ if HTTP_COUNTERS.contains(&stat) && prefix != "admin" => &mut sums.connections,
                _ => continue,
            };
            // A connection manager may have the admin interface's prefix.
            let is_shared = prefix == "admin" && HTTP_GAUGES.contains(&stat);
            let value = if is_shared {
                excluding_admin(stats, stat, value)
            } else {
                value
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
        let none_is_open = connections == 0 && excluded == 0;
        HttpCounts {
            non_http: connections.saturating_sub(speaking_http),
            is_inconsistent: speaking_http > connections
                || self.counts.requests > 0 && none_is_open,
            ..self.counts
        }
    }
}

/// Sums the requests that the counted listeners have completed.
fn completed_requests(
    stats: &Stats<'_>,
    listeners: &ListenersByName<'_>,
    known: &EnvoyListeners,
) -> u64 {
    // Under `admin` these are the admin interface's own requests, unless a listener of that name accepted a connection:
    // then both are one number, which counts as the listener's.
    let is_admin_used = listeners.get("admin").is_some_and(|admin| admin.total > 0);
    let all = stats.completed_requests(listeners, known);
    let is_counted = |listener| !known.excludes(listener) && (listener != "admin" || is_admin_used);
    let counted = all.filter(|(listener, ..)| is_counted(*listener));
    counted
        .map(|(.., completed)| completed)
        .fold(0, u64::saturating_add)
}

/// Returns the share of a value under `http.admin.` that is not the admin interface's own. If the main thread's
/// gauge is absent, all of it is.
fn excluding_admin(stats: &Stats<'_>, stat: &str, value: u64) -> u64 {
    let connections = stats.get("http.admin.downstream_cx_active").unwrap_or(0);
    let own = stats.get("listener.admin.main_thread.downstream_cx_active");
    let others = connections.saturating_sub(own.unwrap_or(connections));
    match stat {
        "downstream_cx_active" => others,
        // Without other connections, the whole value is the admin interface's own; with others, only this very request
        // is.
        _ if others == 0 => 0,
        "downstream_rq_active" => value.saturating_sub(1),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::parse_list;

    /// Names and values.
    type StatsTable<'a> = &'a [(&'a str, u64)];

    fn count(stats: StatsTable<'_>, ignored: &str) -> Snapshot {
        count_except(stats, ignored, &HiddenStats::default())
    }

    fn count_except(stats: StatsTable<'_>, ignored: &str, hidden: &HiddenStats) -> Snapshot {
        let listeners = EnvoyListeners::new(Vec::new(), parse_list(ignored).unwrap());
        count_known(stats, &listeners, hidden)
    }

    fn count_known(
        stats: StatsTable<'_>,
        listeners: &EnvoyListeners,
        hidden: &HiddenStats,
    ) -> Snapshot {
        let entry = |(name, value): &(&str, u64)| format!(r#"{{"name":"{name}","value":{value}}}"#);
        let entries: Vec<_> = stats.iter().map(entry).collect();
        let body = format!(
            r#"{{"stats":[{}{}{{"histograms":{{}}}}]}}"#,
            entries.join(","),
            if entries.is_empty() { "" } else { "," },
        );
        let stats = Stats::read(body.as_bytes()).unwrap();
        let mut owners = PrefixOwners::default();
        let counts = stats.listeners(listeners);
        owners.add(&stats, &counts, listeners);
        Snapshot::count(&stats, &counts, listeners, &owners, Some(hidden))
    }

    /// What the request of the statistics itself adds to them.
    const CANARIES: [(&str, u64); 9] = [
        ("listener.admin.downstream_cx_active", 1),
        ("listener.admin.downstream_cx_total", 3),
        ("listener.admin.main_thread.downstream_cx_active", 1),
        ("listener.admin.main_thread.downstream_cx_total", 3),
        ("http.admin.downstream_cx_active", 1),
        ("http.admin.downstream_rq_active", 1),
        ("http.admin.downstream_cx_http1_total", 3),
        ("listener.admin.http.admin.downstream_rq_completed", 9),
        ("server.live", 1),
    ];

    /// Requests, upgrades and connections outside HTTP.
    fn http([requests, upgrades, non_http]: [u64; 3]) -> HttpCounts {
        HttpCounts {
            requests,
            upgrades,
            non_http,
            ..HttpCounts::default()
        }
    }

    fn inconsistent() -> HttpCounts {
        HttpCounts {
            is_inconsistent: true,
            ..HttpCounts::default()
        }
    }

    fn open(stats: StatsTable<'_>, ignored: &str) -> OpenConnections {
        let is_unset = |(name, _): &(&str, u64)| stats.iter().all(|(n, _)| n != name);
        let canaries: Vec<_> = CANARIES.into_iter().filter(is_unset).collect();
        match count(&[&canaries, stats].concat(), ignored) {
            Snapshot::Counted(open) => open,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hidden_statistics_are_not_zero() {
        let total = ("server.total_connections", 7);
        assert_eq!(count(&[], ""), Snapshot::Hidden);
        assert_eq!(count(&[("server.live", 1)], ""), Snapshot::Hidden);
        let server = Snapshot::ServerTotal {
            connections: 7,
            uptime: None,
            live: None,
        };
        assert_eq!(count(&[total], ""), server);
        let without = |name: &str| {
            let kept: Vec<_> = CANARIES.into_iter().filter(|(n, _)| *n != name).collect();
            count(&kept, "")
        };
        assert_eq!(
            without("listener.admin.downstream_cx_active"),
            Snapshot::Hidden
        );
        let Snapshot::Counted(open) = without("listener.admin.downstream_cx_total") else {
            panic!()
        };
        assert_eq!(open.counters, None);
        for hidden in [
            "http.admin.downstream_cx_active",
            "http.admin.downstream_rq_active",
        ] {
            let Snapshot::Counted(open) = without(hidden) else {
                panic!()
            };
            assert_eq!((open.http, open.http3), (None, None));
        }
        for hidden in [
            "http.admin.downstream_cx_http1_total",
            "listener.admin.http.admin.downstream_rq_completed",
        ] {
            let Snapshot::Counted(open) = without(hidden) else {
                panic!()
            };
            assert_eq!(open.counters.unwrap().requests, None);
        }
    }

    #[test]
    fn reset_counters_are_not_hidden() {
        let reset = CANARIES.map(|(name, value)| match name.ends_with("active") {
            true => (name, value),
            false => (name, 0),
        });
        assert!(open(&reset, "").counters.unwrap().requests.is_some());
    }

    #[test]
    fn own_admin_request_is_not_counted() {
        let want = OpenConnections {
            counters: Some(Counters {
                requests: Some(RequestCounters::default()),
                ..Counters::default()
            }),
            http: Some(HttpCounts::default()),
            http3: Some(0),
            live: Some(true),
            ..OpenConnections::default()
        };
        assert_eq!(open(&[], ""), want);
    }

    #[test]
    fn listeners_count_once_including_pre_filter_chain_connections() {
        let open = open(
            &[
                ("listener.0.0.0.0_80.downstream_cx_active", 5),
                ("listener.0.0.0.0_80.downstream_cx_total", 40),
                ("listener.0.0.0.0_80.downstream_pre_cx_active", 2),
                ("listener.0.0.0.0_80.worker_0.downstream_cx_active", 3),
                ("listener.0.0.0.0_80.worker_0.downstream_cx_total", 20),
                ("listener.0.0.0.0_80.worker_11.downstream_cx_active", 2),
                ("listener.0.0.0.0_80.worker_11.downstream_cx_total", 20),
            ],
            "",
        );
        assert_eq!((open.connections, open.counters.unwrap().accepted), (7, 40));
        assert_eq!(open.by_listener, BTreeMap::from([("0.0.0.0_80".into(), 7)]));
        // None of them speaks HTTP.
        assert_eq!(open.http.unwrap().non_http, 7);
    }

    #[test]
    fn listeners_named_like_excluded_ones_count() {
        let table: [(StatsTable<'_>, u64); 8] = [
            (&[("listener.my_admin.downstream_cx_active", 2)], 2),
            (&[("listener.admin.x.downstream_cx_active", 2)], 2),
            (&[("listener.worker_1.downstream_cx_active", 2)], 2),
            (&[("listener.web.worker_1.downstream_cx_active", 2)], 2),
            (&[("listener.main_thread.downstream_cx_active", 2)], 2),
            // A listener with stat_prefix `admin`: two connections besides the drainer's own.
            (
                &[
                    ("listener.admin.downstream_cx_active", 3),
                    ("listener.admin.worker_0.downstream_cx_active", 2),
                ],
                2,
            ),
            // A listener with stat_prefix `web.worker_1` besides one with `web`.
            (
                &[
                    ("listener.web.downstream_cx_active", 1),
                    ("listener.web.worker_1.downstream_cx_active", 2),
                    ("listener.web.worker_1.worker_0.downstream_cx_active", 2),
                ],
                3,
            ),
            (
                &[
                    ("listener.web.downstream_cx_active", 1),
                    ("listener.web.worker_1.downstream_cx_active", 2),
                    ("listener.web.worker_1.worker_3.downstream_cx_active", 2),
                ],
                3,
            ),
        ];
        for (stats, connections) in table {
            assert_eq!(open(stats, "").connections, connections, "{stats:?}");
        }
    }

    #[test]
    fn listener_named_like_a_worker_counts() {
        let dump = br#"{"configs":[{"listener":{"stat_prefix":"web.worker_1","address":{"pipe":{"path":"x"}}}}]}"#;
        let listeners =
            EnvoyListeners::new(crate::envoy::listeners::read(dump).unwrap(), Vec::new());
        let stats = [
            ("listener.admin.downstream_cx_active", 1),
            ("listener.admin.main_thread.downstream_cx_active", 1),
            ("listener.web.downstream_cx_active", 0),
            ("listener.web.worker_1.downstream_cx_active", 2),
        ];
        let count = |known| {
            let snapshot = count_known(&stats, known, &HiddenStats::default());
            snapshot.connections().unwrap()
        };
        assert_eq!(
            (count(&listeners), count(&EnvoyListeners::default())),
            (2, 0)
        );
    }

    #[test]
    fn loopback_internal_and_ignored_listeners_are_not_counted() {
        let stats = [
            ("listener.127.0.0.1_81.downstream_cx_active", 1),
            ("listener.[__1]_82.downstream_cx_active", 1),
            ("listener.envoy_internal_x.downstream_cx_active", 1),
            ("listener.0.0.0.0_8001.downstream_cx_active", 1),
            ("listener.probes.downstream_cx_active", 1),
            ("listener.probes2.downstream_cx_active", 1),
        ];
        assert_eq!(open(&stats, "").connections, 3);
        assert_eq!(open(&stats, "8001,probes").connections, 1);
    }

    #[test]
    fn http_and_other_connections_are_distinguished() {
        let web = ("listener.0.0.0.0_80.downstream_cx_active", 5);
        let loopback = ("listener.127.0.0.1_81.downstream_cx_active", 2);
        let web_owns = ("listener.0.0.0.0_80.http.in.downstream_rq_completed", 1);
        let loopback_owns = ("listener.127.0.0.1_81.http.out.downstream_rq_completed", 1);
        let loopback_shares = ("listener.127.0.0.1_81.http.in.downstream_rq_completed", 1);
        let table: [(&str, StatsTable<'_>, HttpCounts); 11] = [
            (
                "a request without a connection",
                &[("http.in.downstream_rq_active", 1)],
                HttpCounts {
                    requests: 1,
                    is_inconsistent: true,
                    ..HttpCounts::default()
                },
            ),
            (
                "a client that reads its response slowly",
                &[
                    web,
                    ("http.in.downstream_cx_active", 5),
                    ("http.in.downstream_cx_tx_bytes_buffered", 70_000),
                ],
                HttpCounts {
                    buffered_bytes: 70_000,
                    ..HttpCounts::default()
                },
            ),
            (
                "a slow client on an excluded listener, and one on the admin interface",
                &[
                    web,
                    loopback,
                    web_owns,
                    loopback_owns,
                    ("http.in.downstream_cx_active", 5),
                    ("http.out.downstream_cx_active", 2),
                    ("http.out.downstream_cx_tx_bytes_buffered", 70_000),
                    ("http.admin.downstream_cx_tx_bytes_buffered", 70_000),
                ],
                HttpCounts::default(),
            ),
            (
                "only HTTP, one request, one upgrade",
                &[
                    web,
                    ("http.in.downstream_cx_active", 5),
                    ("http.in.downstream_rq_active", 2),
                    ("http.in.downstream_cx_upgrades_active", 1),
                ],
                http([2, 1, 0]),
            ),
            (
                "two TCP streams",
                &[web, ("http.in.downstream_cx_active", 3)],
                http([0, 0, 2]),
            ),
            (
                "a connection accepted between the two reads, or on a hidden listener",
                &[web, ("http.in.downstream_cx_active", 6)],
                inconsistent(),
            ),
            (
                "outbound requests of the pod itself are not counted",
                &[
                    web,
                    loopback,
                    web_owns,
                    loopback_owns,
                    ("http.in.downstream_cx_active", 5),
                    ("http.out.downstream_cx_active", 2),
                    ("http.out.downstream_rq_active", 2),
                ],
                HttpCounts::default(),
            ),
            (
                "HTTP connections of an excluded listener do not offset TCP",
                &[
                    web,
                    loopback,
                    web_owns,
                    loopback_owns,
                    ("http.in.downstream_cx_active", 3),
                    ("http.out.downstream_cx_active", 2),
                ],
                http([0, 0, 2]),
            ),
            (
                "nor do those under a shared prefix",
                &[
                    web,
                    loopback,
                    web_owns,
                    loopback_shares,
                    ("http.in.downstream_cx_active", 5),
                ],
                http([0, 0, 2]),
            ),
            (
                "nor do those without a completed request",
                &[web, loopback, ("http.in.downstream_cx_active", 5)],
                http([0, 0, 2]),
            ),
            (
                "a connection manager named admin",
                &[
                    web,
                    ("http.admin.downstream_cx_active", 6),
                    ("http.admin.downstream_rq_active", 4),
                ],
                http([3, 0, 0]),
            ),
        ];
        for (case, stats, want) in table {
            assert_eq!(open(stats, "").http, Some(want), "{case}");
        }
    }

    #[test]
    fn http3_connections_are_those_of_counted_listeners() {
        let open = open(
            &[
                ("listener.0.0.0.0_443.downstream_cx_active", 9),
                ("listener.0.0.0.0_443.http.in.downstream_rq_completed", 1),
                ("listener.127.0.0.1_81.downstream_cx_active", 4),
                ("listener.127.0.0.1_81.http.out.downstream_rq_completed", 1),
                ("http.in.downstream_cx_active", 9),
                ("http.in.downstream_cx_http3_active", 2),
                ("http.unused.downstream_cx_http3_active", 1),
                ("http.out.downstream_cx_active", 4),
                ("http.out.downstream_cx_http3_active", 4),
            ],
            "",
        );
        assert_eq!(open.http3, Some(3));
        let hidden = HiddenStats {
            http3: true,
            ..HiddenStats::default()
        };
        let Snapshot::Counted(open) = count_except(&CANARIES, "", &hidden) else {
            panic!()
        };
        assert_eq!((open.http, open.http3), (Some(HttpCounts::default()), None));
    }

    #[test]
    fn counters_are_those_of_counted_listeners() {
        let open = open(
            &[
                ("listener.0.0.0.0_80.downstream_cx_total", 40),
                ("listener.0.0.0.0_80.http.in.downstream_rq_completed", 70),
                ("listener.0.0.0.0_80.http.both.downstream_rq_completed", 5),
                ("http.in.downstream_cx_http1_total", 20),
                ("http.in.downstream_cx_http2_total", 3),
                ("http.in.downstream_cx_http3_total", 1),
                ("http.in.health_check.request_total", 9),
                ("listener.127.0.0.1_81.downstream_cx_total", 30),
                (
                    "listener.127.0.0.1_81.http.out.downstream_rq_completed",
                    1000,
                ),
                (
                    "listener.127.0.0.1_81.http.both.downstream_rq_completed",
                    2000,
                ),
                ("http.out.downstream_cx_http1_total", 300),
                ("http.both.downstream_cx_http1_total", 100),
                ("http.out.health_check.request_total", 90),
                ("http.both.health_check.request_total", 1),
            ],
            "",
        );
        let want = Counters {
            accepted: 40,
            excluded: 30,
            health_checks: 10,
            requests: Some(RequestCounters {
                completed: 75,
                connections: 124,
            }),
        };
        assert_eq!(open.counters, Some(want));
    }

    #[test]
    fn requests_of_a_connection_manager_named_admin_count() {
        let completed = |stats| {
            open(stats, "")
                .counters
                .unwrap()
                .requests
                .unwrap()
                .completed
        };
        let elsewhere = [
            ("listener.0.0.0.0_80.downstream_cx_total", 1),
            ("listener.0.0.0.0_80.http.admin.downstream_rq_completed", 4),
        ];
        assert_eq!(completed(&elsewhere), 4);
        // A listener of the same name: its requests and the admin's own are one number.
        let merged = [
            ("listener.admin.downstream_cx_total", 5),
            ("listener.admin.http.admin.downstream_rq_completed", 13),
        ];
        assert_eq!(completed(&merged), 13);
    }

    #[test]
    fn sums_saturate() {
        const MAX: u64 = u64::MAX;
        let open = open(
            &[
                ("listener.0.0.0.0_80.downstream_cx_active", MAX),
                ("listener.0.0.0.0_80.downstream_pre_cx_active", 1),
                ("listener.0.0.0.0_81.downstream_cx_active", MAX),
                ("listener.0.0.0.0_81.downstream_cx_active", 2),
                ("listener.0.0.0.0_80.downstream_cx_total", MAX),
                ("listener.0.0.0.0_81.downstream_cx_total", MAX),
                ("listener.127.0.0.1_82.downstream_cx_active", MAX),
                ("listener.127.0.0.1_83.downstream_cx_active", MAX),
                ("http.a.downstream_cx_active", 1),
                ("http.a.downstream_rq_active", MAX),
                ("http.b.downstream_rq_active", MAX),
                ("http.a.downstream_cx_upgrades_active", MAX),
                ("http.b.downstream_cx_upgrades_active", MAX),
                ("http.a.downstream_cx_tx_bytes_buffered", MAX),
                ("http.b.downstream_cx_tx_bytes_buffered", MAX),
            ],
            "",
        );
        let want = HttpCounts {
            requests: MAX,
            upgrades: MAX,
            non_http: MAX,
            buffered_bytes: MAX,
            is_inconsistent: false,
        };
        assert_eq!(
            (open.connections, open.counters.unwrap().accepted),
            (MAX, MAX)
        );
        assert_eq!(open.http, Some(want));
        let by_listener = [("0.0.0.0_80".into(), MAX), ("0.0.0.0_81".into(), MAX)];
        assert_eq!(open.by_listener, BTreeMap::from(by_listener));
    }

    #[test]
    fn all_listeners_are_counted_but_only_some_named() {
        let names: Vec<_> = (0..2 * MAX_REPORTED_LISTENERS)
            .map(|n| format!("listener.{n}.downstream_cx_active"))
            .collect();
        let stats: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let open = open(&stats, "");
        assert_eq!(
            (open.connections, open.by_listener.len()),
            (2 * MAX_REPORTED_LISTENERS as u64, MAX_REPORTED_LISTENERS)
        );
    }
}
