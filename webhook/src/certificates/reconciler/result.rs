//! What became of one look at the cluster, and of all that was due then.

use tracing::{debug, error};

use crate::certificates::cluster::{ROTATE_ANNOTATION, StoreError};
use crate::certificates::pki::leaf::IssueError;
use crate::certificates::tls_secret::TlsSecretError;
use crate::metrics::Metrics;

/// What a tick came to.
#[derive(Debug, Default)]
pub struct ReconcileResult {
    /// It wrote something, so there may be more to do.
    pub changed: bool,
    /// Why it did not do all that was due. What does not depend on that was done, and the next tick
    /// tries again.
    pub failures: Vec<ReconcileError>,
}

/// What can fail in a tick.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The Secret of mode `secret`.
    #[error(transparent)]
    TlsSecret(#[from] TlsSecretError),
    /// The leaf.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The authority's key.
    #[error("cannot make an authority")]
    Ca(#[from] rcgen::Error),
    /// The Secret, in a state in which it can never be written.
    #[error("{0}")]
    SecretUnwritable(String),
    /// The authority, as there would be too many.
    #[error(
        "no authority is made beside {0} that signed before: find who empties the Secret again and \
         again, or writes CAs into caBundle; to replace them all, annotate the Secret with {ROTATE_ANNOTATION}"
    )]
    TooManyCas(usize),
    /// A bug, whose message is in the log before this.
    #[error("a bug in this program: it panicked")]
    Panic,
}

// === impl ReconcileResult ===

impl ReconcileResult {
    /// Returns true if all is well, and nothing is left to do.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        !self.changed && self.failures.is_empty()
    }

    /// Takes what was done, or why not.
    pub(crate) fn note<T>(&mut self, result: Result<T, impl Into<ReconcileError>>) -> Option<T> {
        let noted = result.map_err(|failure| self.failures.push(failure.into()));
        noted.ok()
    }

    /// Takes that something was written, or why not.
    pub(crate) fn note_write(&mut self, result: Result<(), StoreError>) -> bool {
        let wrote = self.note(result).is_some();
        self.changed |= wrote;
        wrote
    }

    /// Logs why not all was done that was due.
    pub fn log(self, report: &Metrics) {
        for failure in self.failures {
            if let ReconcileError::Store(failed) = &failure {
                report.count_failed_call(failed);
                if let StoreError::Conflict { call } = failed {
                    debug!(%call, "Another replica was faster");
                    continue;
                }
            }
            // With its causes, which a log in JSON would leave out of an error.
            let error = format!("{:#}", anyhow::Error::from(failure));
            error!(error, "Certificate not up to date");
        }
    }
}
