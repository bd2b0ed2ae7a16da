//! Durations as Go and Kubernetes write them: `90s`, `1m30s`, `400ms`.

use std::fmt;
use std::time::Duration;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration `{0}`: write it like 90s, 1m30s or 400ms")]
pub struct InvalidDuration(String);

/// Units of `time.ParseDuration`, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, micro sign
    ("μs", 1_000), // U+03BC, Greek letter mu
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration of zero or more, as Go's `time.ParseDuration` does, up to the same 292 years.
///
/// # Errors
/// For anything else, a negative duration and a bare number other than `0` among it.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    nanoseconds(text)
        .filter(|&nanos| nanos <= i64::MAX as u64)
        .map(Duration::from_nanos)
        .ok_or_else(|| InvalidDuration(text.to_owned()))
}

fn nanoseconds(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, after) = rest.split_at(number);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(multiply(value, *scale)?)?;
        rest = after;
    }
    Some(total)
}

/// `value` × `scale`, where `value` is digits with at most one point and at least one digit.
fn multiply(value: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole = match whole {
        "" => 0,
        digits => digits.parse::<u64>().ok()?.checked_mul(scale)?,
    };
    let mut part = 0;
    let mut place = scale;
    for digit in fraction.bytes() {
        // Exact while the place is a whole number of nanoseconds; what is finer is cut, as in Go.
        part += place * u64::from(digit - b'0') / 10;
        place /= 10;
    }
    whole.checked_add(part)
}

/// Shows a duration as Go's `Duration.String` does; [`parse`] reads it back unchanged.
#[must_use]
pub fn format_go(duration: Duration) -> impl fmt::Display {
    GoFormat(duration)
}

/// Shows a duration as people write it, in one unit: `90s`, `400ms`; [`parse`] reads it back unchanged.
#[must_use]
pub fn format(duration: Duration) -> impl fmt::Display {
    SingleUnitFormat(duration)
}

struct GoFormat(Duration);

struct SingleUnitFormat(Duration);

// === impl GoFormat ===

impl fmt::Display for GoFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if seconds == 0 && nanos > 0 {
            let (scale, unit) = match nanos {
                1_000_000.. => (1_000_000, "ms"),
                1_000.. => (1_000, "µs"),
                _ => (1, "ns"),
            };
            return write!(
                f,
                "{}{}{unit}",
                nanos / scale,
                fraction(nanos % scale, scale)
            );
        }
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}{}s", seconds % 60, fraction(nanos, 1_000_000_000))
    }
}

// === impl SingleUnitFormat ===

impl fmt::Display for SingleUnitFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 => GoFormat(self.0).fmt(f),
            seconds => write!(
                f,
                "{seconds}{}s",
                fraction(self.0.subsec_nanos(), 1_000_000_000)
            ),
        }
    }
}

/// `.5` for 500 of 1,000; nothing for 0.
fn fraction(part: u32, scale: u32) -> String {
    if part == 0 {
        return String::new();
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{part:0width$}");
    format!(".{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_same_as_go() {
        let table = [
            ("0", 0),
            ("0s", 0),
            ("+5s", 5_000_000_000),
            ("90s", 90_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h0m0s", 3_600_000_000_000),
            ("400ms", 400_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("12µs", 12_000),
            ("12μs10ns", 12_010),
            ("0.100000000000000000000h", 360_000_000_000),
            ("9223372036854775807ns", i64::MAX as u64),
        ];
        for (text, nanos) in table {
            let parsed = parse(text);
            // The last digit of a repeating fraction is Go's rounding of a float, which is not ours.
            let near = |d: Duration| d.as_nanos().abs_diff(u128::from(nanos)) < 40;
            assert!(parsed.clone().is_ok_and(near), "{text}: {parsed:?}");
        }
    }

    #[test]
    fn refuses_what_go_refuses_and_what_is_negative() {
        for text in [
            "",
            "3",
            "-1s",
            "s",
            ".",
            "-.5s",
            ".s",
            "+",
            "+.s",
            "1.2.3s",
            "1x",
            "1 s",
            "s1",
            "1d",
            "3000000h",
            "9223372036854775808ns",
            "１s",
        ] {
            assert_eq!(parse(text), Err(InvalidDuration(text.into())), "{text}");
        }
    }

    #[test]
    fn what_is_shown_parses_back() {
        let table = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (400_000_000, "400ms"),
            (3_300_000_000, "3.3s"),
            (90_000_000_000, "1m30s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (3_661_000_000_001, "1h1m1.000000001s"),
        ];
        for (nanos, text) in table {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(format_go(duration).to_string(), text);
            assert_eq!(parse(text), Ok(duration));
        }
    }

    #[test]
    fn what_is_shown_plainly_has_one_unit_and_parses_back() {
        let table = [
            (0, "0s"),
            (400, "400ms"),
            (1_500, "1.5s"),
            (7_000, "7s"),
            (90_000, "90s"),
            (7_200_001, "7200.001s"),
        ];
        for (millis, text) in table {
            let duration = Duration::from_millis(millis);
            assert_eq!(format(duration).to_string(), text);
            assert_eq!(parse(text), Ok(duration));
        }
    }
}
