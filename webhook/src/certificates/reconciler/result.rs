//! The result of one reconcile.

use tracing::{debug, error};

use crate::certificates::cluster::StoreError;
use crate::certificates::metrics::Metrics;
use crate::certificates::rotation::TooManyCas;

/// What a reconcile changed, and what failed.
#[derive(Debug, Default)]
pub struct ReconcileResult {
    /// True if an object was written, so that more may be left to do.
    pub changed: bool,
    /// What failed. Everything that does not depend on it was done; the next reconcile retries.
    pub failures: Vec<ReconcileError>,
}

/// What can fail in a reconcile.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A call to the API server.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The TLS Secret of mode `secret` is unusable, or a CA or a leaf could not be created.
    #[error(transparent)]
    Certificate(#[from] anyhow::Error),
    /// A CA is missing, but too many are trusted already.
    #[error(transparent)]
    TooManyCas(#[from] TooManyCas),
    /// A bug, whose panic message precedes this in the log.
    #[error("a bug in this program: it panicked")]
    Panic,
}

// === impl ReconcileResult ===

impl ReconcileResult {
    /// Returns true if nothing failed and nothing is left to do.
    pub fn is_converged(&self) -> bool {
        !self.changed && self.failures.is_empty()
    }

    /// Records a failure, so that the rest of the reconcile can go on.
    pub(super) fn record<T>(&mut self, result: Result<T, impl Into<ReconcileError>>) -> Option<T> {
        let recorded = result.map_err(|failure| self.failures.push(failure.into()));
        recorded.ok()
    }

    /// Records a write, or its failure.
    pub(super) fn record_write(&mut self, result: Result<(), StoreError>) -> bool {
        let is_written = self.record(result).is_some();
        self.changed |= is_written;
        is_written
    }

    /// Logs the failures, and counts those of calls.
    pub(super) fn log(self, metrics: &Metrics) {
        for failure in self.failures {
            if let ReconcileError::Store(error) = &failure {
                metrics.count_failed_call(error);
                if let StoreError::Conflict { call } = error {
                    debug!(%call, "Conflict with another replica: retrying");
                    continue;
                }
            }
            // With its causes, which JSON logs would omit from an error.
            let error = format!("{:#}", anyhow::Error::from(failure));
            error!(error, "Failed to reconcile certificate: retrying");
        }
    }
}
