//! Quiet: no open connection does not prove that endpoints are gone; no new one for a while does.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

use crate::duration::{self, display};
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

/// When each number of connections ever accepted was first seen, of those so near the newest that
/// the probes alone may have made the difference: no more than there are probes in a window.
#[derive(Debug, Default)]
pub(crate) struct Newcomers(VecDeque<(Instant, u64)>);

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
    /// Notes that `accepted` connections were seen at `at` to have come in all.
    pub(crate) fn add(&mut self, at: Instant, accepted: u64, quiet: Quiet) {
        // Fewer than before: Envoy was started anew, or a listener was removed.
        let near = accepted.saturating_sub(quiet.probes)..=accepted;
        self.0.retain(|(_, before)| near.contains(before));
        if self.0.back().is_none_or(|(_, before)| *before < accepted) {
            self.0.push_back((at, accepted));
        }
    }

    /// Returns true if no client is known to have come within the window before `now`.
    pub(crate) fn are_few(&self, quiet: Quiet, now: Instant) -> bool {
        let since = self.0.front().map(|(since, _)| *since);
        quiet.window.is_zero() || since.is_some_and(|since| now >= since + quiet.window)
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
        for accepted in 0..10_000 {
            newcomers.add(Instant::now(), accepted, quiet);
        }
        assert_eq!(newcomers.0.len(), 4);
        newcomers.add(Instant::now(), 7, quiet);
        assert_eq!(newcomers.0.len(), 1);
    }
}
