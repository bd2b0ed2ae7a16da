//! Counting what is open in Envoy's statistics, where hidden is never taken for none.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Error;

use super::bounded_json;
use super::hidden_stats::HiddenStats;
use super::listeners::EnvoyListeners;
use crate::client_activity::{Counters, RequestCounters};

/// All that a poll asks for, used or not, percent-encoded where Envoy's query parser wants it.
///
/// Gauges and counters together, so that one walk over all statistics answers both. Envoy's filter is
/// an RE2 *search*, hence the anchors.
pub(crate) const STATS_PATH: &str = "/stats?format=json&filter=%5E(\
    server%5C.(live%7Ctotal_connections%7Cuptime)%7C\
    listener%5C..*%5C.downstream_(pre_cx_active%7Ccx_active%7Ccx_total)%7C\
    http%5C..*%5C.downstream_(cx_active%7Ccx_tx_bytes_buffered%7Crq_active%7Ccx_upgrades_active%7C\
    cx_http%5B123%5D_total)%7C\
    http%5C..*%5C.health_check%5C.request_total%7C\
    listener%5C..*%5C.http%5C..*%5C.downstream_rq_completed)%24";

/// What a poll adds to [`ALL`]. It keeps the walk cheap (measured: 9 times at 10,000 clusters), and
/// leaves out what was never counted, which is zero unless it is [`Hidden`].
pub(crate) const USED_ONLY: &str = "&usedonly";

/// As many statistics as an answer of 4 MiB holds where names have the length of Envoy's.
const MAX_STATS: usize = 1 << 16;

/// Longer than any name of a statistic, in bytes.
const MAX_NAME_LEN: usize = 1024;

/// So many listeners are named to operators, which is more than fit into a termination message. All
/// are counted.
const MAX_REPORTED_LISTENERS: usize = 1000;

/// The statistics of one answer, ordered by name.
pub(crate) struct Stats<'a>(Vec<(Cow<'a, str>, u64)>);

/// What one look at Envoy's statistics shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Count {
    /// Listeners tell exactly what is open.
    Listeners(OpenConnections),
    /// A listener is hidden; the whole server's number is known, as of the last flush of statistics.
    Server {
        /// `server.total_connections`.
        connections: u64,
        /// `server.uptime` in seconds, which the same flush writes, so that a change of it proves one.
        uptime: Option<u64>,
        /// As in [`Open`].
        live: Option<bool>,
    },
    /// Nothing that could be counted is shown.
    Hidden,
}

/// What is open on the listeners that count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenConnections {
    /// Connections, those still before their filter chain included.
    pub connections: u64,
    /// The same by listener, where not zero; of very many, the first.
    pub by_listener: BTreeMap<String, u64>,
    /// What was counted since Envoy's start; `None` if accepted connections are hidden.
    pub counters: Option<Counters>,
    /// What HTTP says of them; `None` if that is hidden.
    pub http: Option<HttpCounts>,
    /// False once `/healthcheck/fail` was heard; `None` if that is hidden.
    pub live: Option<bool>,
}

/// What is in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HttpCounts {
    /// Requests under way, from their first byte; open upgrades among them.
    pub requests: u64,
    /// WebSockets and the like.
    pub upgrades: u64,
    /// Connections that do not speak HTTP, or have not begun to: TCP proxy and such.
    pub non_http: u64,
    /// Bytes in the write buffers of Envoy's connections. A request is no longer under way when its
    /// response is there, up to 1 MiB by default, and a slow client still waits for it. The admin
    /// interface sends its answers at once, so there is no canary: a gauge that is absent was never
    /// used, which is zero.
    pub buffered_bytes: u64,
    /// More is in flight than listeners have connections, so that these are not all.
    pub is_inconsistent: bool,
}

#[derive(Deserialize)]
struct StatsBody<'a> {
    #[serde(borrow, deserialize_with = "bounded_json::list::<_, _, MAX_STATS>")]
    stats: Vec<StatsEntry<'a>>,
}

/// A gauge or counter; the histograms' summary has no name.
#[derive(Deserialize)]
struct StatsEntry<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default, deserialize_with = "bounded_json::number")]
    value: Option<u64>,
}

