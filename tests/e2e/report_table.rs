//! What all scenarios saw, for people.

use std::fmt;
use std::time::Duration;

use crate::report::ScenarioReport;
use crate::scenario::ScenarioOutcome;

/// What came of each scenario, in the order in which they ended.
#[derive(Debug, Default)]
pub(crate) struct ReportTable {
    entries: Vec<ScenarioResult>,
}

/// What came of one scenario.
#[derive(Debug)]
pub(crate) struct ScenarioResult {
    /// The scenario's.
    pub(crate) name: &'static str,
    /// What it came to.
    pub(crate) outcome: ScenarioOutcome,
    /// How long it took.
    pub(crate) elapsed: Duration,
    /// What it saw.
    pub(crate) report: ScenarioReport,
}

// === impl Table ===

impl ReportTable {
    /// Adds what came of these scenarios.
    pub(crate) fn add(&mut self, entries: impl IntoIterator<Item = ScenarioResult>) {
        self.entries.extend(entries);
    }

    /// Whether nothing but what was to be shown came out.
    pub(crate) fn is_success(&self) -> bool {
        let mut verdicts = self.entries.iter().map(|entry| &entry.outcome);
        verdicts.all(ScenarioOutcome::is_success)
    }
}

impl fmt::Display for ReportTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ScenarioResult {
            name,
            outcome: verdict,
            elapsed: took,
            report: sheet,
        } in &self.entries
        {
            writeln!(f, "{verdict:8}{name} ({} s)", took.as_secs())?;
            if let Some(why) = verdict.reason() {
                // The first line says it; the rest was printed when it happened.
                writeln!(f, "    {}", why.lines().next().unwrap_or_default())?;
            }
            sheet.fmt(f)?;
        }
        Ok(())
    }
}
