//! The token in the path of the hooks, without which the drainer's port starts nothing.

use std::fmt;
use std::str::FromStr;

use super::value::InvalidValue;

/// A secret of 64 bits, known from the pod's manifest only, as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u64);

impl FromStr for Token {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let token = u64::from_str_radix(text, 16).ok().map(Self);
        // Neither a sign, nor fewer digits, nor capital ones.
        let token = token.filter(|token| token.to_string() == text);
        token.ok_or_else(|| InvalidValue::new("token", text, "must be 16 digits of 0-9 and a-f"))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