/// One listener's numbers.
#[derive(Default, Clone, Copy)]
pub(crate) struct ListenerCounts {
    pre_active: u64,
    active: u64,
    total: u64,
}

/// Where the connections of one HTTP prefix may be.
#[derive(Default)]
pub(crate) struct PrefixOwners {
    counted: bool,
    excluded: bool,
    /// Requests completed on the counted ones.
    completed: u64,
}

// === impl Stats ===

impl<'a> Stats<'a> {
    /// Reads an answer of `/stats?format=json`.
    ///
    /// # Errors
    /// If it is not one, or one that is larger than Envoy's are. Also if a statistic is no number from
    /// 0 to 2^64 - 1, since a number that is not known is not zero.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        let answer: StatsBody<'a> = bounded_json::read(body)?;
        let named = answer.stats.into_iter().filter(|e| !e.name.is_empty());
        let mut stats = named
            .map(|StatsEntry { name, value }| match value {
                Some(value) if name.len() <= MAX_NAME_LEN => Ok((name, value)),
                Some(_) => Err(Error::custom("a statistic with a very long name")),
                None => Err(Error::custom("a statistic without a number")),
            })
            .collect::<Result<Vec<_>, _>>()?;
        stats.sort_unstable();
        // Envoy names none twice. Whoever does gets the sum, which hides nothing that is open.
        stats.dedup_by(|again, first| {
            let same = again.0 == first.0;
            if same {
                first.1 = first.1.saturating_add(again.1);
            }
            same
        });
        Ok(Self(stats))
    }

    /// Counts what is open on the listeners that are not excluded.
    ///
    /// Each family has a canary: the admin's own listener, on which this very question came, shows
    /// itself in all of them, so one that is absent is hidden (by a `stats_matcher`), not zero. Of
    /// which listener's statistics are `hidden` beside those it says nothing; `None` says that this is
    /// not known either, as if a listener were.
    #[must_use]
    pub(crate) fn count(&self, known: &EnvoyListeners, hidden: Option<&HiddenStats>) -> Count {
        let shown = |gauge| self.get(gauge).is_some_and(|n| n > 0);
        // Somebody may have reset counters.
        let exists = |counter| self.get(counter).is_some();
        let live = self.get("server.live").map(|live| live > 0);
        let hidden = match hidden {
            Some(hidden)
                if hidden.listener.is_none() && shown("listener.admin.downstream_cx_active") =>
            {
                hidden
            }
            _ => {
                return match self.get("server.total_connections") {
                    Some(connections) => Count::Server {
                        connections,
                        uptime: self.get("server.uptime"),
                        live,
                    },
                    None => Count::Hidden,
                };
            }
        };
        let listeners = self.listeners(known);
        let mut open = OpenConnections {
            live,
            ..OpenConnections::default()
        };
        let mut counters = Counters::default();
        let mut excluded = 0_u64;
        for (name, listener) in &listeners {
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
        let bearers = self.prefix_owners(&listeners, known);
        if exists("listener.admin.downstream_cx_total") && !hidden.accepted {
            counters.health_checks = self.health_checks(&bearers);
            if !hidden.requests
                && exists("listener.admin.http.admin.downstream_rq_completed")
                && exists("http.admin.downstream_cx_http1_total")
            {
                counters.requests = Some(self.requests(&bearers));
            }
            open.counters = Some(counters);
        }
        if shown("http.admin.downstream_cx_active")
            && shown("http.admin.downstream_rq_active")
            && !hidden.http
        {
            open.http = Some(self.http(&bearers, open.connections, excluded));
        }
        Count::Listeners(open)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        let at = self.0.binary_search_by_key(&name, |(name, _)| name).ok()?;
        Some(self.0[at].1)
    }

    /// The listeners by their name in statistics, without the parts that workers have in them,
    /// and of the admin's only what a listener whose `stat_prefix` is `admin` adds to it.
    pub(crate) fn listeners(&self, known: &EnvoyListeners) -> BTreeMap<&str, ListenerCounts> {
        let mut listeners = BTreeMap::<&str, ListenerCounts>::new();
        for (stat, value) in self.iter() {
            let Some(stat) = stat.strip_prefix("listener.") else {
                continue;
            };
            if let Some(name) = stat.strip_suffix(".downstream_pre_cx_active") {
                listeners.entry(name).or_default().pre_active = value;
            } else if let Some(name) = stat.strip_suffix(".downstream_cx_active") {
                listeners.entry(name).or_default().active = value;
            } else if let Some(name) = stat.strip_suffix(".downstream_cx_total") {
                listeners.entry(name).or_default().total = value;
            }
        }
        let own = listeners.remove("admin.main_thread").unwrap_or_default();
        if let Some(admin) = listeners.get_mut("admin") {
            admin.active = admin.active.saturating_sub(own.active);
            admin.total = admin.total.saturating_sub(own.total);
        }
        // A listener that is itself called so is in the dump, or has workers of its own: it counts.
        let has_workers = |name: &str| {
            let first = format!("{name}.worker_");
            let mut from_first = listeners.range(first.as_str()..);
            from_first
                .next()
                .is_some_and(|(next, _)| next.starts_with(&first))
        };
        let is_part_of_another = |name: &str| match name.rsplit_once('.') {
            Some((listener, part)) => {
                let worker = part.strip_prefix("worker_").unwrap_or_default();
                let is_worker = !worker.is_empty() && worker.bytes().all(|b| b.is_ascii_digit());
                is_worker
                    && listeners.contains_key(listener)
                    && !known.contains(name)
                    && !has_workers(name)
            }
            None => false,
        };
        let parts: Vec<_> = listeners
            .keys()
            .copied()
            .filter(|name| is_part_of_another(name))
            .collect();
        for part in parts {
            listeners.remove(part);
        }
        listeners
    }

    /// What HTTP says of the `connections` of the listeners that count, while `excluded` are open
    /// on others.
    fn http(
        &self,
        bearers: &BTreeMap<&str, PrefixOwners>,
        connections: u64,
        excluded: u64,
    ) -> HttpCounts {
        let mut http = HttpCounts::default();
        let (mut surely_counted, mut surely_excluded, mut either) = (0_u64, 0_u64, 0_u64);
        for (stat, value) in self.iter() {
            let Some(stat) = stat.strip_prefix("http.") else {
                continue;
            };
            let Some((prefix, stat)) = stat.rsplit_once('.') else {
                continue;
            };
            // The admin's own requests, unless a connection manager took the same prefix.
            let value = if prefix == "admin" {
                self.excluding_admin(stat, value)
            } else {
                value
            };
            let place = bearers.get(prefix);
            let only_excluded = place.is_some_and(PrefixOwners::are_all_excluded);
            let sum = match stat {
                "downstream_cx_active" if only_excluded => &mut surely_excluded,
                "downstream_cx_active" => match place {
                    Some(PrefixOwners {
                        excluded: false, ..
                    }) => &mut surely_counted,
                    _ => &mut either,
                },
                "downstream_rq_active" if !only_excluded => &mut http.requests,
                "downstream_cx_upgrades_active" if !only_excluded => &mut http.upgrades,
                "downstream_cx_tx_bytes_buffered" if !only_excluded => &mut http.buffered_bytes,
                _ => continue,
            };
            *sum = sum.saturating_add(value);
        }
        // At most as many of the undecided as are open on excluded listeners, beyond those surely
        // there, can be theirs; the others are ours.
        let elsewhere = excluded.saturating_sub(surely_excluded);
        let speaking_http = surely_counted.saturating_add(either.saturating_sub(elsewhere));
        http.non_http = connections.saturating_sub(speaking_http);
        let none_is_open = connections.max(excluded) == 0;
        http.is_inconsistent = speaking_http > connections || http.requests > 0 && none_is_open;
        http
    }

    /// How many requests the `health_check` filter answered, but for those surely on excluded
    /// listeners.
    fn health_checks(&self, bearers: &BTreeMap<&str, PrefixOwners>) -> u64 {
        let checks = self.iter().filter_map(|(stat, value)| {
            let stat = stat.strip_prefix("http.")?;
            let prefix = stat.strip_suffix(".health_check.request_total")?;
            let excluded = bearers
                .get(prefix)
                .is_some_and(PrefixOwners::are_all_excluded);
            (!excluded).then_some(value)
        });
        checks.fold(0, u64::saturating_add)
    }

    /// What the requests of the counted listeners say.
    fn requests(&self, bearers: &BTreeMap<&str, PrefixOwners>) -> RequestCounters {
        let connections = self.iter().filter_map(|(stat, value)| {
            let (prefix, stat) = stat.strip_prefix("http.")?.rsplit_once('.')?;
            let first_bytes = matches!(
                stat,
                "downstream_cx_http1_total"
                    | "downstream_cx_http2_total"
                    | "downstream_cx_http3_total"
            );
            let excluded = bearers
                .get(prefix)
                .is_some_and(PrefixOwners::are_all_excluded);
            // The admin's own connections explain no request elsewhere.
            (first_bytes && !excluded && prefix != "admin").then_some(value)
        });
        let completed = bearers.values().map(|bearers| bearers.completed);
        RequestCounters {
            completed: completed.fold(0, u64::saturating_add),
            connections: connections.fold(0, u64::saturating_add),
        }
    }

    /// On which listeners each HTTP prefix completed a request, by `listener.X.http.PREFIX.*`.
    pub(crate) fn prefix_owners(
        &self,
        listeners: &BTreeMap<&str, ListenerCounts>,
        known: &EnvoyListeners,
    ) -> BTreeMap<&str, PrefixOwners> {
        let mut bearers = BTreeMap::<&str, PrefixOwners>::new();
        for (stat, completed) in self.iter() {
            let pair = stat
                .strip_prefix("listener.")
                .and_then(|stat| stat.strip_suffix(".downstream_rq_completed"));
            let Some(pair) = pair else { continue };
            // Both halves may hold `.http.`: the listener's is a name that is known to be one.
            for (at, _) in pair.match_indices(".http.") {
                let (listener, prefix) = (&pair[..at], &pair[at + ".http.".len()..]);
                let Some(numbers) = listeners.get(listener) else {
                    continue;
                };
                let bearer = bearers.entry(prefix).or_default();
                if known.excludes(listener) {
                    bearer.excluded = true;
                    continue;
                }
                bearer.counted = true;
                // The admin's own requests, unless a listener of its name accepted a connection:
                // then they cannot be told apart, and pass for requests of that.
                if listener != "admin" || numbers.total > 0 {
                    bearer.completed = bearer.completed.saturating_add(completed);
                }
            }
        }
        bearers
    }

    /// Of a number under `http.admin.`, what does not belong to the admin interface.
    fn excluding_admin(&self, stat: &str, value: u64) -> u64 {
        let connections = self.get("http.admin.downstream_cx_active").unwrap_or(0);
        let own = self.get("listener.admin.main_thread.downstream_cx_active");
        let others = connections.saturating_sub(own.unwrap_or(connections));
        match stat {
            "downstream_cx_active" => others,
            // Nobody else connected: all are the admin's. Else all but this very question.
            _ if others == 0 => 0,
            "downstream_rq_active" => value.saturating_sub(1),
            _ => value,
        }
    }
}

