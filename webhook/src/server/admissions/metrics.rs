//! Metrics of admissions and of the requests for them.

use std::time::Duration;

use admission::{AdmissionOutcome, Code, Effect};
use axum::http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::metrics::{Registry, metrics};

metrics! {
    /// The metrics of admissions. Label values come from fixed enums, so cardinality is bounded; namespaces are never a
    /// label.
    #[derive(Debug)]
    pub(in crate::server) struct Metrics {
        admissions: Family<AdmissionLabels, Counter>, "admissions",
            "Admissions by outcome and by the code of the reason";
        // From 25 µs, about what an ordinary pod takes, to 0.4 s, more than the largest.
        duration: Histogram = Histogram::new(exponential_buckets(25e-6, 2.0, 15)),
            "admission_duration_seconds",
            "Time to decide an admission, without the wait for its turn";
        in_flight: Gauge, "requests_in_flight",
            "Admission requests that are being read or processed";
        rejected_requests: Family<StatusLabels, Counter>, "requests_rejected",
            "Admission requests answered with an HTTP error, by status";
    }
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub(super) struct InFlightGuard<'a>(&'a Gauge);

/// The labels of an admission, which are also fields of its log line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AdmissionLabels {
    pub(super) outcome: &'static str,
    /// The code of a diagnostic; empty for a pod that was injected without one.
    pub(super) code: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: u16,
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics at zero and adds them to `registry`.
    pub(in crate::server) fn register(registry: &mut Registry) -> Self {
        let this = Self::registered(registry);
        // Exported at zero, so that the first failure is an increase.
        let codes = Code::ALL.iter().copied();
        for fault in codes.filter(|code| code.effect() == Effect::Fault) {
            let labels = AdmissionLabels::new(AdmissionOutcome::Failed(fault), None);
            let _ = this.admissions.get_or_create(&labels);
        }
        this
    }

    /// Counts one admission, with the time it took.
    pub(super) fn count_admission(&self, labels: &AdmissionLabels, took: Duration) {
        self.admissions.get_or_create(labels).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts a request as in flight until the result is dropped.
    pub(super) fn track_request(&self) -> InFlightGuard<'_> {
        self.in_flight.inc();
        InFlightGuard(&self.in_flight)
    }

    /// Counts a request that was answered with this HTTP error.
    pub(super) fn count_rejected_request(&self, status: StatusCode) {
        let status = status.as_u16();
        self.rejected_requests
            .get_or_create(&StatusLabels { status })
            .inc();
    }
}

// === impl AdmissionLabels ===

impl AdmissionLabels {
    /// The labels of this outcome; `first_code` is that of its first diagnostic.
    pub(super) fn new(outcome: AdmissionOutcome, first_code: Option<Code>) -> Self {
        let (outcome, code) = match outcome {
            AdmissionOutcome::Injected => ("injected", None),
            AdmissionOutcome::Repaired => ("repaired", first_code),
            AdmissionOutcome::Skipped(code) => ("skipped", Some(code)),
            AdmissionOutcome::Denied => ("denied", first_code),
            AdmissionOutcome::NotRequested => ("not_requested", None),
            AdmissionOutcome::Ignored => ("ignored", None),
            AdmissionOutcome::Warned => ("warned", first_code),
            AdmissionOutcome::Failed(code) => ("failed", Some(code)),
        };
        Self {
            outcome,
            code: code.map(|code| code.to_string()),
        }
    }
}

// === impl InFlightGuard ===

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
