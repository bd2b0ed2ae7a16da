//! The runs of `make terminations`: in how many terminations a request was lost.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::figures;

/// The terminations of a range of seeds, all with the same code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminationRun {
    /// See [`figures::code`].
    pub code: String,
    pub first_seed: u64,
    /// Those with a result.
    pub terminations: u64,
    pub requests: u64,
    /// The seeds of those that lost a request.
    pub lossy: Vec<u64>,
    /// Of these, those of connections that were refused, to an endpoint that lagged for longer than a drain's minimum, after
    /// a quiet period in which no connection came.
    pub after_quiet: Vec<u64>,
    /// The seeds of those that could not be run, as those whose Envoy did not start.
    pub without_result: Vec<u64>,
}

const FILE: &str = "terminations";

// === impl TerminationRun ===

impl TerminationRun {
    /// One without terminations so far.
    ///
    /// # Errors
    /// As [`figures::code`].
    pub fn new(first_seed: u64) -> Result<Self> {
        Ok(Self {
            code: figures::code(&["tests/terminations"])?,
            first_seed,
            ..Self::default()
        })
    }

    /// Adds it to those of docs/measured with the same code; those with another one are dropped.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record(self) -> Result<()> {
        let mut runs = figures::read_runs::<Self>(FILE)?;
        runs.retain(|run| run.code == self.code);
        runs.push(self);
        runs.sort_by_key(|run| run.first_seed);
        figures::write(FILE, &runs)
    }
}

/// What the recorded runs prove, in sentences; with `share`, in how many terminations of how many a request was lost.
///
/// # Errors
/// If the figures cannot be read.
pub fn text(name: &str) -> Result<String> {
    let runs: Vec<TerminationRun> = figures::read(FILE)?;
    let sum = |count: fn(&TerminationRun) -> u64| runs.iter().map(count).sum::<u64>();
    let (lossy, all) = (sum(|it| it.lossy.len() as u64), sum(|it| it.terminations));
    if name == "share" {
        return Ok(format!("{lossy} of {all}"));
    }
    let requests = sum(|it| it.requests);
    let without_result = sum(|it| it.without_result.len() as u64);
    let after_quiet = sum(|it| it.after_quiet.len() as u64);
    let bound = 100.0 * upper_bound(lossy + without_result, all + without_result);
    let mut text = format!(
        "{lossy} of {all} terminations lost a request, of {requests} in all. So with 95 % confidence, at most {bound:.3} % of \
         such terminations lose one."
    );
    if after_quiet > 0 {
        text += &format!(
            " {after_quiet} met the limit of [3 s without a connection](load-balancers.md#do-you-need-a-delay)."
        );
    }
    if without_result > 0 {
        text += &format!(" {without_result} more had no result, and count as lossy.");
    }
    Ok(text)
}

/// The share of lossy terminations that is exceeded with a confidence of less than 5 %, by Poisson's distribution.
fn upper_bound(lossy: u64, all: u64) -> f64 {
    let probability_of_as_few = |expected: f64| {
        let terms = (1..=lossy).scan((-expected).exp(), |term, n| {
            *term *= expected / n as f64;
            Some(*term)
        });
        (-expected).exp() + terms.sum::<f64>()
    };
    let (mut low, mut high) = (0.0, all as f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if probability_of_as_few(middle) > 0.05 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high / all as f64
}

#[cfg(test)]
mod tests {
    use super::upper_bound;

    /// By the tables of the chi-squared distribution, of which half the 95 % quantile with 2n + 2 degrees is the bound.
    #[test]
    fn bound_is_that_of_the_tables() {
        for (lossy, expected) in [(0, 2.996), (1, 4.744), (3, 7.754), (10, 16.962)] {
            let bound = upper_bound(lossy, 10_000) * 10_000.0;
            assert!((bound - expected).abs() < 0.001, "{lossy}: {bound}");
        }
    }
}
