//! What one scenario saw, for people.

use std::collections::BTreeMap;
use std::fmt;

use tests::load::Report;

use crate::admissions::AdmissionCounts;
use crate::termination_message::TerminationMessage;

/// The rows of one scenario.
#[derive(Debug, Default)]
pub(crate) struct ScenarioReport {
    slug: &'static str,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    label: String,
    value: String,
}

// === impl Sheet ===

impl ScenarioReport {
    /// An empty one.
    pub(crate) fn new(about: &'static str) -> Self {
        let rows = Vec::new();
        Self { slug: about, rows }
    }

    /// Adds what was seen.
    pub(crate) fn add_row(&mut self, what: &str, seen: impl Into<String>) {
        let (what, seen) = (what.to_owned(), seen.into());
        println!("  {:12} {what:34} {seen}", self.slug);
        self.rows.push(Row {
            label: what,
            value: seen,
        });
    }

    /// Adds what became of a load's requests, by kind and in all.
    pub(crate) fn add_load(&mut self, report: &Report) {
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
            self.add_row(&kind.name, seen);
        }
        self.add_row(
            "all requests",
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
    pub(crate) fn add_drains(&mut self, last_words: &[TerminationMessage]) {
        let mut by_outcome = BTreeMap::<_, Vec<_>>::new();
        for (outcome, seconds) in last_words.iter().filter_map(TerminationMessage::outcome) {
            by_outcome.entry(outcome).or_default().push(seconds);
        }
        for (outcome, seconds) in by_outcome {
            let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = seconds.iter().copied().fold(0.0, f64::max);
            let seen = format!("{} in {least:.1} s to {most:.1} s", seconds.len());
            self.add_row(&format!("drains that ended `{outcome}`"), seen);
        }
    }

    /// Adds what became of pods that were created in a loop.
    pub(crate) fn add_admissions(&mut self, admitted: &AdmissionCounts) {
        self.add_row("pods created in a loop", admitted.to_string());
    }
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row {
            label: what,
            value: seen,
        } in &self.rows
        {
            writeln!(f, "    {what:34} {seen}")?;
        }
        Ok(())
    }
}
