//! Quiet: no open connection does not prove that endpoints are gone; no new one for a while does.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

use crate::client_activity::TrafficDelta;
use crate::duration::{self, format_go};
use crate::value::InvalidValue;

/// Quiet: no more than so many new connections within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuietWindow {
    /// The length of the window; zero asks for no quiet.
    pub length: Duration,
    /// How many new connections the pod's own readiness probes make in it.
    pub probe_arrivals: u64,
}

/// One readiness probe: where it connects, and how often. Written `8080/2s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadinessProbe {
    /// The container port.
    pub port: NonZeroU16,
    /// `periodSeconds`; never zero.
    pub period: Duration,
}

/// When clients arrived, as far back as the probes alone may have made the difference: no more
/// arrivals than there are probes in a window.
#[derive(Debug, Default)]
pub(crate) struct ConnectionArrivals {
    /// When so many of each had been seen for the first time, oldest first.
    history: VecDeque<(Instant, ArrivalCounts)>,
    total: ArrivalCounts,
    last_poll_at: Option<Instant>,
    has_undecided: bool,
}

/// All connections that were seen to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ArrivalCounts {
    clients: u64,
    health_checks: u64,
}

// === impl QuietWindow ===

impl QuietWindow {
    /// The quiet of `period`, in spite of the readiness probes that connect to the drained
    /// listeners: the kubelet goes on with them while a pod ends. Where one comes so often that the
    /// period would hardly pass without it, the window is stretched to a multiple of its period,
    /// and as many new connections are allowed as the probes make in it.
    #[must_use]
    pub(crate) fn new(period: Duration, probes: impl IntoIterator<Item = ReadinessProbe>) -> Self {
        let often = |probe: &ReadinessProbe| probe.period < 2 * period;
        let often: Vec<_> = probes.into_iter().filter(often).collect();
        let slowest = often.iter().map(|probe| probe.period).max();
        let window = slowest.map_or(period, |slowest| slowest * ceil_div(period, slowest));
        let probes = often.iter().map(|probe| ceil_div(window, probe.period));
        Self {
            length: window,
            probe_arrivals: probes.map(u64::from).sum(),
        }
    }
}

fn ceil_div(span: Duration, by: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(by.as_nanos())).unwrap_or(u32::MAX)
}

// === impl ConnectionArrivals ===

impl ConnectionArrivals {
    /// Notes what came before the poll at `at`; `None` if that cannot be said.
    pub(crate) fn add(&mut self, at: Instant, interval: Option<TrafficDelta>, quiet: QuietWindow) {
        let former = self.last_poll_at.replace(at).unwrap_or(at);
        let Some(interval) = interval else {
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
        self.record_clients(former, interval.earlier_clients);
        self.record_clients(at, interval.clients);
        self.total.health_checks = self
            .total
            .health_checks
            .saturating_add(interval.health_checks);
        self.has_undecided = interval.undecided > 0;
        let newest = self.total.clients;
        let near =
            |(_, then): &(Instant, ArrivalCounts)| newest - then.clients <= quiet.probe_arrivals;
        self.history.retain(near);
    }

    /// Returns true if no client is known to have come within the window before `now`. The probes
    /// in it may be among those that checked Envoy's health: they account for none twice.
    pub(crate) fn is_quiet(&self, quiet: QuietWindow, now: Instant) -> bool {
        let few = |(at, then): &(Instant, ArrivalCounts)| {
            let health_checks = self.total.health_checks - then.health_checks;
            let probes = quiet.probe_arrivals.saturating_sub(health_checks);
            now >= *at + quiet.length && self.total.clients - then.clients <= probes
        };
        quiet.length.is_zero() || !self.has_undecided && self.history.iter().any(few)
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
                InvalidValue::new("readiness probe", text, "a port and a period like 8080/2s")
            })
    }
}

impl fmt::Display for ReadinessProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, format_go(self.period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_a_multiple_of_a_frequent_probes_period() {
        let table: [(&str, &[&str], &str, u64); 7] = [
            ("3s", &[], "3s", 0),
            ("3s", &["80/2s"], "4s", 2),
            ("3s", &["80/1s"], "3s", 3),
            ("3s", &["80/5s"], "5s", 1),
            ("3s", &["80/6s", "81/10s"], "3s", 0),
            ("3s", &["80/2s", "81/5s", "82/10s"], "5s", 4),
            ("0s", &["80/2s"], "0s", 0),
        ];
        for (period, probes, window, count) in table {
            let period = crate::duration::parse(period).unwrap();
            let quiet = QuietWindow::new(period, probes.iter().map(|p| p.parse().unwrap()));
            let want = QuietWindow {
                length: crate::duration::parse(window).unwrap(),
                probe_arrivals: count,
            };
            assert_eq!(quiet, want, "{probes:?}");
        }
    }

    #[test]
    fn the_record_of_newcomers_stays_small() {
        let quiet = QuietWindow {
            length: Duration::from_secs(3),
            probe_arrivals: 3,
        };
        let mut newcomers = ConnectionArrivals::default();
        let interval = TrafficDelta {
            clients: 1,
            earlier_clients: 1,
            ..TrafficDelta::default()
        };
        for _ in 0..10_000 {
            newcomers.add(Instant::now(), Some(interval), quiet);
        }
        assert_eq!(newcomers.history.len(), 4);
        newcomers.add(Instant::now(), None, quiet);
        assert_eq!(newcomers.history.len(), 1);
    }
}
