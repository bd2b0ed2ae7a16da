//! The duration type of flags.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use drainer::{InvalidValue, duration};

/// A duration in the notation of Kubernetes: `90s`, `1m30s`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HumanDuration(pub(crate) Duration);

// === impl HumanDuration ===

impl FromStr for HumanDuration {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        duration::parse(text).map(Self)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        duration::format(self.0).fmt(f)
    }
}
