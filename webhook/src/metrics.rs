//! What the webhook tells of its work: metrics, and a log line for each pod it changed or refused.

pub mod connections;
mod log_limit;

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::admission::{AdmissionOutcome, Code, RequestMeta, ReviewResponse};
use connections::{ConnectionMetrics, PortMetrics, PortName};
use log_limit::{LogDecision, LogLimit};

/// The media type of [`Report::text`].
pub const METRICS_MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A name in Kubernetes has 253 bytes at most; one in a review that no API server sent may have
/// millions.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>
const MAX_FIELD_LENGTH: usize = 253;

const OK: &str = "ok";
const FAILED: &str = "failed";

/// The webhook's metrics. No label has more values than the code has words: never a namespace.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    admissions: Family<AdmissionLabels, Counter>,
    duration: Histogram,
    in_flight: Gauge,
    requests_refused: Family<StatusLabels, Counter>,
    handshakes_failed: Counter,
    event_writes: Family<ResultLabels, Counter>,
    events_dropped: Counter,
    connections: ConnectionMetrics,
    log_limit: Mutex<LogLimit>,
}

/// One request in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlightGuard<'a>(&'a Gauge);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AdmissionLabels {
    outcome: &'static str,
    code: CodeLabel,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CodeLabel(Option<Code>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// Creates an empty registry; the modules that count add their metrics to it.
pub fn registry() -> Registry {
    Registry::with_prefix("envoy_drainer")
}

/// Formats the metrics as OpenMetrics text.
pub fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    text::encode(&mut text, registry).expect("a String can always be written to");
    text
}

// === impl Metrics ===

