//! The setting `health-failure-delay`.

use std::fmt;
use std::time::Duration;

use super::duration;

/// `health-failure-delay`: how long a drain keeps Envoy's health after its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HealthFailureDelay {
    /// Until no HTTP/3 connection is left, if Envoy can make HTTP/3 clients reconnect without failed health; else not
    /// at all.
    #[default]
    Auto,
    /// This long.
    After(Duration),
}

// === impl HealthFailureDelay ===

impl HealthFailureDelay {
    /// Returns the duration; zero for [`Self::Auto`].
    pub fn duration(self) -> Duration {
        match self {
            Self::Auto => Duration::ZERO,
            Self::After(delay) => delay,
        }
    }
}

impl fmt::Display for HealthFailureDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::After(delay) => duration::format(*delay).fmt(f),
        }
    }
}
