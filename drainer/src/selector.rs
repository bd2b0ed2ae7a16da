//! Listeners as a person names them.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use crate::value::{InvalidValue, parse_list, parse_port};

/// A listener as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenerSelector {
    /// The port it is bound to.
    Port(NonZeroU16),
    /// Its `name` or its `stat_prefix`.
    Name(String),
}

/// Reads `ignore-listeners`: names or ports, separated by commas.
///
/// # Errors
/// For the first entry that is neither.
pub fn parse_listeners(text: &str) -> Result<Vec<ListenerSelector>, InvalidValue> {
    parse_list(text)
}

// === impl ListenerSelector ===

impl FromStr for ListenerSelector {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        if text.is_empty() || text.contains(',') {
            return Err(InvalidValue::new("listener", text, "a name or a port"));
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return parse_port(text).map(Self::Port);
        }
        Ok(Self::Name(text.to_owned()))
    }
}

impl fmt::Display for ListenerSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => port.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}
