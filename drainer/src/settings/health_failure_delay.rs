//! The setting `health-failure-delay`.

use std::fmt;
use std::time::Duration;

use super::duration;
use super::value::InvalidValue;

/// `health-failure-delay`: how long a drain keeps Envoy's health after its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HealthFailureDelay {
    /// Until no HTTP/3 connection is left, or no client connects any more, where Envoy can make its clients reconnect
    /// without failed health; to the end for a pod that no other can stand in for; else not at all.
    #[default]
    Auto,
    /// To the end of the drain, which then asks for no quiet.
    End,
    /// This long.
    After(Duration),
}

// === impl HealthFailureDelay ===

impl HealthFailureDelay {
    /// Parses a duration, `auto` or `end`.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let expected = "expected a duration such as 7s, 1m30s or 400ms, or auto or end";
        match text {
            "auto" => Ok(Self::Auto),
            "end" => Ok(Self::End),
            _ => duration::parse_setting(text, expected).map(Self::After),
        }
    }

    /// Returns the duration; zero without one.
    pub fn duration(self) -> Duration {
        match self {
            Self::Auto | Self::End => Duration::ZERO,
            Self::After(delay) => delay,
        }
    }
}

impl fmt::Display for HealthFailureDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::End => f.write_str("end"),
            Self::After(delay) => duration::format(*delay).fmt(f),
        }
    }
}
