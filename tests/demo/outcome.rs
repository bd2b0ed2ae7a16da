//! The two ends side by side, and what was promised of them.

use std::fmt;

use tests::load::FailureKind;

use crate::shop::Ending;

/// So many requests each way, or the figures say little.
const REQUESTS: u64 = 5_000;

/// So many must fail without the drainer, or the test was no test.
const FAILED_WITHOUT: u64 = 20;

/// The least share of the rate asked for.
const REACHED: f64 = 0.95;

/// The pod's end with the drainer and without.
pub struct Outcome {
    pub with: Ending,
    pub without: Ending,
}

// === impl Outcome ===

impl Outcome {
    /// What was promised and did not come true.
    pub fn broken_promises(&self) -> Vec<String> {
        let Self { with, without } = self;
        let mut broken = Vec::new();
        let mut promise = |kept: bool, what: String| {
            if !kept {
                broken.push(what);
            }
        };
        for (name, ending) in [("with", with), ("without", without)] {
            let (sent, reached) = (ending.report.sent(), ending.report.reached());
            promise(
                sent >= REQUESTS,
                format!("only {sent} requests were sent {name} the drainer"),
            );
            let share = reached * 100.0;
            promise(
                reached >= REACHED,
                format!("clients reached only {share:.0} % of their rate {name} the drainer"),
            );
        }
        let failed = with.report.failed();
        promise(
            failed == 0,
            format!(
                "{failed} requests failed with the drainer:\n{}",
                with.report
            ),
        );
        let failed = without.report.failed();
        promise(
            failed >= FAILED_WITHOUT,
            format!("only {failed} requests failed without the drainer"),
        );
        for kind in [FailureKind::Refused, FailureKind::CutInFlight] {
            let some = without.report.failed_by(kind) > 0;
            promise(some, format!("without the drainer none was {kind}"));
        }
        broken
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { with, without } = self;
        let mut row = |name: &str, of: &dyn Fn(&Ending) -> String| {
            writeln!(f, "   {name:<34}{:>18}{:>18}", of(with), of(without))
        };
        row("", &|ending| match std::ptr::eq(ending, with) {
            true => "with the drainer".to_owned(),
            false => "without".to_owned(),
        })?;
        row("requests", &|ending| thousands(ending.report.sent()))?;
        row("failed", &|ending| thousands(ending.report.failed()))?;
        for kind in FailureKind::ALL {
            let count = |ending: &Ending| ending.report.failed_by(kind);
            if kind <= FailureKind::CutOnReused || count(with) + count(without) > 0 {
                row(&format!("  {kind}"), &|ending| thousands(count(ending)))?;
            }
        }
        row("connections open at SIGTERM", &|ending| {
            ending.left.to_string()
        })?;
        row("the pod's end took", &|ending| {
            format!("{:.1} s", ending.took.as_secs_f64())
        })?;
        row("rate reached, of the rate asked", &|ending| {
            format!("{:.1} %", ending.report.reached() * 100.0)
        })
    }
}

/// A number with its thousands apart: `6,460`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
