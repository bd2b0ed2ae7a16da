//! The registry of metrics, and its text format.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::certificates::cluster::StoreError;
use crate::certificates::rotation::RotationReason;

pub use prometheus_client::registry::Registry;

/// The media type of [`encode`]'s text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const OK: &str = "ok";
const FAILED: &str = "failed";

/// The metrics of certificates.
#[derive(Debug)]
pub struct Metrics {
    certificate_reloads: Family<ResultLabels, Counter>,
    certificate_not_after: Family<CertificateLabels, Gauge>,
    webhooks_found: Gauge,
    bundle_in_sync: Gauge,
    bundle_cas: Gauge,
    bundle_foreign: Gauge,
    ca_rotations: Family<RotationLabels, Counter>,
    calls_failed: Family<FailedCallLabels, Counter>,
}

/// Whose end a certificate's end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateKind {
    /// The certificate that is shown.
    Leaf,
    /// The authority that signs it.
    Ca,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RotationLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailedCallLabels {
    call: &'static str,
    reason: &'static str,
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
    /// Creates the metrics at zero and adds them to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self {
            certificate_reloads: Family::default(),
            certificate_not_after: Family::default(),
            webhooks_found: Gauge::default(),
            bundle_in_sync: Gauge::default(),
            bundle_cas: Gauge::default(),
            bundle_foreign: Gauge::default(),
            ca_rotations: Family::default(),
            calls_failed: Family::default(),
        };
        registry.register(
            "certificate_reloads",
            "New certificates by whether they could be served",
            this.certificate_reloads.clone(),
        );
        registry.register(
            "certificate_not_after_seconds",
            "When the served certificate, and the authority that signs it, end, in seconds since 1970",
            this.certificate_not_after.clone(),
        );
        registry.register(
            "webhook_configuration_found",
            "Whether the last look found the webhook configuration, with a webhook",
            this.webhooks_found.clone(),
        );
        registry.register(
            "ca_bundle_in_sync",
            "Whether the last look found every caBundle of the webhook configuration as it should be",
            this.bundle_in_sync.clone(),
        );
        registry.register(
            "ca_bundle_authorities",
            "Authorities of this webhook's own that a caBundle has; more than a few tell of a Secret that is lost again and again",
            this.bundle_cas.clone(),
        );
        registry.register(
            "ca_bundle_foreign",
            "Certificates that a caBundle has beside those of this webhook: a holder of their keys can answer for it",
            this.bundle_foreign.clone(),
        );
        registry.register(
            "ca_rotations",
            "Authorities that this replica made, by why",
            this.ca_rotations.clone(),
        );
        registry.register(
            "kubernetes_calls_failed",
            "Calls to the API server for certificates that failed, by call and why",
            this.calls_failed.clone(),
        );
        // Exported at zero, so that the first failure is an increase.
        for result in [OK, FAILED] {
            let _ = this
                .certificate_reloads
                .get_or_create(&ResultLabels { result });
        }
        for reason in RotationReason::ALL.map(reason_label) {
            let _ = this.ca_rotations.get_or_create(&RotationLabels { reason });
        }
        this
    }

    /// Tells when a certificate ends.
    pub fn set_not_after(&self, kind: CertificateKind, not_after: SystemTime) {
        let kind = match kind {
            CertificateKind::Leaf => "leaf",
            CertificateKind::Ca => "ca",
        };
        let seconds = not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.certificate_not_after
            .get_or_create(&CertificateLabels { kind })
            .set(i64::try_from(seconds.as_secs()).unwrap_or(i64::MAX));
    }

    /// Tells whether there is a webhook configuration.
    pub fn set_webhooks_found(&self, found: bool) {
        self.webhooks_found.set(found.into());
    }

    /// Tells whether API servers are told to trust what they should.
    pub fn set_bundle_in_sync(&self, in_sync: bool) {
        self.bundle_in_sync.set(in_sync.into());
    }

    /// Tells how many authorities of our own API servers are told to trust.
    pub fn set_bundle_cas(&self, many: usize) {
        self.bundle_cas.set(i64::try_from(many).unwrap_or(i64::MAX));
    }

    /// Tells how many certificates of other issuers API servers are told to trust.
    pub fn set_bundle_foreign(&self, many: usize) {
        self.bundle_foreign
            .set(i64::try_from(many).unwrap_or(i64::MAX));
    }

    /// Counts an authority that was made.
    pub fn count_rotation(&self, reason: RotationReason) {
        let reason = reason_label(reason);
        self.ca_rotations
            .get_or_create(&RotationLabels { reason })
            .inc();
    }

    /// Counts a call to the API server that failed.
    pub fn count_failed_call(&self, failed: &StoreError) {
        let reason = match failed {
            StoreError::Conflict { .. } => "conflict",
            StoreError::Timeout { .. } => "late",
            StoreError::Other { .. } => "other",
        };
        let call = failed.call().name();
        let failed = FailedCallLabels { call, reason };
        self.calls_failed.get_or_create(&failed).inc();
    }

    /// Counts a new certificate, which could be served or not.
    pub fn count_certificate_reload(&self, served: bool) {
        let result = if served { OK } else { FAILED };
        self.certificate_reloads
            .get_or_create(&ResultLabels { result })
            .inc();
    }
}

/// The label of a reason to make an authority.
fn reason_label(reason: RotationReason) -> &'static str {
    match reason {
        RotationReason::Missing => "missing",
        RotationReason::Due => "due",
        RotationReason::Requested => "requested",
        RotationReason::Outlives => "outlives_lifetime",
    }
}