impl Metrics {
    /// Counters at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = registry();
        let this = Self {
            admissions: Family::default(),
            // From 25 µs, half of what an ordinary pod takes, to 0.4 s, more than the largest.
            duration: Histogram::new(exponential_buckets(25e-6, 2.0, 15)),
            in_flight: Gauge::default(),
            requests_refused: Family::default(),
            handshakes_failed: Counter::default(),
            event_writes: Family::default(),
            events_dropped: Counter::default(),
            connections: ConnectionMetrics::register(&mut registry),
            log_limit: Mutex::new(LogLimit::new(Instant::now())),
            registry: Registry::default(),
        };
        registry.register(
            "admissions",
            "Admissions by what became of the pod and the code that says why",
            this.admissions.clone(),
        );
        registry.register(
            "admission_duration_seconds",
            "Time from a request's whole body to its answer",
            this.duration.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Admission requests that are being read or answered",
            this.in_flight.clone(),
        );
        registry.register(
            "requests_refused",
            "Admission requests without an answer from admission, by HTTP status",
            this.requests_refused.clone(),
        );
        registry.register(
            "tls_handshakes_failed",
            "Connections to the TLS port without a TLS handshake",
            this.handshakes_failed.clone(),
        );
        registry.register(
            "event_writes",
            "Writes of Events on the owners of pods without a drainer, by whether they were taken",
            this.event_writes.clone(),
        );
        registry.register(
            "events_dropped",
            "Pods without a drainer that no Event counts, since there were too many",
            this.events_dropped.clone(),
        );
        // Seen at zero, so that the first failure is an increase.
        for result in [OK, FAILED] {
            let _ = this.event_writes.get_or_create(&ResultLabels { result });
        }
        Self { registry, ..this }
    }

    /// The registry, to which other modules add their metrics.
    pub fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// The metrics in the text format of OpenMetrics.
    #[must_use]
    pub fn text(&self) -> String {
        encode(&self.registry)
    }

    /// Counts one admission and how long it took, and logs it if the pod asked for a drainer: 200 at
    /// once at most, and then 20 a second.
    pub fn record_admission(&self, answer: &ReviewResponse, took: Duration) {
        let admission = AdmissionLabels::from(answer);
        if self.should_log(answer.outcome) {
            log_admission(answer, &admission);
        }
        self.admissions.get_or_create(&admission).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Returns true if an admission with this outcome is to be logged. What is for `debug` always is.
    fn should_log(&self, outcome: AdmissionOutcome) -> bool {
        match outcome {
            AdmissionOutcome::NotRequested
            | AdmissionOutcome::Ignored
            | AdmissionOutcome::Warned => return true,
            AdmissionOutcome::Injected
            | AdmissionOutcome::Skipped(_)
            | AdmissionOutcome::Denied
            | AdmissionOutcome::Failed(_) => {}
        }
        let mut limit = self
            .log_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let LogDecision {
            is_allowed: line,
            dropped,
        } = limit.take(Instant::now());
        drop(limit);
        if dropped > 0 {
            warn!("{dropped} admissions not logged");
        }
        line
    }

    /// Counts a request that is in flight until the result is dropped.
    pub fn track_request(&self) -> InFlightGuard<'_> {
        self.in_flight.inc();
        InFlightGuard(&self.in_flight)
    }

    /// What is counted of this port's connections.
    pub(crate) fn connections(&self, port: PortName) -> PortMetrics {
        self.connections.for_port(port)
    }

    /// Counts a request that got this HTTP status and no answer from admission.
    pub fn count_refused(&self, status: u16) {
        self.requests_refused
            .get_or_create(&StatusLabels { status })
            .inc();
    }

    /// Counts a connection without a TLS handshake.
    pub fn count_failed_handshake(&self) {
        self.handshakes_failed.inc();
    }

    /// Counts a write of an Event, which was taken or not.
    pub fn count_event_write(&self, taken: bool) {
        let result = if taken { OK } else { FAILED };
        self.event_writes
            .get_or_create(&ResultLabels { result })
            .inc();
    }

    /// Counts a pod that its owner is not told of.
    pub fn count_dropped_event(&self) {
        self.events_dropped.inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Logs an admission. The request's uid is for `debug` alone: a line at `info` is kept for long, and is
/// read by many.
fn log_admission(answer: &ReviewResponse, admission: &AdmissionLabels) {
    let RequestMeta {
        uid,
        namespace,
        name,
        dry_run,
    } = &answer.request;
    let [uid, namespace, name] = [uid, namespace, name].map(|text| truncate(text));
    let AdmissionLabels { outcome, code } = admission;
    let code = code.0.map(tracing::field::display);
    match answer.outcome {
        AdmissionOutcome::NotRequested | AdmissionOutcome::Ignored | AdmissionOutcome::Warned => {
            debug!(uid, namespace, name, dry_run, outcome, "Admission");
        }
        AdmissionOutcome::Injected | AdmissionOutcome::Skipped(_) | AdmissionOutcome::Denied => {
            info!(namespace, name, dry_run, outcome, code, "Admission");
        }
        AdmissionOutcome::Failed(_) => {
            error!(namespace, name, dry_run, outcome, code, "Admission");
        }
    }
}

/// The first [`LONGEST_FIELD`] bytes of a text that a client chose, or a few less.
fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_FIELD_LENGTH)]
}

// === impl AdmissionLabels ===

impl From<&ReviewResponse> for AdmissionLabels {
    fn from(answer: &ReviewResponse) -> Self {
        let (outcome, code) = match answer.outcome {
            AdmissionOutcome::Injected => ("injected", None),
            AdmissionOutcome::Skipped(code) => ("skipped", Some(code)),
            AdmissionOutcome::Denied => (
                "denied",
                answer.diagnostics.first().map(|notice| notice.code),
            ),
            AdmissionOutcome::NotRequested => ("not_asked", None),
            AdmissionOutcome::Ignored => ("not_ours", None),
            AdmissionOutcome::Warned => (
                "advised",
                answer.diagnostics.first().map(|notice| notice.code),
            ),
            AdmissionOutcome::Failed(code) => ("failed", Some(code)),
        };
        Self {
            outcome,
            code: CodeLabel(code),
        }
    }
}

// === impl InFlightGuard ===

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

// === impl CodeLabel ===

impl EncodeLabelValue for CodeLabel {
    /// `DRN006`; nothing where a pod got its drainer without a word.
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        match self.0 {
            Some(code) => write!(encoder, "{code}"),
            None => Ok(()),
        }
    }
}
