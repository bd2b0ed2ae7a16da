//! Parsers that settings share, and their errors.

use std::num::NonZeroU16;
use std::str::FromStr;

/// A text that is not a valid value of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} `{value}`: {expected}")]
pub struct InvalidValue {
    what: &'static str,
    value: String,
    expected: String,
}

/// Two settings whose values contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingConflict {
    /// The names of both.
    pub names: [&'static str; 2],
    /// How the value of the first relates to that of the second.
    pub relation: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Parses a `what` in its standard notation; `expected` says what would be valid.
pub(crate) fn parse_as<T: FromStr>(
    what: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<T, InvalidValue> {
    text.parse()
        .map_err(|_| InvalidValue::new(what, text, expected))
}

/// Parses a port, which is not zero.
pub(crate) fn parse_port(text: &str) -> Result<NonZeroU16, InvalidValue> {
    parse_as("port", text, "must be a number from 1 to 65535")
}

/// Parses items that are separated by commas.
pub(crate) fn parse_list<T: FromStr>(text: &str) -> Result<Vec<T>, T::Err> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|item| item.trim().parse()).collect()
}

// === impl InvalidValue ===

impl InvalidValue {
    /// `value` is not a `what`; `expected` says what would be valid.
    pub fn new(what: &'static str, value: &str, expected: impl Into<String>) -> Self {
        Self {
            what,
            value: value.to_owned(),
            expected: expected.into(),
        }
    }
}

// === impl SettingConflict ===

impl SettingConflict {
    /// Describes the conflict. `describe_value` returns the value of a setting and, where it helps, its source.
    pub fn describe(&self, describe_value: impl Fn(&'static str) -> String) -> String {
        let describe = |name| format!("{name} {}", describe_value(name));
        let [one, other] = self.names.map(describe);
        format!("{one} is {} {other}: {}", self.relation, self.remedy)
    }
}
