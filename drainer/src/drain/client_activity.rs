//! Client activity, from Envoy's counters: how many clients connected between two polls, whether an existing connection
//! was used, and whether the endpoint is quiet.
//!
//! Gauges show none of it: a request shorter than the poll interval is in no gauge. Counters are compared from one poll to
//! the next rather than over a longer time, so that what accounts for one request does not add up to account for a later
//! one. Quiet, a period without new clients, shows that endpoints no longer route to the pod. Zero open connections alone
//! do not.

use std::time::Duration;

use tokio::time::Instant;

use crate::envoy::counters::Counters;
use crate::settings::readiness_probe::ReadinessProbe;

/// Compares the counters of each poll with those of the previous one.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    last: Option<Counters>,
    /// Connections to HTTP listeners that have not sent a byte: the TCP checks of a load balancer, and clients in a TLS
    /// handshake.
    silent: u64,
}

/// The difference between two polls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrafficDelta {
    /// Clients that connected; on an HTTP listener, those that sent a first byte. Connections that only check Envoy's health
    /// are not clients.
    pub clients: u64,
    /// Connections that only checked Envoy's health, or its port.
    pub health_checks: u64,
    /// A connection that existed before carried a request, or may have: unknown where counters are
    /// hidden.
    pub connections_reused: bool,
}

// === impl Traffic ===

impl Traffic {
    /// Adds the counters of a poll. Returns `None` if one of them is lower than before: Envoy was
    /// restarted, or a listener was removed, so there is nothing to compare with.
    pub(crate) fn add(&mut self, counters: Counters) -> Option<TrafficDelta> {
        // The first poll shows no increase.
        let last = self.last.replace(counters).unwrap_or(counters);
        let before = std::mem::take(&mut self.silent);
        let new = counters.since(last)?;
        let http = new.requests.unwrap_or_default();
        let sending = http.connections.saturating_add(http.tcp);
        self.silent = before.saturating_add(http.accepted).saturating_sub(sending);
        let accepted = new.accepted.saturating_add(before);
        let accepted = accepted.saturating_sub(self.silent);
        // Excluded listeners may share the prefix: each of their connections may be a health check.
        let checks = new.health_checks.saturating_sub(new.excluded);
        let clients = accepted.saturating_sub(checks);
        let silent = self.silent.saturating_sub(before);
        Some(TrafficDelta {
            clients,
            health_checks: accepted.min(checks).saturating_add(silent),
            // A connection accounts for its first request, and only if it has sent data since.
            connections_reused: (new.requests)
                .is_none_or(|new| new.completed > new.connections.min(clients)),
        })
    }
}

/// The number of new connections allowed within a length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuietWindow {
    /// The length; zero requires no quiet.
    pub length: Duration,
    /// How many new connections the pod's own readiness probes make within it.
    pub probe_arrivals: u64,
}

/// When clients connected, as far back as the readiness probes alone may account for the arrivals: at
/// most [`QuietWindow::probe_arrivals`] + 1 entries.
#[derive(Debug, Default)]
pub(crate) struct ConnectionArrivals {
    /// When each total was first reached, oldest first.
    history: Vec<(Instant, ArrivalCounts)>,
    total: ArrivalCounts,
}

/// Total numbers of new connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ArrivalCounts {
    clients: u64,
    health_checks: u64,
}

// === impl QuietWindow ===

impl QuietWindow {
    /// A window of `period` that tolerates the readiness probes connecting to the drained listeners,
    /// which the kubelet continues while a pod terminates. If a probe's period is so short that the
    /// window would hardly pass without one, the window is extended to a multiple of that period, and
    /// allows as many new connections as the probes make in it.
    pub(crate) fn new(period: Duration, probes: impl IntoIterator<Item = ReadinessProbe>) -> Self {
        let is_frequent = |probe: &ReadinessProbe| probe.period < 2 * period;
        let frequent: Vec<_> = probes.into_iter().filter(is_frequent).collect();
        let longest = frequent.iter().map(|probe| probe.period).max();
        let length = longest.map_or(period, |longest| longest * ceil_div(period, longest));
        let probes = frequent.iter().map(|probe| ceil_div(length, probe.period));
        Self {
            length,
            probe_arrivals: probes.map(u64::from).sum(),
        }
    }
}

fn ceil_div(span: Duration, by: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(by.as_nanos())).unwrap_or(u32::MAX)
}

// === impl ConnectionArrivals ===

