//! Quiet: no open connection does not prove that endpoints are gone; no new one for a while does.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

use crate::duration::{self, display};
use crate::traffic::Interval;
use crate::value::InvalidValue;

/// Quiet: no more than so many new connections within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quiet {
    /// The length of the window; zero asks for no quiet.
    pub window: Duration,
    /// How many new connections the pod's own readiness probes make in it.
    pub probes: u64,
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
pub(crate) struct Newcomers {
    /// When so many of each had been seen for the first time, oldest first.
    arrivals: VecDeque<(Instant, Arrived)>,
    now: Arrived,
    polled: Option<Instant>,
    undecided: bool,
}

/// All connections that were seen to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Arrived {
    clients: u64,
    health_checks: u64,
}

// === impl Quiet ===

impl Quiet {
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
            window,
            probes: probes.map(u64::from).sum(),
        }
    }
}

fn ceil_div(span: Duration, by: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(by.as_nanos())).unwrap_or(u32::MAX)
}

// === impl Newcomers ===

impl Newcomers {
    /// Notes what came before the poll at `at`; `None` if that cannot be said.
    pub(crate) fn add(&mut self, at: Instant, interval: Option<Interval>, quiet: Quiet) {
        let former = self.polled.replace(at).unwrap_or(at);
        let Some(interval) = interval else {
            *self = Self {
                arrivals: VecDeque::from([(at, Arrived::default())]),
                polled: Some(at),
                ..Self::default()
            };
            return;
        };
        if self.arrivals.is_empty() {
            self.arrivals.push_back((at, self.now));
        }
        self.arrive(former, interval.earlier_clients);
        self.arrive(at, interval.clients);
        self.now.health_checks = self
            .now
            .health_checks
            .saturating_add(interval.health_checks);
        self.undecided = interval.undecided > 0;
        let newest = self.now.clients;
        let near = |(_, then): &(Instant, Arrived)| newest - then.clients <= quiet.probes;
        self.arrivals.retain(near);
    }

    /// Returns true if no client is known to have come within the window before `now`. The probes
    /// in it may be among those that checked Envoy's health: they account for none twice.
    pub(crate) fn are_few(&self, quiet: Quiet, now: Instant) -> bool {
        let few = |(at, then): &(Instant, Arrived)| {
            let health_checks = self.now.health_checks - then.health_checks;
            let probes = quiet.probes.saturating_sub(health_checks);
            now >= *at + quiet.window && self.now.clients - then.clients <= probes
        };
        quiet.window.is_zero() || !self.undecided && self.arrivals.iter().any(few)
    }

    fn arrive(&mut self, at: Instant, clients: u64) {
        if clients > 0 {
            self.now.clients = self.now.clients.saturating_add(clients);
            self.arrivals.push_back((at, self.now));
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
        write!(f, "{}/{}", self.port, display(self.period))
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
            let quiet = Quiet::new(period, probes.iter().map(|p| p.parse().unwrap()));
            let want = Quiet {
                window: crate::duration::parse(window).unwrap(),
                probes: count,
            };
            assert_eq!(quiet, want, "{probes:?}");
        }
    }

    #[test]
    fn the_record_of_newcomers_stays_small() {
        let quiet = Quiet {
            window: Duration::from_secs(3),
            probes: 3,
        };
        let mut newcomers = Newcomers::default();
        let interval = Interval {
            clients: 1,
            earlier_clients: 1,
            ..Interval::default()
        };
        for _ in 0..10_000 {
            newcomers.add(Instant::now(), Some(interval), quiet);
        }
        assert_eq!(newcomers.arrivals.len(), 4);
        newcomers.add(Instant::now(), None, quiet);
        assert_eq!(newcomers.arrivals.len(), 1);
    }
}
