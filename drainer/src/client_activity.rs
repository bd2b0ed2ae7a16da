//! Client activity between two polls, from Envoy's counters: how many clients connected, and whether an
//! existing connection was used.
//!
//! Gauges show neither: a request shorter than the poll interval is in none of them. Counters are
//! compared from one poll to the next rather than over a longer time, so that what accounts for one
//! request does not add up to account for a later one.

/// Envoy's counters since its start. Their meaning was measured on Envoy 1.36 and 1.40, which agree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted by the counted listeners.
    pub accepted: u64,
    /// Connections accepted by the excluded listeners.
    pub excluded: u64,
    /// Requests answered by Envoy's `health_check` filter, on the counted listeners or on others that
    /// share their HTTP prefix. Zero if hidden, which accounts for no connection.
    pub health_checks: u64,
    /// The counters of requests; `None` if they are hidden.
    pub requests: Option<RequestCounters>,
}

/// Counters of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounters {
    /// Requests whose response has begun, on the counted listeners. Envoy leaves out those that its
    /// `health_check` filter answered.
    pub completed: u64,
    /// Connections that have sent a first byte, on the counted listeners or on others that share their
    /// HTTP prefix. A TCP probe, which sends nothing, is not counted.
    pub connections: u64,
}

/// Compares the counters of each poll with those of the previous one.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    last: Option<Counters>,
    /// Connections accepted between the last two polls without any request yet: that of a TLS client
    /// follows some time after its connection.
    unexplained: u64,
}

/// The difference between two polls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrafficDelta {
    /// Clients that connected before the previous poll, which is certain only now. Connections that
    /// only check Envoy's health are not clients.
    pub earlier_clients: u64,
    /// Clients that connected between the polls.
    pub clients: u64,
    /// Connections between the polls that may be a client's; the next poll decides.
    pub undecided: u64,
    /// Connections that only checked Envoy's health.
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
        let Some(last) = self.last.replace(counters) else {
            return Some(TrafficDelta {
                connections_reused: counters.requests.is_none(),
                ..TrafficDelta::default()
            });
        };
        let unexplained = std::mem::take(&mut self.unexplained);
        let new = counters.since(last)?;
        // Excluded listeners may share the prefix: each of their connections may be a health check.
        let checks = new.health_checks.saturating_sub(new.excluded);
        let late_checks = unexplained.min(checks.saturating_sub(new.accepted));
        let earlier_clients = unexplained - late_checks;
        let arrivals = new.accepted.saturating_sub(checks);
        let clients = new.requests.map_or(0, |new| new.completed).min(arrivals);
        self.unexplained = arrivals - clients;
        Some(TrafficDelta {
            earlier_clients,
            clients,
            undecided: self.unexplained,
            health_checks: late_checks + new.accepted.min(checks),
            // A connection accounts for its first request, and only if it has sent data since.
            connections_reused: new.requests.is_none_or(|new| {
                new.completed
                    > new
                        .connections
                        .min(earlier_clients.saturating_add(arrivals))
            }),
        })
    }
}

// === impl Counters ===