impl ConnectionArrivals {
    /// Adds what connected before the poll at `at`; `None` if it is unknown.
    pub(crate) fn add(&mut self, at: Instant, delta: Option<TrafficDelta>, quiet: QuietWindow) {
        if delta.is_none() {
            // Counts as the first poll.
            *self = Self::default();
        }
        let delta = delta.unwrap_or_default();
        self.total.clients = self.total.clients.saturating_add(delta.clients);
        if delta.clients > 0 || self.history.is_empty() {
            self.history.push((at, self.total));
        }
        self.total.health_checks = self.total.health_checks.saturating_add(delta.health_checks);
        let oldest = self.total.clients.saturating_sub(quiet.probe_arrivals);
        self.history.retain(|(_, then)| then.clients >= oldest);
    }

    /// Returns when a client last connected, or else the first poll was; `None` if that is unknown.
    pub(crate) fn last(&self) -> Option<Instant> {
        Some(self.history.last()?.0)
    }

    /// Returns true if no client is known to have connected within the window before `now`. The probes
    /// in it may be among the health checks that Envoy answered, so each connection is accounted for
    /// once only.
    pub(crate) fn is_quiet(&self, quiet: QuietWindow, now: Instant) -> bool {
        let has_few_since = |(at, then): &(Instant, ArrivalCounts)| {
            let health_checks = self.total.health_checks - then.health_checks;
            let probes = quiet.probe_arrivals.saturating_sub(health_checks);
            now >= *at + quiet.length && self.total.clients - then.clients <= probes
        };
        quiet.length.is_zero() || self.history.iter().any(has_few_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::counters::RequestCounters;

    #[test]
    fn window_is_a_multiple_of_a_frequent_probe_period() {
        let table: [(&str, &[&str], &str, u64); 7] = [
            ("3s", &[], "3s", 0),
            ("3s", &["80/2s"], "4s", 2),
            ("3s", &["80/1s"], "3s", 3),
            ("3s", &["80/5s"], "5s", 1),
            ("3s", &["80/6s", "81/10s"], "3s", 0),
            ("3s", &["80/2s", "81/5s", "82/10s"], "5s", 4),
            ("0s", &["80/2s"], "0s", 0),
        ];
        for (period, probes, length, probe_arrivals) in table {
            let period = crate::settings::duration::parse(period).unwrap();
            let quiet = QuietWindow::new(period, probes.iter().map(|p| p.parse().unwrap()));
            let want = QuietWindow {
                length: crate::settings::duration::parse(length).unwrap(),
                probe_arrivals,
            };
            assert_eq!(quiet, want, "{probes:?}");
        }
    }

    #[test]
    fn history_of_arrivals_is_bounded() {
        let quiet = QuietWindow {
            length: Duration::from_secs(3),
            probe_arrivals: 3,
        };
        let mut arrivals = ConnectionArrivals::default();
        let delta = TrafficDelta {
            clients: 1,
            ..TrafficDelta::default()
        };
        for _ in 0..10_000 {
            arrivals.add(Instant::now(), Some(delta), quiet);
        }
        assert_eq!(arrivals.history.len(), 4);
        arrivals.add(Instant::now(), None, quiet);
        assert_eq!(arrivals.history.len(), 1);
    }

    /// Counters: accepted, excluded, health checks, completed, connections that sent, accepted by HTTP listeners, TCP proxies.
    type Counts = [u64; 7];

    fn add(traffic: &mut Traffic, counts: Counts) -> Option<TrafficDelta> {
        let [
            accepted,
            excluded,
            health_checks,
            completed,
            connections,
            http,
            tcp,
        ] = counts;
        traffic.add(Counters {
            accepted,
            excluded,
            health_checks,
            requests: Some(RequestCounters {
                completed,
                connections,
                accepted: http,
                tcp,
            }),
        })
    }

    /// What an event adds to the counters.
    fn increase(event: &str) -> Counts {
        match event {
            "nothing" => [0; 7],
            // To a listener that speaks HTTP, to one that does not, and to an HTTP listener with a filter chain for TCP.
            "connection" => [1, 0, 0, 0, 0, 1, 0],
            "tcp" => [1, 0, 0, 0, 0, 0, 1],
            "tcp on http" => [1, 0, 0, 0, 0, 1, 1],
            // Requests and health checks, the first or a later one of a connection.
            "first byte" => [0, 0, 0, 0, 1, 0, 0],
            "first request" => [0, 0, 0, 1, 1, 0, 0],
            "request" => [0, 0, 0, 1, 0, 0, 0],
            "first check" => [0, 0, 1, 0, 1, 0, 0],
            "check" => [0, 0, 1, 0, 0, 0, 0],
            // Connections with a request and a health check.
            "client" => [1, 0, 0, 1, 1, 1, 0],
            "checker" => [1, 0, 1, 0, 1, 1, 0],
            "excluded client" => [0, 1, 0, 0, 1, 0, 0],
            "excluded checker" => [0, 1, 1, 0, 1, 0, 0],
            _ => panic!("{event}"),
        }
    }

    /// The differences between polls, each after these events; all counters start at 100.
    fn deltas(polls: &[&str]) -> Vec<TrafficDelta> {
        let mut traffic = Traffic::default();
        let mut total = [100; 7];
        add(&mut traffic, total);
        let polls = polls.iter().map(|events| {
            for event in events.split(", ") {
                let new = increase(event);
                total = std::array::from_fn(|n| total[n] + new[n]);
            }
            add(&mut traffic, total).unwrap()
        });
        polls.collect()
    }

    #[test]
    fn reused_and_new_connections_are_distinguished() {
        // Which of the polls show that a connection was reused.
        let table: [(&[&str], &[usize]); 13] = [
            (&["nothing"], &[]),
            (&["request"], &[0]),
            (&["client"], &[]),
            (&["client, request"], &[0]),
            // TLS: the first request follows later.
            (&["connection", "first request", "request"], &[2]),
            // A connection that is used much later arrives then.
            (&["connection", "nothing", "first request", "request"], &[3]),
            // A TCP probe accounts for no request, nor does a health check.
            (&["connection, request", "connection", "request"], &[0, 2]),
            (&["checker", "checker, request", "request"], &[1, 2]),
            (&["connection", "first check, request"], &[1]),
            // Health checks on a keep-alive connection do not use it.
            (&["check", "check"], &[]),
            // Probes that the upstream answers, each on its own connection.
            (&["client", "nothing", "client"], &[]),
            // An excluded listener under the same prefix accounts for no request.
            (&["excluded client", "client, excluded client"], &[]),
            (&["excluded client, request"], &[0]),
        ];
        for (polls, want) in table {
            let deltas = deltas(polls);
            let is_reused = |poll: &usize| deltas[*poll].connections_reused;
            let reused: Vec<_> = (0..polls.len()).filter(is_reused).collect();
            assert_eq!(reused, want, "{polls:?}");
        }
    }

    #[test]
    fn clients_and_health_checks_are_distinguished() {
        // Clients, and checks of Envoy's health or its port.
        let table: [(&[&str], &[[u64; 2]]); 12] = [
            (&["client", "nothing"], &[[1, 0], [0; 2]]),
            (&["tcp", "nothing"], &[[1, 0], [0; 2]]),
            (&["checker", "nothing"], &[[0, 1], [0; 2]]),
            (&["client, checker"], &[[1, 1]]),
            // TCP checks, beside clients too.
            (&["connection, connection", "nothing"], &[[0, 2], [0; 2]]),
            (&["connection, client, tcp on http"], &[[2, 1]]),
            (
                &["connection", "tcp on http", "nothing"],
                &[[0, 1], [1, 0], [0; 2]],
            ),
            // A client in a TLS handshake, before its first request.
            (
                &["connection", "first byte", "request"],
                &[[0, 1], [1, 0], [0; 2]],
            ),
            // A health check over TLS, without and with a client meanwhile.
            (&["connection", "first check"], &[[0, 1], [0, 1]]),
            (
                &["connection", "first check, client", "nothing"],
                &[[0, 1], [1, 1], [0; 2]],
            ),
            // A health check accounts for no client on a keep-alive connection, nor on an excluded listener.
            (&["check", "client"], &[[0; 2], [1, 0]]),
            (&["client, excluded checker"], &[[1, 0]]),
        ];
        for (polls, want) in table {
            let got = deltas(polls).into_iter();
            let got = got.map(|delta| [delta.clients, delta.health_checks]);
            assert_eq!(got.collect::<Vec<_>>(), want, "{polls:?}");
        }
    }

    #[test]
    fn lower_counter_restarts_the_comparison() {
        let mut traffic = Traffic::default();
        assert!(add(&mut traffic, [7, 0, 0, 7, 7, 7, 0]).is_some());
        assert!(add(&mut traffic, [9, 0, 0, 7, 7, 9, 0]).is_some());
        assert_eq!(add(&mut traffic, [2, 0, 0, 8, 2, 2, 0]), None);
        // Neither the lost increase nor connections that were silent account for anything.
        let delta = add(&mut traffic, [2, 0, 0, 9, 3, 2, 0]).unwrap();
        assert!(delta.connections_reused);
        assert_eq!(delta.clients, 0);
        assert_eq!(add(&mut traffic, [3, 0, 0, 8, 3, 3, 0]), None);
    }

    #[test]
    fn any_connection_may_be_reused_if_requests_are_hidden() {
        let mut traffic = Traffic::default();
        for _ in 0..3 {
            assert!(traffic.add(Counters::default()).unwrap().connections_reused);
        }
        let visible = Counters {
            requests: Some(RequestCounters::default()),
            ..Counters::default()
        };
        assert!(traffic.add(visible).unwrap().connections_reused);
        assert!(!traffic.add(visible).unwrap().connections_reused);
    }
}
