//! The value of an unquoted scalar as `kubectl` reads it: YAML 1.1 as go-yaml v2 implements it, converted to JSON.
//!
//! `yes` is a boolean, `0777` and `0x1F` are numbers, a date is text. The tables are those of
//! <https://github.com/yaml/go-yaml/blob/v2.4.0/resolve.go>, of which sigs.k8s.io/yaml contains a copy.

use serde_json::{Number, Value};

/// The value of a plain scalar without a tag; `None` for a number that JSON does not have: `.inf`, `.nan`.
pub(super) fn resolve(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return None,
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

fn number(text: &str) -> Option<Number> {
    match text.as_bytes()[0] {
        b'.' => float(text),
        b'+' | b'-' | b'0'..=b'9' => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits))
        }
        _ => None,
    }
}

/// An integer as Go's `strconv.ParseInt(text, 0, 64)` or `ParseUint` reads it: the base is in the prefix, and a leading
/// `0` alone means octal.
fn integer(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    // Rust accepts a second sign here, Go does not.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = i128::from_str_radix(digits, base).ok()?;
    Number::from_i128(if text.starts_with('-') { -value } else { value })
}

/// A float as go-yaml reads it, whose grammar is Rust's but for infinities and NaN, which no [`Number`] has. Go's JSON
/// writes a whole float as an integer.
fn float(text: &str) -> Option<Number> {
    let value: f64 = text.parse().ok()?;
    let is_whole = value.fract() == 0.0 && value.abs() <= 2_f64.powi(53);
    if is_whole {
        Number::from_i128(value as i128)
    } else {
        Number::from_f64(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_resolve_as_in_go_yaml() {
        // Written text, and its value by `sigs.k8s.io/yaml.YAMLToJSON`.
        let table = [
            ("", json!(null)),
            ("~", json!(null)),
            ("NULL", json!(null)),
            ("nUll", json!("nUll")),
            ("yes", json!(true)),
            ("On", json!(true)),
            ("oN", json!("oN")),
            ("y", json!(true)),
            ("N", json!(false)),
            ("off", json!(false)),
            ("8080", json!(8080)),
            ("+1", json!(1)),
            ("-0", json!(0)),
            ("1_000", json!(1000)),
            ("1__0", json!(10)),
            ("0777", json!(511)),
            ("0o17", json!(15)),
            ("08", json!(8)),
            ("08.5", json!(8.5)),
            ("0x1F", json!(31)),
            ("-0x1F", json!(-31)),
            ("0b11", json!(3)),
            ("-0b11", json!(-3)),
            ("0b", json!("0b")),
            ("0x", json!("0x")),
            ("0x+1", json!("0x+1")),
            ("0", json!(0)),
            ("1e3", json!(1000)),
            ("1.", json!(1)),
            (".5", json!(0.5)),
            (".5e1", json!(5)),
            ("1e-2", json!(0.01)),
            ("1e999", json!("1e999")),
            (".", json!(".")),
            ("+", json!("+")),
            ("-", json!("-")),
            ("+-1", json!("+-1")),
            ("1e", json!("1e")),
            ("1.2.3", json!("1.2.3")),
            ("18446744073709551615", json!(18446744073709551615_u64)),
            ("-9223372036854775808", json!(-9223372036854775808_i64)),
            ("99999999999999999999", json!(1e20)),
            ("12:30:45", json!("12:30:45")),
            ("2001-01-01", json!("2001-01-01")),
            ("1Gi", json!("1Gi")),
            ("100m", json!("100m")),
            ("infinity", json!("infinity")),
            ("NaN", json!("NaN")),
            ("+inf", json!("+inf")),
            ("-infinity", json!("-infinity")),
            ("-nan", json!("-nan")),
            ("1e+-1", json!("1e+-1")),
            (".e1", json!(".e1")),
            ("1E+2", json!(100)),
            ("é", json!("é")),
        ];
        for (text, want) in table {
            assert_eq!(resolve(text), Some(want), "{text}");
        }
        for text in [".inf", "-.Inf", ".NaN"] {
            assert_eq!(resolve(text), None, "{text}");
        }
    }
}
