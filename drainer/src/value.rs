//! The values of settings, and what is said of one that is not right.

use std::borrow::Cow;
use std::num::NonZeroU16;
use std::str::FromStr;

/// A text that is not what a setting wants: the value, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} `{value}`: {wanted}")]
pub struct InvalidValue {
    what: &'static str,
    value: String,
    wanted: Cow<'static, str>,
}

/// Reads a port.
///
/// # Errors
/// For zero, and for anything that is no port.
pub fn parse_port(text: &str) -> Result<NonZeroU16, InvalidValue> {
    text.parse()
        .map_err(|_| InvalidValue::new("port", text, "a number from 1 to 65535"))
}

/// Reads items that are separated by commas.
pub(crate) fn parse_list<T: FromStr>(text: &str) -> Result<Vec<T>, T::Err> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|item| item.trim().parse()).collect()
}

// === impl InvalidValue ===

impl InvalidValue {
    pub(crate) fn new(
        what: &'static str,
        value: &str,
        wanted: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            what,
            value: value.to_owned(),
            wanted: wanted.into(),
        }
    }
}
