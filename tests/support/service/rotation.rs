//! Whose turn it is, as a Service knows it some time later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Endpoint;
use crate::listener::Protocol;

/// The pods of a Service, in turn.
#[derive(Debug)]
pub(super) struct LoadBalancer {
    lag: Duration,
    backends: Vec<Backend>,
    /// The next turn by protocol: each port of a Service has turns of its own.
    next_indices: [usize; 3],
}

/// A pod and what has become of it.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) endpoint: Endpoint,
    /// One more owner for each open connection.
    connection_count: Arc<()>,
    readiness: Readiness,
    terminating_since: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum Readiness {
    NotReady,
    Ready,
    FailedAt(Instant),
}

// === impl Rotation ===

impl LoadBalancer {
    pub(super) fn new(lag: Duration) -> Self {
        Self {
            lag,
            backends: Vec::new(),
            next_indices: [0; 3],
        }
    }

    pub(super) fn add(&mut self, endpoint: Endpoint) {
        self.backends.push(Backend {
            endpoint,
            connection_count: Arc::new(()),
            readiness: Readiness::NotReady,
            terminating_since: None,
        });
    }

    pub(super) fn mark_terminating(&mut self, name: &str, now: Instant) {
        if let Some(member) = self.find(name) {
            member.terminating_since.get_or_insert(now);
        }
    }

    /// Takes in what a probe said; that it failed is news only of a pod that was ready.
    pub(super) fn record_probe(&mut self, name: &str, passed: bool, now: Instant) {
        let Some(member) = self.find(name) else {
            return;
        };
        member.readiness = match (passed, member.readiness) {
            (true, _) => Readiness::Ready,
            (false, Readiness::Ready) => Readiness::FailedAt(now),
            (false, before) => before,
        };
    }

    pub(super) fn open_connections(&self, name: &str) -> usize {
        let member = self.backends.iter().find(|m| m.endpoint.name == name);
        member.map_or(0, |member| Arc::strong_count(&member.connection_count) - 1)
    }

    /// The pods that get new connections: those that are ready and, when there are none, those that
    /// end but are ready still.
    /// <https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-to-terminating-endpoints>
    pub(super) fn candidates(&self, now: Instant) -> Vec<&Backend> {
        let known = |since: Instant| now >= since + self.lag;
        let serves = |member: &&Backend| match member.readiness {
            Readiness::NotReady => false,
            Readiness::Ready => true,
            Readiness::FailedAt(since) => !known(since),
        };
        let serving: Vec<_> = self.backends.iter().filter(serves).collect();
        let stays = |member: &&&Backend| !member.terminating_since.is_some_and(known);
        if serving.iter().any(|member| stays(&member)) {
            return serving
                .into_iter()
                .filter(|member| stays(&member))
                .collect();
        }
        serving
    }

    /// The next pod, and what counts a connection to it.
    pub(super) fn next_backend(
        &mut self,
        protocol: Protocol,
        now: Instant,
    ) -> Option<(Endpoint, Arc<()>)> {
        let candidates = self.candidates(now);
        let turn = self.next_indices[protocol as usize].checked_rem(candidates.len())?;
        let member = candidates[turn];
        let next = (
            member.endpoint.clone(),
            Arc::clone(&member.connection_count),
        );
        self.next_indices[protocol as usize] = turn + 1;
        Some(next)
    }

    fn find(&mut self, name: &str) -> Option<&mut Backend> {
        self.backends.iter_mut().find(|m| m.endpoint.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_secs(15);

    fn balancer(names: &[&str]) -> LoadBalancer {
        let mut rotation = LoadBalancer::new(LAG);
        for name in names {
            rotation.add(Endpoint {
                name: (*name).to_owned(),
                http: ([127, 0, 0, 1], 1).into(),
                tcp: None,
            });
            rotation.record_probe(name, true, Instant::now());
        }
        rotation
    }

    fn next_names(rotation: &mut LoadBalancer, now: Instant) -> String {
        let turn = |_| {
            rotation
                .next_backend(Protocol::Http, now)
                .map(|(endpoint, _)| endpoint.name)
        };
        (0..4).filter_map(turn).collect()
    }

    #[test]
    fn pods_take_turns() {
        let mut rotation = balancer(&["a", "b", "c"]);
        assert_eq!(next_names(&mut rotation, Instant::now()), "abca");
    }

    #[test]
    fn each_port_has_its_own_turns() {
        let mut rotation = balancer(&["a", "b"]);
        let now = Instant::now();
        assert_eq!(next_names(&mut rotation, now), "abab");
        let stream = rotation.next_backend(Protocol::Tcp, now);
        assert!(stream.is_some_and(|(endpoint, _)| endpoint.name == "a"));
    }

    #[test]
    fn a_pod_gets_nothing_before_its_first_probe() {
        let mut rotation = balancer(&["a"]);
        rotation.add(Endpoint {
            name: "b".into(),
            http: ([127, 0, 0, 1], 1).into(),
            tcp: None,
        });
        let now = Instant::now();
        rotation.record_probe("b", false, now);
        assert_eq!(next_names(&mut rotation, now), "aaaa");
        rotation.record_probe("b", true, now);
        assert_eq!(next_names(&mut rotation, now), "baba");
    }

    #[test]
    fn what_becomes_of_a_pod_is_known_after_the_lag() {
        type Change = fn(&mut LoadBalancer, Instant);
        let changes: [(&str, Change); 2] = [
            ("terminating", |r, now| r.mark_terminating("a", now)),
            ("unready", |r, now| r.record_probe("a", false, now)),
        ];
        for (change, set) in changes {
            let mut rotation = balancer(&["a", "b"]);
            let now = Instant::now();
            set(&mut rotation, now);
            let just_before = now + LAG - Duration::from_millis(1);
            assert_eq!(next_names(&mut rotation, just_before), "abab", "{change}");
            // A second failure or mark does not begin the lag anew.
            set(&mut rotation, just_before);
            assert_eq!(next_names(&mut rotation, now + LAG), "bbbb", "{change}");
        }
    }

    #[test]
    fn a_pod_that_ends_serves_on_where_there_is_no_other() {
        let mut rotation = balancer(&["a"]);
        let now = Instant::now();
        rotation.mark_terminating("a", now);
        assert_eq!(next_names(&mut rotation, now + LAG), "aaaa");
        rotation.record_probe("a", false, now);
        assert_eq!(next_names(&mut rotation, now + LAG), "");
    }

    #[test]
    fn open_connections_are_counted_by_pod() {
        let mut rotation = balancer(&["a", "b"]);
        let held: Vec<_> = (0..3)
            .map(|_| rotation.next_backend(Protocol::Http, Instant::now()))
            .collect();
        assert_eq!(
            (
                rotation.open_connections("a"),
                rotation.open_connections("b")
            ),
            (2, 1)
        );
        drop(held);
        assert_eq!(
            (
                rotation.open_connections("a"),
                rotation.open_connections("b")
            ),
            (0, 0)
        );
    }
}
