//! The results of all scenarios, as a table.

use std::fmt;
use std::time::Duration;

use crate::outcome::ScenarioOutcome;
use crate::report::ScenarioReport;

/// The results of all scenarios, by group.
#[derive(Debug, Default)]
pub(crate) struct ReportTable {
    entries: Vec<ScenarioResult>,
}

/// The result of one scenario.
#[derive(Debug)]
pub(crate) struct ScenarioResult {
    /// The scenario's name.
    pub(crate) name: &'static str,
    /// The outcome.
    pub(crate) outcome: ScenarioOutcome,
    /// How long the scenario took, without the clean-up.
    pub(crate) elapsed: Duration,
    /// The measured values.
    pub(crate) report: ScenarioReport,
}

// === impl ReportTable ===

impl ReportTable {
    /// Adds results.
    pub(crate) fn add(&mut self, entries: impl IntoIterator<Item = ScenarioResult>) {
        self.entries.extend(entries);
    }

    /// Whether all scenarios passed or were skipped.
    pub(crate) fn is_success(&self) -> bool {
        let mut outcomes = self.entries.iter().map(|entry| &entry.outcome);
        outcomes.all(ScenarioOutcome::is_success)
    }
}

impl fmt::Display for ReportTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ScenarioResult {
            name,
            outcome,
            elapsed,
            report,
        } in &self.entries
        {
            writeln!(f, "{outcome:14}{name} ({} s)", elapsed.as_secs())?;
            if let Some(reason) = outcome.reason() {
                // Only the first line: the rest was printed when the scenario failed.
                writeln!(f, "    {}", reason.lines().next().unwrap_or_default())?;
            }
            report.fmt(f)?;
        }
        Ok(())
    }
}
