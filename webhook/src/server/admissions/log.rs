//! The log line of an admission, and how many of them are logged in a second.

use std::net::IpAddr;

use admission::{AdmissionOutcome, RequestMeta, ReviewResponse};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::field::display;
use tracing::{debug, error, info, warn};

use super::metrics::AdmissionLabels;
use crate::server::log_limit::LogLimit;

/// In bytes. A name in Kubernetes has 253 at most; one in a review that no API server sent may have
/// millions.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>
const MAX_FIELD_LENGTH: usize = 253;

/// Logs admissions, at a limited rate.
#[derive(Debug)]
pub(super) struct AdmissionLog(Mutex<LogLimit>);

// === impl AdmissionLog ===

impl AdmissionLog {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LogLimit::new(Instant::now())))
    }

    /// Logs an admission: at `debug` if no drainer was requested, else at `info` and up to the limit. The request's
    /// uid is for `debug` only: lines at `info` are kept for long, and read by many.
    pub(super) fn log(&self, response: &ReviewResponse, labels: &AdmissionLabels, client: IpAddr) {
        let RequestMeta {
            uid,
            namespace,
            name,
            dry_run,
        } = &response.request;
        let [uid, namespace, name] = [uid, namespace, name].map(|text| truncate(text));
        let outcome = labels.outcome;
        let code = labels.code.as_ref().map(display);
        match response.outcome {
            AdmissionOutcome::NotRequested
            | AdmissionOutcome::Ignored
            | AdmissionOutcome::Warned => {
                debug!(%client, uid, namespace, name, dry_run, outcome, "Admission reviewed");
            }
            _ if !self.is_allowed() => {}
            AdmissionOutcome::Injected
            | AdmissionOutcome::Skipped(_)
            | AdmissionOutcome::Denied => {
                info!(%client, namespace, name, dry_run, outcome, code, "Admission reviewed");
            }
            AdmissionOutcome::Failed(_) => {
                let message = "Admission failed: the object is admitted unchanged";
                error!(%client, namespace, name, dry_run, outcome, code, "{message}");
            }
        }
    }

    /// Returns true if one more line may be logged, and logs how many before it were dropped.
    fn is_allowed(&self) -> bool {
        let mut limit = self.0.lock();
        let now = Instant::now();
        let (dropped, is_allowed) = (limit.report(now), limit.take(now));
        drop(limit);
        if let Some(dropped) = dropped {
            warn!(dropped, "Admission log lines dropped");
        }
        is_allowed
    }
}

/// Returns the first [`MAX_FIELD_LENGTH`] bytes of a text that a client chose, cut at a character's boundary.
fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_FIELD_LENGTH)]
}
