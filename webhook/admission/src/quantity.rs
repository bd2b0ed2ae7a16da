//! Quantities of CPU and memory in the notation of Kubernetes (`25m`, `16Mi`, `1e3`), and those of a drainer.

use std::str::FromStr;

use drainer::{InvalidValue, SettingConflict, SettingValue};

/// A quantity, as it was written.
/// <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    text: String,
    /// Its value, which is the same for `1` and `1000m`, in billionths.
    pub(super) nanos: i128,
}

/// A CPU limit; `None` if there is none, as where throttling is forbidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuLimit(pub Option<Quantity>);

/// A memory limit with which the drainer can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit(pub(super) Quantity);

/// The CPU and memory of a drainer, each valid by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainerResources {
    pub cpu_request: Quantity,
    pub memory_request: Quantity,
    pub cpu_limit: CpuLimit,
    pub memory_limit: MemoryLimit,
}

/// The suffixes of the powers of 1000, from a billionth, and of those of 1024, from 1024 itself.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

const NANOS: i128 = 1_000_000_000;

/// The largest quantity that Kubernetes keeps exact. It cuts larger ones to this; here they are invalid.
const MAX: i128 = i64::MAX as i128 * NANOS;

/// The text of a CPU limit that is none.
const NO_LIMIT: &str = "none";

/// 24Mi, which the container runtime itself needs to start a hook.
const MIN_MEMORY: i128 = (24 << 20) * NANOS;

// === impl Quantity ===

impl FromStr for Quantity {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let wanted = "expected a quantity such as 100m, 0.5, 64Mi or 1G";
        let nanos = nanos(text).ok_or_else(|| InvalidValue::new("quantity", text, wanted))?;
        let text = text.to_owned();
        Ok(Self { text, nanos })
    }
}

/// The quantity in billionths, rounded up as in Kubernetes.
fn nanos(text: &str) -> Option<i128> {
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
    let end = end.unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (scale, tens) = match scale(suffix) {
        Some(scale) => (scale, 0),
        None => (NANOS, exponent(suffix)?),
    };
    // digits × scale × 10^(tens − places)
    let digits: i128 = [whole, fraction].concat().parse().ok()?;
    let power = tens - i32::try_from(fraction.len()).ok()?;
    let scaled = digits.checked_mul(scale)?;
    let magnitude = match (10_i128.checked_pow(power.unsigned_abs()), power >= 0) {
        (Some(factor), true) => scaled.checked_mul(factor)?,
        (Some(divisor), false) => scaled / divisor + i128::from(scaled % divisor != 0),
        (None, _) if scaled == 0 => 0,
        (None, true) => return None,
        (None, false) => 1,
    };
    (magnitude <= MAX).then_some(sign * magnitude)
}

/// The factor of a suffix, in billionths.
fn scale(suffix: &str) -> Option<i128> {
    let decimal = (0..).map(|power| 1_000_i128.pow(power));
    let binary = (1..).map(|power| NANOS << (10 * power));
    let mut scales = DECIMAL_SUFFIXES
        .iter()
        .zip(decimal)
        .chain(BINARY_SUFFIXES.iter().zip(binary));
    Some(scales.find(|(name, _)| **name == suffix)?.1)
}

/// The exponent of `e3`, `E-3`.
fn exponent(suffix: &str) -> Option<i32> {
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (exponent.abs() <= 1_000).then_some(exponent)
}

impl SettingValue for Quantity {
    fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
        let quantity: Self = text.parse()?;
        if quantity.nanos <= 0 {
            return Err(InvalidValue::new("quantity", text, "must be more than 0"));
        }
        *self = quantity;
        Ok(())
    }

    fn format(&self) -> String {
        self.text.clone()
    }
}

// === impl CpuLimit ===

impl SettingValue for CpuLimit {
    fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
        if text == NO_LIMIT {
            self.0 = None;
            return Ok(());
        }
        let invalid = |wanted| InvalidValue::new("limit", text, wanted);
        let quantity: Quantity = text
            .parse()
            .map_err(|_| invalid("expected a quantity such as 100m or 0.5, or none"))?;
        if quantity.nanos <= 0 {
            return Err(invalid("must be more than 0, or none"));
        }
        self.0 = Some(quantity);
        Ok(())
    }

    fn format(&self) -> String {
        let text = self.0.as_ref().map(Quantity::format);
        text.unwrap_or_else(|| NO_LIMIT.to_owned())
    }
}

