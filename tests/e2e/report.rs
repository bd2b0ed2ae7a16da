//! The results of one scenario, as a table.

use std::collections::BTreeMap;
use std::fmt;

use tests::load::Report;

use crate::termination_message::TerminationMessage;

/// The labelled results of one scenario.
#[derive(Debug, Default)]
pub(crate) struct ScenarioReport {
    slug: &'static str,
    /// Labels and values.
    rows: Vec<(String, String)>,
}

// === impl ScenarioReport ===

impl ScenarioReport {
    /// Creates a report without rows.
    pub(crate) fn new(slug: &'static str) -> Self {
        let rows = Vec::new();
        Self { slug, rows }
    }

    /// Adds a row, and prints it at once.
    pub(crate) fn add_row(&mut self, label: &str, value: impl Into<String>) {
        let (label, value) = (label.to_owned(), value.into());
        println!("  {:12} {label:34} {value}", self.slug);
        self.rows.push((label, value));
    }

    /// Adds the requests of a load, by kind and in total.
    pub(crate) fn add_load(&mut self, report: &Report) {
        for kind in &report.kinds {
            let failed = kind.failed.iter();
            let failed = failed.map(|(failure, count)| format!("{count} {failure}"));
            let failed: Vec<_> = failed.collect();
            let sent = kind.sent;
            let value = match kind.failed.values().sum::<u64>() {
                0 => format!("0 of {sent} failed"),
                count => format!("{count} of {sent} failed: {}", failed.join(", ")),
            };
            self.add_row(&kind.name, value);
        }
        self.add_row(
            "all requests",
            format!(
                "{} of {} failed in {:.0} s, at {:.1} % of the intended rate",
                report.failed(),
                report.sent(),
                report.elapsed.as_secs_f64(),
                report.reached() * 100.0
            ),
        );
    }

    /// Adds the number and the durations of drains by outcome.
    pub(crate) fn add_drains(&mut self, messages: &[TerminationMessage]) {
        let mut by_outcome = BTreeMap::<_, Vec<_>>::new();
        for summary in messages.iter().flat_map(TerminationMessage::summary) {
            let outcome = summary.outcome.to_string();
            by_outcome.entry(outcome).or_default().push(summary.seconds);
        }
        for (outcome, seconds) in by_outcome {
            let min = seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let max = seconds.iter().copied().fold(0.0, f64::max);
            let value = format!("{}, lasting {min:.1} s to {max:.1} s", seconds.len());
            self.add_row(&format!("drains with outcome `{outcome}`"), value);
        }
    }
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, value) in &self.rows {
            writeln!(f, "    {label:34} {value}")?;
        }
        Ok(())
    }
}
