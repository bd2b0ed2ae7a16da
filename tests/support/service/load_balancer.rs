//! Round-robin load balancing over the pods of a Service, which learns of their state with a lag.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::load::{ConnectionGuard, Protocol};
use tokio::time::Instant;

/// A pod behind a Service.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The pod's name.
    pub name: String,
    /// The address of its HTTP port; of its HTTP/3 port over UDP.
    pub http: SocketAddr,
    /// The address of its TCP port, if it has one.
    pub tcp: Option<SocketAddr>,
}

/// The pods of a Service.
#[derive(Debug)]
pub(super) struct LoadBalancer {
    lag: Duration,
    backends: Vec<Backend>,
    /// The next index by protocol: each port of a Service is balanced on its own.
    next_indices: [usize; 3],
}

/// A pod with its state.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) endpoint: Endpoint,
    /// Has one more owner for each open connection.
    connection_count: Arc<()>,
    /// When it was chosen for each connection.
    chosen_at: Vec<Instant>,
    readiness: Readiness,
    terminating_since: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum Readiness {
    NotReady,
    Ready,
    FailedAt(Instant),
}

// === impl LoadBalancer ===

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
            chosen_at: Vec::new(),
            readiness: Readiness::NotReady,
            terminating_since: None,
        });
    }

    pub(super) fn mark_terminating(&mut self, name: &str, now: Instant) {
        if let Some(backend) = self.find(name) {
            backend.terminating_since.get_or_insert(now);
        }
    }

    /// Records the result of a probe. A failure changes a ready pod only.
    pub(super) fn record_probe(&mut self, name: &str, passed: bool, now: Instant) {
        let Some(backend) = self.find(name) else {
            return;
        };
        backend.readiness = match (passed, backend.readiness) {
            (true, _) => Readiness::Ready,
            (false, Readiness::Ready) => Readiness::FailedAt(now),
            (false, before) => before,
        };
    }

    pub(super) fn chosen_at(&self, name: &str) -> Vec<Instant> {
        self.backend(name)
            .map(|it| it.chosen_at.clone())
            .unwrap_or_default()
    }

    pub(super) fn open_connections(&self, name: &str) -> usize {
        self.backend(name)
            .map_or(0, |it| Arc::strong_count(&it.connection_count) - 1)
    }

    fn backend(&self, name: &str) -> Option<&Backend> {
        self.backends.iter().find(|it| it.endpoint.name == name)
    }

    /// The pods that get new connections: the ready ones that do not terminate or, without any, the ready ones that do.
    /// <https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-to-terminating-endpoints>
    pub(super) fn candidates(&self, now: Instant) -> Vec<&Backend> {
        let is_known = |since: Instant| now >= since + self.lag;
        let is_ready = |backend: &&Backend| match backend.readiness {
            Readiness::NotReady => false,
            Readiness::Ready => true,
            Readiness::FailedAt(since) => !is_known(since),
        };
        let ready: Vec<_> = self.backends.iter().filter(is_ready).collect();
        let remains = |backend: &&&Backend| !backend.terminating_since.is_some_and(is_known);
        if ready.iter().any(|backend| remains(&backend)) {
            let remaining = ready.into_iter().filter(|backend| remains(&backend));
            return remaining.collect();
        }
        ready
    }

    /// The next pod, and the guard of a connection to it.
    pub(super) fn next_backend(
        &mut self,
        protocol: Protocol,
        now: Instant,
    ) -> Option<(Endpoint, ConnectionGuard)> {
        let candidates = self.candidates(now);
        let next_index = &self.next_indices[protocol as usize];
        let index = next_index.checked_rem(candidates.len())?;
        let backend = candidates[index];
        let next = (
            backend.endpoint.clone(),
            ConnectionGuard::new(&backend.connection_count),
        );
        self.next_indices[protocol as usize] = index + 1;
        self.find(&next.0.name)?.chosen_at.push(now);
        Some(next)
    }

    fn find(&mut self, name: &str) -> Option<&mut Backend> {
        self.backends
            .iter_mut()
            .find(|backend| backend.endpoint.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_secs(15);

    fn balancer(names: &[&str]) -> LoadBalancer {
        let mut balancer = LoadBalancer::new(LAG);
        for name in names {
            balancer.add(Endpoint::new(name, ([127, 0, 0, 1], 1).into()));
            balancer.record_probe(name, true, Instant::now());
        }
        balancer
    }

    fn next_names(balancer: &mut LoadBalancer, now: Instant) -> String {
        let next = |_| {
            balancer
                .next_backend(Protocol::Http, now)
                .map(|(endpoint, _)| endpoint.name)
        };
        (0..4).filter_map(next).collect()
    }

    #[test]
    fn ports_are_balanced_independently() {
        let mut balancer = balancer(&["a", "b"]);
        let now = Instant::now();
        assert_eq!(next_names(&mut balancer, now), "abab");
        let stream = balancer.next_backend(Protocol::Tcp, now);
        assert!(stream.is_some_and(|(endpoint, _)| endpoint.name == "a"));
    }

    #[test]
    fn pod_gets_no_connection_before_its_first_probe() {
        let mut balancer = balancer(&["a"]);
        balancer.add(Endpoint::new("b", ([127, 0, 0, 1], 1).into()));
        let now = Instant::now();
        balancer.record_probe("b", false, now);
        assert_eq!(next_names(&mut balancer, now), "aaaa");
        balancer.record_probe("b", true, now);
        assert_eq!(next_names(&mut balancer, now), "baba");
    }

    #[test]
    fn state_changes_take_effect_after_the_lag() {
        type Change = fn(&mut LoadBalancer, Instant);
        let changes: [(&str, Change); 2] = [
            ("terminating", |r, now| r.mark_terminating("a", now)),
            ("unready", |r, now| r.record_probe("a", false, now)),
        ];
        for (change, set) in changes {
            let mut balancer = balancer(&["a", "b"]);
            let now = Instant::now();
            set(&mut balancer, now);
            let just_before = now + LAG - Duration::from_millis(1);
            assert_eq!(next_names(&mut balancer, just_before), "abab", "{change}");
            // A second failure or mark does not restart the lag.
            set(&mut balancer, just_before);
            assert_eq!(next_names(&mut balancer, now + LAG), "bbbb", "{change}");
        }
    }

    #[test]
    fn last_terminating_pod_still_gets_connections() {
        let mut balancer = balancer(&["a"]);
        let now = Instant::now();
        balancer.mark_terminating("a", now);
        assert_eq!(next_names(&mut balancer, now + LAG), "aaaa");
        balancer.record_probe("a", false, now);
        assert_eq!(next_names(&mut balancer, now + LAG), "");
    }
}
