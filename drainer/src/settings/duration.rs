//! Durations in the notation of Go and Kubernetes: `90s`, `1m30s`, `400ms`.

use std::fmt;
use std::time::Duration;

use super::value::InvalidValue;

/// Digits behind a point that can matter: an hour has 3.6 × 10^12 nanoseconds.
const MAX_FRACTION: usize = 13;

/// The maximum of each duration in settings. Kubernetes counts a grace period in nanoseconds of 63 bits; no drain needs
/// more than a day.
pub const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// What is expected in place of a text that is no duration.
pub(super) const EXPECTED: &str = "expected a duration such as 90s, 1m30s or 400ms";

/// Parses a duration of zero or more, as Go's `time.ParseDuration` does, up to the same 292 years.
///
/// # Errors
/// For anything else, including a negative duration and a bare number other than `0`.
pub fn parse(text: &str) -> Result<Duration, InvalidValue> {
    let nanos = nanoseconds(text).ok_or_else(|| InvalidValue::new("duration", text, EXPECTED))?;
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}

/// Parses a duration of at most [`MAX_DURATION`]. `expected` says what a text could be that is no duration.
pub(super) fn parse_setting(text: &str, expected: &'static str) -> Result<Duration, InvalidValue> {
    let expected = match parse(text) {
        Ok(duration) if duration <= MAX_DURATION => return Ok(duration),
        Ok(_) => "must be at most 24h",
        Err(_) => expected,
    };
    Err(InvalidValue::new("duration", text, expected))
}

fn nanoseconds(text: &str) -> Option<i64> {
    let mut rest = match text.strip_prefix('+').unwrap_or(text) {
        "0" => return Some(0),
        "" => return None,
        rest => rest,
    };
    let mut total = 0_i64;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, after) = rest.split_at(number);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let scale = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000, // U+00B5, micro sign; U+03BC, Greek letter mu
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(multiply(value, scale)?)?;
        rest = after;
    }
    Some(total)
}

/// `value` × `scale`, where `value` is digits with at most one point and at least one digit. Digits finer than a
/// nanosecond are cut off, as in Go.
fn multiply(value: &str, scale: u128) -> Option<i64> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if fraction.contains('.') {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(MAX_FRACTION)];
    let number: u128 = format!("{whole}{fraction}").parse().ok()?;
    let product = number.checked_mul(scale)? / 10_u128.pow(fraction.len() as u32);
    product.try_into().ok()
}

/// Returns a duration in seconds, rounded to milliseconds.
pub(crate) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Formats a duration in one unit, as [`Duration`]'s `Debug` does: `90s`, `400ms`. [`parse`] returns the same
/// duration.
pub fn format(duration: Duration) -> impl fmt::Display {
    fmt::from_fn(move |f| match duration {
        Duration::ZERO => f.write_str("0s"),
        _ => write!(f, "{duration:?}"),
    })
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
            // Go rounds the last digit of a repeating fraction as a float, unlike this parser.
            let near = |d: Duration| d.as_nanos().abs_diff(u128::from(nanos)) < 40;
            assert!(parsed.clone().is_ok_and(near), "{text}: {parsed:?}");
        }
    }

    #[test]
    fn negative_and_invalid_durations_are_rejected() {
        let over = "9223372036854775808ns";
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
            "1.0000000000000.5s",
            "1x",
            "1 s",
            "s1",
            "1d",
            "3000000h",
            over,
            "１s",
        ] {
            let error = parse(text).unwrap_err().to_string();
            let want = "expected a duration such as 90s, 1m30s or 400ms";
            assert_eq!(error, format!("invalid duration `{text}`: {want}"));
        }
    }

    #[test]
    fn formatted_durations_have_one_unit_and_parse_back() {
        let table = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (400_000_000, "400ms"),
            (1_500_000_000, "1.5s"),
            (90_000_000_000, "90s"),
            (3_600_000_000_000, "3600s"),
            (7_200_001_000_000, "7200.001s"),
            (3_661_000_000_001, "3661.000000001s"),
        ];
        for (nanos, text) in table {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(format(duration).to_string(), text);
            assert_eq!(parse(text), Ok(duration));
        }
    }
}