impl Counters {
    /// Returns the increase since `last`; `None` if a counter is lower.
    fn since(self, last: Self) -> Option<Self> {
        let requests = match (self.requests, last.requests) {
            (Some(requests), Some(last)) => Some(RequestCounters {
                completed: requests.completed.checked_sub(last.completed)?,
                connections: requests.connections.checked_sub(last.connections)?,
            }),
            _ => None,
        };
        Some(Self {
            accepted: self.accepted.checked_sub(last.accepted)?,
            excluded: self.excluded.checked_sub(last.excluded)?,
            health_checks: self.health_checks.checked_sub(last.health_checks)?,
            requests,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The increase at a poll: accepted, excluded, health checks, completed, connections that sent.
    type Increase = [u64; 5];

    /// The differences between polls, where all counters start at 100.
    fn deltas(polls: &[Increase]) -> Vec<TrafficDelta> {
        let mut traffic = Traffic::default();
        let mut total = [100; 5];
        let mut add = |[accepted, excluded, health_checks, completed, connections]: Increase| {
            traffic.add(Counters {
                accepted,
                excluded,
                health_checks,
                requests: Some(RequestCounters {
                    completed,
                    connections,
                }),
            })
        };
        add(total);
        let polls = polls.iter().map(|new| {
            total = std::array::from_fn(|n| total[n] + new[n]);
            add(total).unwrap()
        });
        polls.collect()
    }

    #[test]
    fn reused_and_new_connections_are_distinguished() {
        let table: [(&str, &[Increase], &[bool]); 14] = [
            ("nothing", &[[0; 5]], &[false]),
            (
                "a request on a keep-alive connection",
                &[[0, 0, 0, 1, 0]],
                &[true],
            ),
            (
                "a connection with one request",
                &[[1, 0, 0, 1, 1]],
                &[false],
            ),
            (
                "a connection with two requests",
                &[[1, 0, 0, 2, 1]],
                &[true],
            ),
            (
                "TLS: the request follows later",
                &[[1, 0, 0, 0, 0], [0, 0, 0, 1, 1]],
                &[false, false],
            ),
            (
                "TLS: then a second request",
                &[[1, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 0]],
                &[false, false, true],
            ),
            (
                "a preconnect, used much later",
                &[[1, 0, 0, 0, 0], [0; 5], [0, 0, 0, 1, 1]],
                &[false, false, true],
            ),
            (
                "a TCP probe accounts for no request",
                &[[1, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 1, 0]],
                &[true, false, true],
            ),
            (
                "nor does a request to the health_check filter",
                &[[1, 0, 1, 0, 1], [1, 0, 1, 1, 1], [0, 0, 0, 1, 0]],
                &[false, true, true],
            ),
            (
                "nor does it later, over TLS",
                &[[1, 0, 0, 0, 0], [0, 0, 1, 1, 1]],
                &[false, true],
            ),
            (
                "health checks on a keep-alive connection do not use it",
                &[[0, 0, 1, 0, 0], [0, 0, 1, 0, 0]],
                &[false, false],
            ),
            (
                "probes that the upstream answers, each on its own connection",
                &[[1, 0, 0, 1, 1], [0; 5], [1, 0, 0, 1, 1]],
                &[false, false, false],
            ),
            (
                "a busy excluded listener under the same prefix",
                &[[0, 9, 0, 0, 9], [1, 9, 0, 1, 10]],
                &[false, false],
            ),
            (
                "an excluded listener accounts for no request",
                &[[0, 9, 0, 1, 9]],
                &[true],
            ),
        ];
        for (case, polls, want) in table {
            let reused: Vec<_> = deltas(polls).iter().map(|i| i.connections_reused).collect();
            assert_eq!(reused, want, "{case}");
        }
    }

    #[test]
    fn clients_and_health_checks_are_distinguished() {
        // Clients known at once, clients known later, undecided connections, health checks.
        type Row<'a> = (&'a str, &'a [Increase], &'a [[u64; 4]]);
        let table: [Row<'_>; 8] = [
            (
                "a client",
                &[[1, 0, 0, 1, 1], [0; 5]],
                &[[1, 0, 0, 0], [0; 4]],
            ),
            (
                "a client without a request, such as TCP",
                &[[1, 0, 0, 0, 0], [0; 5]],
                &[[0, 0, 1, 0], [0, 1, 0, 0]],
            ),
            (
                "a health check",
                &[[1, 0, 1, 0, 1], [0; 5]],
                &[[0, 0, 0, 1], [0; 4]],
            ),
            (
                "a health check over TLS",
                &[[1, 0, 0, 0, 0], [0, 0, 1, 0, 1]],
                &[[0, 0, 1, 0], [0, 0, 0, 1]],
            ),
            (
                "a health check over TLS, and a client meanwhile",
                &[[1, 0, 0, 0, 0], [1, 0, 1, 1, 2], [0; 5]],
                &[[0, 0, 1, 0], [0, 1, 0, 1], [0; 4]],
            ),
            (
                "a health check and a client",
                &[[2, 0, 1, 1, 2]],
                &[[1, 0, 0, 1]],
            ),
            (
                "a health check on a keep-alive connection accounts for no later client",
                &[[0, 0, 1, 0, 0], [1, 0, 0, 1, 1]],
                &[[0; 4], [1, 0, 0, 0]],
            ),
            (
                "a health check on an excluded listener accounts for none",
                &[[1, 1, 1, 1, 2]],
                &[[1, 0, 0, 0]],
            ),
        ];
        for (case, polls, want) in table {
            let got: Vec<_> = deltas(polls)
                .iter()
                .map(|i| [i.clients, i.earlier_clients, i.undecided, i.health_checks])
                .collect();
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn lower_counter_restarts_the_comparison() {
        let counters = |accepted, completed| Counters {
            accepted,
            requests: Some(RequestCounters {
                completed,
                connections: accepted,
            }),
            ..Counters::default()
        };
        let mut traffic = Traffic::default();
        assert!(traffic.add(counters(7, 7)).is_some());
        assert!(traffic.add(counters(9, 7)).is_some());
        assert_eq!(traffic.add(counters(2, 8)), None);
        // Neither the lost increase nor undecided connections account for anything.
        let delta = traffic.add(counters(2, 9)).unwrap();
        assert!(delta.connections_reused);
        assert_eq!(delta.earlier_clients, 0);
        assert_eq!(traffic.add(counters(3, 8)), None);
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
