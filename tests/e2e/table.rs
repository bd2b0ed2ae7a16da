//! What all scenarios saw, for people.

use std::fmt;
use std::time::Duration;

use crate::scenario::Verdict;
use crate::sheet::Sheet;

/// What came of each scenario, in the order in which they ended.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
}

/// What came of one scenario.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The scenario's.
    pub(crate) name: &'static str,
    /// What it came to.
    pub(crate) verdict: Verdict,
    /// How long it took.
    pub(crate) took: Duration,
    /// What it saw.
    pub(crate) sheet: Sheet,
}

// === impl Table ===

impl Table {
    /// Adds what came of these scenarios.
    pub(crate) fn add(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.entries.extend(entries);
    }

    /// Whether nothing but what was to be shown came out.
    pub(crate) fn is_good(&self) -> bool {
        let mut verdicts = self.entries.iter().map(|entry| &entry.verdict);
        verdicts.all(Verdict::is_good)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Entry {
            name,
            verdict,
            took,
            sheet,
        } in &self.entries
        {
            writeln!(f, "{verdict:8}{name} ({} s)", took.as_secs())?;
            if let Some(why) = verdict.why() {
                // The first line says it; the rest was printed when it happened.
                writeln!(f, "    {}", why.lines().next().unwrap_or_default())?;
            }
            sheet.fmt(f)?;
        }
        Ok(())
    }
}