// === impl MemoryLimit ===

impl SettingValue for MemoryLimit {
    fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
        let mut limit = self.0.clone();
        limit.set(text)?;
        if limit.nanos < MIN_MEMORY {
            let wanted = "must be at least 24Mi, which the container runtime itself needs";
            return Err(InvalidValue::new("limit", text, wanted));
        }
        self.0 = limit;
        Ok(())
    }

    fn format(&self) -> String {
        self.0.format()
    }
}

// === impl DrainerResources ===

impl DrainerResources {
    /// The requests above their limit, which Kubernetes rejects.
    pub(super) fn conflicts(&self) -> impl Iterator<Item = SettingConflict> {
        let CpuLimit(cpu_limit) = &self.cpu_limit;
        let exceeds = |request: &Quantity, limit: &Quantity| request.nanos > limit.nanos;
        let cpu = cpu_limit.as_ref();
        let cpu = cpu.is_some_and(|limit| exceeds(&self.cpu_request, limit));
        let memory = exceeds(&self.memory_request, &self.memory_limit.0);
        let conflict = |names| SettingConflict {
            names,
            relation: "more than",
            remedy: "lower the one or raise the other",
        };
        let cpu = cpu.then(|| conflict(["cpu-request", "cpu-limit"]));
        let memory = memory.then(|| conflict(["memory-request", "memory-limit"]));
        cpu.into_iter().chain(memory)
    }
}

impl Default for DrainerResources {
    fn default() -> Self {
        let quantity = |text: &str| text.parse().expect("a constant that a test has parsed");
        Self {
            cpu_request: quantity("25m"),
            memory_request: quantity("16Mi"),
            cpu_limit: CpuLimit(Some(quantity("100m"))),
            memory_limit: MemoryLimit(quantity("64Mi")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_kubernetes_is_parsed() {
        let table: [(&str, i128); 19] = [
            ("0", 0),
            ("1", NANOS),
            ("+1", NANOS),
            ("-1", -NANOS),
            ("25m", 25_000_000),
            ("0.5", 500_000_000),
            (".5", 500_000_000),
            ("5.", 5 * NANOS),
            ("1.5Gi", NANOS * 1_610_612_736),
            ("16Mi", NANOS * 16_777_216),
            ("1k", NANOS * 1_000),
            ("1E", NANOS * 1_000_000_000_000_000_000),
            ("1e3", NANOS * 1_000),
            ("1E3", NANOS * 1_000),
            ("12e-1", 1_200_000_000),
            ("100n", 100),
            ("0.1n", 1),
            ("1e-1000", 1),
            ("9223372036854775807", MAX),
        ];
        for (text, nanos) in table {
            assert_eq!(
                text.parse::<Quantity>().map(|q| q.nanos),
                Ok(nanos),
                "{text}"
            );
        }
    }

    #[test]
    fn inexact_and_invalid_quantities_are_rejected() {
        for text in [
            "",
            "-",
            "+",
            ".",
            "m",
            "1x",
            "1 Mi",
            "1MI",
            "1KB",
            "1mi",
            "1..2",
            "1.2.3",
            "1e",
            "1e+",
            "0x1",
            "١",
            "9223372036854775808",
            "10E",
            "1e1000",
            "1e99999999999",
            "100000000000000000000000000000000000000000",
        ] {
            let error = text.parse::<Quantity>().unwrap_err().to_string();
            let want = format!(
                "invalid quantity `{text}`: expected a quantity such as 100m, 0.5, 64Mi or 1G"
            );
            assert_eq!(error, want);
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        let nanos = |text: &str| text.parse::<Quantity>().unwrap().nanos;
        assert_eq!(nanos("1"), nanos("1000m"));
        assert_eq!(nanos("1Gi"), nanos("1024Mi"));
        assert!(nanos("64Mi") < nanos("64.1Mi"));
        assert!(nanos("1G") < nanos("1Gi"));
        assert!(nanos("-1m") < 0 && nanos("0") == 0);
    }
}
