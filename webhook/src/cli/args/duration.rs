//! Values that flags write otherwise than Rust does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use drainer::duration::{self, InvalidDuration};
use drainer::{InvalidValue, parse_idle_exit};

/// A duration as Kubernetes writes it: `90s`, `1m30s`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HumanDuration(pub(crate) Duration);

/// A duration, or `off`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleExit(pub(crate) Option<Duration>);

// === impl HumanDuration ===

impl FromStr for HumanDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        duration::parse(text).map(Self)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        duration::format(self.0).fmt(f)
    }
}

// === impl IdleExit ===

impl FromStr for IdleExit {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        parse_idle_exit(text).map(Self)
    }
}

impl fmt::Display for IdleExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(duration) => duration::format(duration).fmt(f),
            None => f.write_str("off"),
        }
    }
}