// === impl PrefixOwners ===

impl PrefixOwners {
    /// Returns true if all are on excluded listeners.
    pub(crate) fn are_all_excluded(&self) -> bool {
        self.excluded && !self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener_selector::parse_listeners;

    /// Statistics as a table holds them.
    type StatsTable<'a> = &'a [(&'a str, u64)];

    fn count(stats: StatsTable<'_>, ignored: &str) -> Count {
        let entry = |(name, value): &(&str, u64)| format!(r#"{{"name":"{name}","value":{value}}}"#);
        let entries: Vec<_> = stats.iter().map(entry).collect();
        let body = format!(
            r#"{{"stats":[{}{}{{"histograms":{{}}}}]}}"#,
            entries.join(","),
            if entries.is_empty() { "" } else { "," },
        );
        let listeners = EnvoyListeners::new(Vec::new(), parse_listeners(ignored).unwrap());
        let stats = Stats::read(body.as_bytes()).unwrap();
        stats.count(&listeners, Some(&HiddenStats::default()))
    }

    /// What Envoy shows of the question itself.
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

    fn open(stats: StatsTable<'_>, ignored: &str) -> OpenConnections {
        let other = |(name, _): &(&str, u64)| stats.iter().all(|(n, _)| n != name);
        let canaries: Vec<_> = CANARIES.into_iter().filter(other).collect();
        match count(&[&canaries, stats].concat(), ignored) {
            Count::Listeners(open) => open,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hidden_is_not_none() {
        let total = ("server.total_connections", 7);
        assert_eq!(count(&[], ""), Count::Hidden);
        assert_eq!(count(&[("server.live", 1)], ""), Count::Hidden);
        let server = Count::Server {
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
            Count::Hidden
        );
        let Count::Listeners(open) = without("listener.admin.downstream_cx_total") else {
            panic!()
        };
        assert_eq!(open.counters, None);
        for hidden in [
            "http.admin.downstream_cx_active",
            "http.admin.downstream_rq_active",
        ] {
            let Count::Listeners(open) = without(hidden) else {
                panic!()
            };
            assert_eq!(open.http, None);
        }
        for hidden in [
            "http.admin.downstream_cx_http1_total",
            "listener.admin.http.admin.downstream_rq_completed",
        ] {
            let Count::Listeners(open) = without(hidden) else {
                panic!()
            };
            assert_eq!(open.counters.unwrap().requests, None);
        }
    }

    #[test]
    fn counters_that_were_reset_are_not_hidden() {
        let reset = CANARIES.map(|(name, value)| match name.ends_with("active") {
            true => (name, value),
            false => (name, 0),
        });
        assert!(open(&reset, "").counters.unwrap().requests.is_some());
    }

    #[test]
    fn the_question_itself_is_not_counted() {
        let want = OpenConnections {
            counters: Some(Counters {
                requests: Some(RequestCounters::default()),
                ..Counters::default()
            }),
            http: Some(HttpCounts::default()),
            live: Some(true),
            ..OpenConnections::default()
        };
        assert_eq!(open(&[], ""), want);
    }

    #[test]
    fn a_listener_is_counted_once_and_before_its_filter_chain_too() {
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
    fn names_that_look_like_the_excluded_count() {
        let table: [(StatsTable<'_>, u64); 8] = [
            (&[("listener.my_admin.downstream_cx_active", 2)], 2),
            (&[("listener.admin.x.downstream_cx_active", 2)], 2),
            (&[("listener.worker_1.downstream_cx_active", 2)], 2),
            (&[("listener.web.worker_1.downstream_cx_active", 2)], 2),
            (&[("listener.main_thread.downstream_cx_active", 2)], 2),
            // A listener with stat_prefix `admin`: two connections beside ours.
            (
                &[
                    ("listener.admin.downstream_cx_active", 3),
                    ("listener.admin.worker_0.downstream_cx_active", 2),
                ],
                2,
            ),
            // One with stat_prefix `web.worker_1` beside one with `web`.
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
    fn a_listener_called_as_a_worker_of_another_counts() {
        let dump = br#"{"configs":[{"listener":{"stat_prefix":"web.worker_1","address":{"pipe":{"path":"x"}}}}]}"#;
        let listeners =
            EnvoyListeners::new(crate::envoy::listeners::read(dump).unwrap(), Vec::new());
        let stats = br#"{"stats":[
            {"name":"listener.admin.downstream_cx_active","value":1},
            {"name":"listener.admin.main_thread.downstream_cx_active","value":1},
            {"name":"listener.web.downstream_cx_active","value":0},
            {"name":"listener.web.worker_1.downstream_cx_active","value":2}
        ]}"#;
        let count = |known| {
            let stats = Stats::read(stats).unwrap();
            match stats.count(known, Some(&HiddenStats::default())) {
                Count::Listeners(open) => open.connections,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            (count(&listeners), count(&EnvoyListeners::default())),
            (2, 0)
        );
    }

    #[test]
    fn loopback_internal_and_ignored_listeners_do_not_count() {
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
    fn http_is_told_from_what_is_outside_it() {
        let web = ("listener.0.0.0.0_80.downstream_cx_active", 5);
        let own = ("listener.127.0.0.1_81.downstream_cx_active", 2);
        let web_bears = ("listener.0.0.0.0_80.http.in.downstream_rq_completed", 1);
        let own_bears = ("listener.127.0.0.1_81.http.out.downstream_rq_completed", 1);
        let own_shares = ("listener.127.0.0.1_81.http.in.downstream_rq_completed", 1);
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
                "a response that a client reads slowly",
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
                "one to the pod itself, and one of the admin interface",
                &[
                    web,
                    own,
                    web_bears,
                    own_bears,
                    ("http.in.downstream_cx_active", 5),
                    ("http.out.downstream_cx_active", 2),
                    ("http.out.downstream_cx_tx_bytes_buffered", 70_000),
                    ("http.admin.downstream_cx_tx_bytes_buffered", 70_000),
                ],
                HttpCounts::default(),
            ),
            (
                "all HTTP, one request, one upgrade",
                &[
                    web,
                    ("http.in.downstream_cx_active", 5),
                    ("http.in.downstream_rq_active", 2),
                    ("http.in.downstream_cx_upgrades_active", 1),
                ],
                HttpCounts {
                    requests: 2,
                    upgrades: 1,
                    ..HttpCounts::default()
                },
            ),
            (
                "two streams of TCP",
                &[web, ("http.in.downstream_cx_active", 3)],
                HttpCounts {
                    non_http: 2,
                    ..HttpCounts::default()
                },
            ),
            (
                "a connection came between the two numbers, or is on a hidden listener",
                &[web, ("http.in.downstream_cx_active", 6)],
                HttpCounts {
                    is_inconsistent: true,
                    ..HttpCounts::default()
                },
            ),
            (
                "the pod's own outbound is not waited for",
                &[
                    web,
                    own,
                    web_bears,
                    own_bears,
                    ("http.in.downstream_cx_active", 5),
                    ("http.out.downstream_cx_active", 2),
                    ("http.out.downstream_rq_active", 2),
                ],
                HttpCounts::default(),
            ),
            (
                "its connections do not stand for our TCP",
                &[
                    web,
                    own,
                    web_bears,
                    own_bears,
                    ("http.in.downstream_cx_active", 3),
                    ("http.out.downstream_cx_active", 2),
                ],
                HttpCounts {
                    non_http: 2,
                    ..HttpCounts::default()
                },
            ),
            (
                "nor do those of a shared prefix",
                &[
                    web,
                    own,
                    web_bears,
                    own_shares,
                    ("http.in.downstream_cx_active", 5),
                ],
                HttpCounts {
                    non_http: 2,
                    ..HttpCounts::default()
                },
            ),
            (
                "nor those that have completed nothing yet",
                &[web, own, ("http.in.downstream_cx_active", 5)],
                HttpCounts {
                    non_http: 2,
                    ..HttpCounts::default()
                },
            ),
            (
                "a connection manager called admin",
                &[
                    web,
                    ("http.admin.downstream_cx_active", 6),
                    ("http.admin.downstream_rq_active", 4),
                ],
                HttpCounts {
                    requests: 3,
                    ..HttpCounts::default()
                },
            ),
        ];
        for (case, stats, want) in table {
            assert_eq!(open(stats, "").http, Some(want), "{case}");
        }
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
    fn requests_of_a_connection_manager_called_admin_count() {
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
        // A listener that is called so too: its requests cannot be told from the admin's own.
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
    fn very_many_listeners_are_counted_but_not_all_named() {
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

    #[test]
    fn other_answers_are_errors() {
        let long = "x".repeat(MAX_NAME_LEN + 1);
        let long = format!(r#"{{"stats":[{{"name":"{long}","value":1}}]}}"#);
        for body in [
            &long,
            "",
            "OK\n",
            "{}",
            "<html>",
            r#"{"stats":[{"name":"#,
            r#"{"stats":{}}"#,
            r#"{"stats":[{"name":"x"}]}"#,
            r#"{"stats":[{"name":"x","value":null}]}"#,
            r#"{"stats":[{"name":"x","value":"0"}]}"#,
            r#"{"stats":[{"name":"x","value":-1}]}"#,
            r#"{"stats":[{"name":"x","value":0.0}]}"#,
            r#"{"stats":[{"name":"x","value":18446744073709551616}]}"#,
            r#"{"stats":[{"name":"x","value":{}}]}"#,
        ] {
            assert!(Stats::read(body.as_bytes()).is_err(), "{body}");
        }
    }
}
