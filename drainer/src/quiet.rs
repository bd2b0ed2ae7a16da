//! The quiet window: a period without new clients, which shows that endpoints no longer route to the
//! pod. Zero open connections alone do not.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

use crate::client_activity::TrafficDelta;
use crate::duration::{self, format};
use crate::value::InvalidValue;

/// The number of new connections allowed within a length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuietWindow {
    /// The length; zero requires no quiet.
    pub length: Duration,
    /// How many new connections the pod's own readiness probes make within it.
    pub probe_arrivals: u64,
}

/// A readiness probe, as port and period, formatted like `8080/2s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadinessProbe {
    /// The container port that it connects to.
    pub port: NonZeroU16,
    /// `periodSeconds`; never zero.
    pub period: Duration,
}

/// When clients connected, as far back as the readiness probes alone may account for the arrivals: at
/// most [`QuietWindow::probe_arrivals`] + 1 entries.
#[derive(Debug, Default)]
pub(crate) struct ConnectionArrivals {
    /// When each total was first reached, oldest first.
    history: VecDeque<(Instant, ArrivalCounts)>,
    total: ArrivalCounts,
    last_poll_at: Option<Instant>,
    has_undecided: bool,
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
        let previous = self.last_poll_at.replace(at).unwrap_or(at);
        let Some(delta) = delta else {
            *self = Self {
                history: VecDeque::from([(at, ArrivalCounts::default())]),
                last_poll_at: Some(at),
                ..Self::default()
            };
            return;
        };
        if self.history.is_empty() {
            self.history.push_back((at, self.total));
        }
        self.record_clients(previous, delta.earlier_clients);
        self.record_clients(at, delta.clients);
        self.total.health_checks = self.total.health_checks.saturating_add(delta.health_checks);
        self.has_undecided = delta.undecided > 0;
        let clients = self.total.clients;
        let is_recent =
            |(_, then): &(Instant, ArrivalCounts)| clients - then.clients <= quiet.probe_arrivals;
        self.history.retain(is_recent);
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
        quiet.length.is_zero() || !self.has_undecided && self.history.iter().any(has_few_since)
    }

    fn record_clients(&mut self, at: Instant, clients: u64) {
        if clients > 0 {
            self.total.clients = self.total.clients.saturating_add(clients);
            self.history.push_back((at, self.total));
        }
    }
}

// === impl ReadinessProbe ===

impl FromStr for ReadinessProbe {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        text.split_once('/')
            .and_then(|(port, period)| {
                let port = port.parse().ok()?;
                let period = duration::parse(period).ok().filter(|p| !p.is_zero())?;
                Some(Self { port, period })
            })
            .ok_or_else(|| {
                InvalidValue::new(
                    "readiness probe",
                    text,
                    "expected a port and a period such as 8080/2s",
                )
            })
    }
}

impl fmt::Display for ReadinessProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, format(self.period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let period = crate::duration::parse(period).unwrap();
            let quiet = QuietWindow::new(period, probes.iter().map(|p| p.parse().unwrap()));
            let want = QuietWindow {
                length: crate::duration::parse(length).unwrap(),
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
            earlier_clients: 1,
            ..TrafficDelta::default()
        };
        for _ in 0..10_000 {
            arrivals.add(Instant::now(), Some(delta), quiet);
        }
        assert_eq!(arrivals.history.len(), 4);
        arrivals.add(Instant::now(), None, quiet);
        assert_eq!(arrivals.history.len(), 1);
    }
}
