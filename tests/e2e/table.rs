//! What was seen, for people.

use std::collections::BTreeMap;
use std::fmt;

use tests::load::Report;

use crate::last_words::Words;

/// What each scenario saw, in their order.
#[derive(Debug, Default)]
pub(crate) struct Table {
    scenarios: Vec<(String, Vec<Row>)>,
}

#[derive(Debug)]
struct Row {
    what: String,
    seen: String,
}

// === impl Table ===

impl Table {
    /// Begins a scenario, to which the rows that follow belong.
    pub(crate) fn begin(&mut self, scenario: &str) {
        self.scenarios.push((scenario.to_owned(), Vec::new()));
    }

    /// Adds what was seen.
    pub(crate) fn row(&mut self, what: &str, seen: impl Into<String>) {
        let (what, seen) = (what.to_owned(), seen.into());
        println!("  {what:34}{seen}");
        if let Some((_, rows)) = self.scenarios.last_mut() {
            rows.push(Row { what, seen });
        }
    }

    /// Adds what became of a load's requests, by kind and in all.
    pub(crate) fn load(&mut self, report: &Report) {
        for kind in &report.kinds {
            let failed: Vec<_> = kind
                .failed
                .iter()
                .map(|(how, n)| format!("{n} {how}"))
                .collect();
            let sent = kind.sent;
            let seen = match kind.failed.values().sum::<u64>() {
                0 => format!("0 of {sent} failed"),
                count => format!("{count} of {sent} failed: {}", failed.join(", ")),
            };
            self.row(&kind.name, seen);
        }
        self.row(
            "all",
            format!(
                "{} of {} failed in {:.0} s, {:.1} % of the rate reached",
                report.failed(),
                report.sent(),
                report.elapsed.as_secs_f64(),
                report.reached() * 100.0
            ),
        );
    }

    /// Adds how the drains ended; nothing where there were none.
    pub(crate) fn drains(&mut self, last_words: &[Words]) {
        let mut by_outcome = BTreeMap::<_, Vec<_>>::new();
        for (outcome, seconds) in last_words.iter().filter_map(Words::outcome) {
            by_outcome.entry(outcome).or_default().push(seconds);
        }
        for (outcome, seconds) in by_outcome {
            let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = seconds.iter().copied().fold(0.0, f64::max);
            let seen = format!("{} in {least:.1} s to {most:.1} s", seconds.len());
            self.row(&format!("drains that ended `{outcome}`"), seen);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (scenario, rows) in &self.scenarios {
            writeln!(f, "{scenario}")?;
            for Row { what, seen } in rows {
                writeln!(f, "  {what:34}{seen}")?;
            }
        }
        Ok(())
    }
}
