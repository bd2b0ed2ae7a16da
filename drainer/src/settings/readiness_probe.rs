//! A readiness probe of the pod, as a setting of the drainer.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use super::duration::{self, format};
use super::value::InvalidValue;

/// A readiness probe, as port and period, formatted like `8080/2s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadinessProbe {
    /// The container port that it connects to.
    pub port: NonZeroU16,
    /// `periodSeconds`; never zero.
    pub period: Duration,
}

// === impl ReadinessProbe ===

const EXPECTED: &str = "expected a port and a period such as 8080/2s";

impl FromStr for ReadinessProbe {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let probe = text.split_once('/').and_then(|(port, period)| {
            let port = port.parse().ok()?;
            let period = duration::parse(period).ok().filter(|it| !it.is_zero())?;
            Some(Self { port, period })
        });
        probe.ok_or_else(|| InvalidValue::new("readiness probe", text, EXPECTED))
    }
}

impl fmt::Display for ReadinessProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, format(self.period))
    }
}
