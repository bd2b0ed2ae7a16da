//! What the webhook tells of its work: metrics, and a log line for each pod it changed or refused.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tracing::{debug, error, info};

use crate::admission::{About, Answer, Code, Outcome};

/// The media type of [`Report::text`].
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const LOADED: &str = "ok";
const KEPT: &str = "failed";

/// The webhook's metrics. No label has more values than the code has words: never a namespace.
#[derive(Debug)]
pub struct Report {
    registry: Registry,
    admissions: Family<Admission, Counter>,
    duration: Histogram,
    in_flight: Gauge,
    refused: Family<Refusal, Counter>,
    handshakes_failed: Counter,
    certificates: Family<Renewal, Counter>,
    certificate_not_after: Gauge,
}

/// One request in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlight<'a>(&'a Gauge);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Admission {
    outcome: &'static str,
    code: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Reason(Option<Code>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refusal {
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Renewal {
    result: &'static str,
}

// === impl Report ===

impl Report {
    /// Counters at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("envoy_drainer");
        let this = Self {
            admissions: Family::default(),
            // From 25 µs, half of what an ordinary pod takes, to 0.4 s, more than the largest.
            duration: Histogram::new(exponential_buckets(25e-6, 2.0, 15)),
            in_flight: Gauge::default(),
            refused: Family::default(),
            handshakes_failed: Counter::default(),
            certificates: Family::default(),
            certificate_not_after: Gauge::default(),
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
            this.refused.clone(),
        );
        registry.register(
            "tls_handshakes_failed",
            "Connections to the TLS port without a TLS handshake",
            this.handshakes_failed.clone(),
        );
        registry.register(
            "certificate_reloads",
            "New certificates by whether they could be served",
            this.certificates.clone(),
        );
        registry.register(
            "certificate_not_after_seconds",
            "When the served certificate ends, in seconds since 1970",
            this.certificate_not_after.clone(),
        );
        // Seen at zero, so that the first failure is an increase.
        for result in [LOADED, KEPT] {
            let _ = this.certificates.get_or_create(&Renewal { result });
        }
        Self { registry, ..this }
    }

    /// The metrics in the text format of OpenMetrics.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String can always be written to");
        text
    }

    /// Counts one admission and how long it took, and logs it if the pod asked for a drainer.
    pub fn admitted(&self, answer: &Answer, took: Duration) {
        let admission = Admission::from(answer);
        log(answer, &admission);
        self.admissions.get_or_create(&admission).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts a request that is in flight until the result is dropped.
    pub fn in_flight(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight(&self.in_flight)
    }

    /// Counts a request that got this HTTP status and no answer from admission.
    pub fn refused(&self, status: u16) {
        self.refused.get_or_create(&Refusal { status }).inc();
    }

    /// Counts a connection without a TLS handshake.
    pub fn handshake_failed(&self) {
        self.handshakes_failed.inc();
    }

    /// Tells when the served certificate ends.
    pub fn certificate_ends(&self, not_after: SystemTime) {
        let seconds = not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.certificate_not_after
            .set(i64::try_from(seconds.as_secs()).unwrap_or(i64::MAX));
    }

    /// Counts a new certificate, which could be served or not.
    pub fn certificate_reloaded(&self, served: bool) {
        let result = if served { LOADED } else { KEPT };
        self.certificates.get_or_create(&Renewal { result }).inc();
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

fn log(answer: &Answer, admission: &Admission) {
    let About {
        uid,
        namespace,
        name,
        dry_run,
    } = &answer.about;
    let Admission { outcome, code } = admission;
    let code = code.0.map(tracing::field::display);
    match answer.outcome {
        Outcome::NotAsked | Outcome::NotOurs | Outcome::Advised => {
            debug!(uid, namespace, name, dry_run, outcome, "Admission");
        }
        Outcome::Injected | Outcome::Skipped(_) | Outcome::Denied => {
            info!(uid, namespace, name, dry_run, outcome, code, "Admission");
        }
        Outcome::Failed(_) => {
            error!(uid, namespace, name, dry_run, outcome, code, "Admission");
        }
    }
}

// === impl Admission ===

impl From<&Answer> for Admission {
    fn from(answer: &Answer) -> Self {
        let (outcome, code) = match answer.outcome {
            Outcome::Injected => ("injected", None),
            Outcome::Skipped(code) => ("skipped", Some(code)),
            Outcome::Denied => ("denied", answer.notices.first().map(|notice| notice.code)),
            Outcome::NotAsked => ("not_asked", None),
            Outcome::NotOurs => ("not_ours", None),
            Outcome::Advised => ("advised", answer.notices.first().map(|notice| notice.code)),
            Outcome::Failed(code) => ("failed", Some(code)),
        };
        Self {
            outcome,
            code: Reason(code),
        }
    }
}

// === impl InFlight ===

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

// === impl Reason ===

impl EncodeLabelValue for Reason {
    /// `DRN006`; nothing where a pod got its drainer without a word.
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        match self.0 {
            Some(code) => write!(encoder, "{code}"),
            None => Ok(()),
        }
    }
}
