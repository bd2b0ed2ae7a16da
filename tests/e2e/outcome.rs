//! The outcome of a scenario, and the errors that are none of the product.

use std::fmt;

use anyhow::{Error, Result};

/// Below this share of the configured rate a run is inconclusive.
pub(crate) const MIN_RATE_RATIO: f64 = 0.95;

/// The outcome of a scenario.
#[derive(Debug)]
pub(crate) enum ScenarioOutcome {
    /// The claim holds.
    Passed,
    /// It did not run: an optional program is not configured.
    Skipped(Error),
    /// It proved nothing: the load did not reach its rate.
    Inconclusive(Error),
    /// The claim does not hold, or a step failed.
    Failed(Error),
}

/// The error of a scenario whose load did not reach its rate; it has the load's report.
#[derive(Debug, thiserror::Error)]
#[error("too few requests were sent:\n{0}")]
pub(crate) struct Inconclusive(pub(crate) String);

/// The error of a scenario whose optional program is not configured; it names the variable.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Skipped(pub(crate) &'static str);

// === impl ScenarioOutcome ===

impl ScenarioOutcome {
    /// The outcome of a scenario that returned this.
    pub(crate) fn from_result(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) if error.is::<Inconclusive>() => Self::Inconclusive(error),
            Err(error) if error.is::<Skipped>() => Self::Skipped(error),
            Err(error) => Self::Failed(error),
        }
    }

    /// Turns the outcome into a failure if the clean-up failed.
    pub(crate) fn and_cleanup(self, cleanup: Result<()>) -> Self {
        match (self, cleanup) {
            (Self::Passed | Self::Skipped(_) | Self::Inconclusive(_), Err(error)) => {
                Self::Failed(error)
            }
            (outcome, _) => outcome,
        }
    }

    /// Whether the scenario passed, or was skipped.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, Self::Passed | Self::Skipped(_))
    }

    /// Why the scenario did not pass.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Skipped(error) | Self::Inconclusive(error) | Self::Failed(error) => {
                Some(format!("{error:#}"))
            }
        }
    }
}

impl fmt::Display for ScenarioOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Skipped(_) => "skipped",
            Self::Inconclusive(_) => "INCONCLUSIVE",
            Self::Failed(_) => "FAILED",
        })
    }
}
