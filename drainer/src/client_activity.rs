//! What clients did between two polls, by Envoy's counters: how many arrived, and whether a connection
//! that had been there before was used.
//!
//! Gauges show neither: a request shorter than the pause between two polls is in none of them.
//! Counters are compared from one poll to the next rather than over a longer time, so that what
//! explains one request never piles up to explain another one later.

/// What Envoy has counted since its start. What each counter holds is measured on Envoy 1.36 and
/// 1.40, which agree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that the counted listeners accepted.
    pub accepted: u64,
    /// Connections that the excluded listeners accepted.
    pub excluded: u64,
    /// Requests that Envoy's `health_check` filter answered, on the counted listeners, or on others
    /// that share their HTTP prefix. Zero if they are hidden, which explains no connection.
    pub health_checks: u64,
    /// What the counted listeners' requests say of connections; `None` if that is hidden.
    pub requests: Option<RequestCounters>,
}

/// Counters of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounters {
    /// Requests whose response has begun, on the counted listeners. Envoy does not count those that
    /// its `health_check` filter answered.
    pub completed: u64,
    /// Connections that have sent a first byte, on the counted listeners or on others that share
    /// their HTTP prefix. One that only connects, as a TCP probe does, is not counted.
    pub connections: u64,
}

/// Compares each poll's counters with those of the poll before.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    last: Option<Counters>,
    /// Connections accepted between the last two polls of which nothing else is known: the request
    /// of a TLS client comes some time after its connection.
    unexplained: u64,
}

/// What happened between two polls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrafficDelta {
    /// Clients that arrived before the former poll, as is certain only now. Who only checks Envoy's
    /// health is no client.
    pub earlier_clients: u64,
    /// Clients that arrived between the polls.
    pub clients: u64,
    /// Connections between the polls of which it is not certain yet whether a client made them.
    pub undecided: u64,
    /// Connections that only checked Envoy's health.
    pub health_checks: u64,
    /// A connection that was there before carried a request, or may have: that is not known where
    /// counters are hidden.
    pub connections_reused: bool,
}

// === impl Traffic ===

impl Traffic {
    /// Adds the counters of a poll. `None` if one of them is lower than before: Envoy was started
    /// anew, or a listener was removed, and there is nothing to compare with.
    pub(crate) fn add(&mut self, counters: Counters) -> Option<TrafficDelta> {
        let Some(last) = self.last.replace(counters) else {
            return Some(TrafficDelta {
                connections_reused: counters.requests.is_none(),
                ..TrafficDelta::default()
            });
        };
        let unexplained = std::mem::take(&mut self.unexplained);
        let new = counters.since(last)?;
        // Those of an excluded listener may share the prefix: each of its connections may be one.
        let checks = new.health_checks.saturating_sub(new.excluded);
        let late_checks = unexplained.min(checks.saturating_sub(new.accepted));
        let waiting = unexplained - late_checks;
        let arrived = new.accepted.saturating_sub(checks);
        let answered = new.requests.map_or(0, |new| new.completed).min(arrived);
        self.unexplained = arrived - answered;
        Some(TrafficDelta {
            earlier_clients: waiting,
            clients: answered,
            undecided: self.unexplained,
            health_checks: late_checks + new.accepted.min(checks),
            // A connection explains its first request, and only if it has sent something since.
            connections_reused: new.requests.is_none_or(|new| {
                new.completed > new.connections.min(waiting.saturating_add(arrived))
            }),
        })
    }
}

// === impl Counters ===

impl Counters {
    /// What was counted since `last`; `None` if a counter is lower.
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

    /// What is new at a poll: accepted, excluded, health checks, completed, connections that sent.
    type New = [u64; 5];

