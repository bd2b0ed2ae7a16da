//! The log line of an admission, and how many of them are logged in a second.

use std::net::IpAddr;
use std::time::Duration;

use admission::{AdmissionOutcome, RequestMeta, ReviewResponse};
use tokio::time::Instant;
use tracing::field::display;
use tracing::{debug, error, info};

use super::metrics::AdmissionLabels;
use crate::rate_limit::{Rate, RateLimit};

/// Maximum length of a field, in bytes. A name in Kubernetes has at most 253; one in a review that no API server sent
/// may have millions.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>
const MAX_FIELD_LENGTH: usize = 253;

/// A burst of more lines than a cluster creates pods in a second, then 20 lines a second.
const RATE: Rate = Rate::new(200, Duration::from_millis(50));

/// Logs admissions, at a limited rate: thousands of forged requests are answered in a second, and a line for each would
/// fill the node's disk.
#[derive(Debug)]
pub(super) struct AdmissionLog(RateLimit<()>);

// === impl AdmissionLog ===

impl AdmissionLog {
    pub(super) fn new() -> Self {
        Self(RateLimit::new(RATE, RATE, Instant::now()))
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
        let [uid, namespace, name] =
            [uid, namespace, name].map(|text| &text[..text.floor_char_boundary(MAX_FIELD_LENGTH)]);
        let outcome = labels.outcome;
        let code = labels.code.as_ref().map(display);
        match response.outcome {
            AdmissionOutcome::NotRequested
            | AdmissionOutcome::Ignored
            | AdmissionOutcome::Warned => {
                debug!(%client, uid, namespace, name, dry_run, outcome, "Admission reviewed");
            }
            _ if !self.0.try_take(&(), Instant::now()) => {}
            AdmissionOutcome::Injected
            | AdmissionOutcome::Repaired
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
}