    /// What the intervals between polls show, where before the first all counters are at 100.
    fn intervals(polls: &[New]) -> Vec<TrafficDelta> {
        let mut traffic = Traffic::default();
        let mut total = [100; 5];
        let mut add = |[accepted, excluded, health_checks, completed, connections]: New| {
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
    fn used_connections_are_told_from_new_ones() {
        let table: [(&str, &[New], &[bool]); 14] = [
            ("nothing", &[[0; 5]], &[false]),
            (
                "a request on a kept connection",
                &[[0, 0, 0, 1, 0]],
                &[true],
            ),
            (
                "a connection with one request",
                &[[1, 0, 0, 1, 1]],
                &[false],
            ),
            ("with two", &[[1, 0, 0, 2, 1]], &[true]),
            (
                "TLS: the request comes later",
                &[[1, 0, 0, 0, 0], [0, 0, 0, 1, 1]],
                &[false, false],
            ),
            (
                "and then a second one",
                &[[1, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 0]],
                &[false, false, true],
            ),
            (
                "a connection made in advance, used long after",
                &[[1, 0, 0, 0, 0], [0; 5], [0, 0, 0, 1, 1]],
                &[false, false, true],
            ),
            (
                "a TCP probe explains no request",
                &[[1, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 1, 0]],
                &[true, false, true],
            ),
            (
                "nor does one answered by the health_check filter",
                &[[1, 0, 1, 0, 1], [1, 0, 1, 1, 1], [0, 0, 0, 1, 0]],
                &[false, true, true],
            ),
            (
                "nor does it later, by TLS",
                &[[1, 0, 0, 0, 0], [0, 0, 1, 1, 1]],
                &[false, true],
            ),
            (
                "health checks on a kept connection are no use",
                &[[0, 0, 1, 0, 0], [0, 0, 1, 0, 0]],
                &[false, false],
            ),
            (
                "probes that the upstream answers, each on its connection",
                &[[1, 0, 0, 1, 1], [0; 5], [1, 0, 0, 1, 1]],
                &[false, false, false],
            ),
            (
                "a busy excluded listener under the same prefix is no use",
                &[[0, 9, 0, 0, 9], [1, 9, 0, 1, 10]],
                &[false, false],
            ),
            ("and explains none", &[[0, 9, 0, 1, 9]], &[true]),
        ];
        for (case, polls, want) in table {
            let used: Vec<_> = intervals(polls)
                .iter()
                .map(|i| i.connections_reused)
                .collect();
            assert_eq!(used, want, "{case}");
        }
    }

    #[test]
    fn clients_are_told_from_health_checks() {
        // Clients known at once and later, undecided connections, health checks.
        type Row<'a> = (&'a str, &'a [New], &'a [[u64; 4]]);
        let table: [Row<'_>; 8] = [
            (
                "a client",
                &[[1, 0, 0, 1, 1], [0; 5]],
                &[[1, 0, 0, 0], [0; 4]],
            ),
            (
                "a client without a request, of TCP perhaps",
                &[[1, 0, 0, 0, 0], [0; 5]],
                &[[0, 0, 1, 0], [0, 1, 0, 0]],
            ),
            (
                "a health check",
                &[[1, 0, 1, 0, 1], [0; 5]],
                &[[0, 0, 0, 1], [0; 4]],
            ),
            (
                "one by TLS",
                &[[1, 0, 0, 0, 0], [0, 0, 1, 0, 1]],
                &[[0, 0, 1, 0], [0, 0, 0, 1]],
            ),
            (
                "one by TLS, and a client meanwhile",
                &[[1, 0, 0, 0, 0], [1, 0, 1, 1, 2], [0; 5]],
                &[[0, 0, 1, 0], [0, 1, 0, 1], [0; 4]],
            ),
            (
                "a health check and a client",
                &[[2, 0, 1, 1, 2]],
                &[[1, 0, 0, 1]],
            ),
            (
                "a health check on a kept connection explains no client later",
                &[[0, 0, 1, 0, 0], [1, 0, 0, 1, 1]],
                &[[0; 4], [1, 0, 0, 0]],
            ),
            (
                "one on an excluded listener explains none at all",
                &[[1, 1, 1, 1, 2]],
                &[[1, 0, 0, 0]],
            ),
        ];
        for (case, polls, want) in table {
            let seen: Vec<_> = intervals(polls)
                .iter()
                .map(|i| [i.clients, i.earlier_clients, i.undecided, i.health_checks])
                .collect();
            assert_eq!(seen, want, "{case}");
        }
    }

    #[test]
    fn a_lower_counter_begins_anew() {
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
        // Neither what is gone nor what was undecided explains anything.
        let interval = traffic.add(counters(2, 9)).unwrap();
        assert!(interval.connections_reused);
        assert_eq!(interval.earlier_clients, 0);
        assert_eq!(traffic.add(counters(3, 8)), None);
    }

    #[test]
    fn where_requests_are_hidden_any_connection_may_be_used() {
        let mut traffic = Traffic::default();
        for _ in 0..3 {
            assert!(traffic.add(Counters::default()).unwrap().connections_reused);
        }
        let shown = Counters {
            requests: Some(RequestCounters::default()),
            ..Counters::default()
        };
        assert!(traffic.add(shown).unwrap().connections_reused);
        assert!(!traffic.add(shown).unwrap().connections_reused);
    }
}
