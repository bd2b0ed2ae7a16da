//! Metrics of certificates: the served leaf and its CA, the caBundles, rotations, calls to the API server.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::cluster::{StoreCall, StoreError};
use super::rotation::RotationReason;
use crate::metrics::{Registry, ResultLabels};

/// Names and values of labels. The values come from fixed enums, so cardinality is bounded.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Values of the label `reason` of a failed call.
const CONFLICT: &str = "conflict";
const LATE: &str = "late";
const OTHER: &str = "other";

/// The metrics of certificates.
#[derive(Debug, Default)]
pub struct Metrics {
    reloads: Family<ResultLabels, Counter>,
    not_after: Family<Labels<1>, Gauge>,
    webhooks_found: Gauge,
    bundle_in_sync: Gauge,
    bundle_cas: Gauge,
    bundle_foreign: Gauge,
    rotations: Family<Labels<1>, Counter>,
    failed_calls: Family<Labels<2>, Counter>,
}

/// The value of the label `kind` of a certificate's expiry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CertificateKind {
    /// The served leaf.
    Leaf,
    /// The CA that signed it.
    Ca,
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics at zero and adds them to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "certificate_reloads",
            "Attempts to serve a new certificate, by result",
            this.reloads.clone(),
        );
        registry.register(
            "certificate_expiration_timestamp_seconds",
            "Expiry of the served certificate, and of the CA that signed it, in seconds since 1970",
            this.not_after.clone(),
        );
        registry.register(
            "webhook_configuration_found",
            "1 if the webhook configuration had a webhook at the last reconcile",
            this.webhooks_found.clone(),
        );
        registry.register(
            "ca_bundle_in_sync",
            "1 if every caBundle matched the desired CAs at the last reconcile",
            this.bundle_in_sync.clone(),
        );
        registry.register(
            "ca_bundle_authorities",
            "CAs of this webhook in the caBundles; more than a few mean that the CA Secret is lost again and again",
            this.bundle_cas.clone(),
        );
        registry.register(
            "ca_bundle_foreign",
            "Certificates of other issuers in the caBundles; the holder of the key of one can impersonate the webhook",
            this.bundle_foreign.clone(),
        );
        registry.register(
            "ca_rotations",
            "CAs that this replica created, by reason",
            this.rotations.clone(),
        );
        registry.register(
            "kubernetes_calls_failed",
            "Failed calls to the API server for certificates, by call and reason",
            this.failed_calls.clone(),
        );
        // Exported at zero, so that the first one is an increase.
        for labels in &ResultLabels::ALL {
            let _ = this.reloads.get_or_create(labels);
        }
        for reason in RotationReason::ALL {
            let _ = this.rotations.get_or_create(&[("reason", reason.name())]);
        }
        for call in StoreCall::ALL {
            for reason in [CONFLICT, LATE, OTHER] {
                let labels = [("call", call.name()), ("reason", reason)];
                let _ = this.failed_calls.get_or_create(&labels);
            }
        }
        this
    }

    /// Counts an attempt to serve a new certificate.
    pub(super) fn count_reload(&self, is_served: bool) {
        self.reloads
            .get_or_create(&ResultLabels::new(is_served))
            .inc();
    }

    /// Sets when a certificate expires.
    pub(crate) fn set_not_after(&self, kind: CertificateKind, not_after: SystemTime) {
        let kind = match kind {
            CertificateKind::Leaf => "leaf",
            CertificateKind::Ca => "ca",
        };
        let seconds = not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.not_after
            .get_or_create(&[("kind", kind)])
            .set(i64::try_from(seconds.as_secs()).unwrap_or(i64::MAX));
    }

    /// Sets whether there is a webhook configuration with a webhook.
    pub(super) fn set_webhooks_found(&self, is_found: bool) {
        self.webhooks_found.set(is_found.into());
    }

    /// Sets whether every caBundle is as desired.
    pub(super) fn set_bundle_in_sync(&self, is_in_sync: bool) {
        self.bundle_in_sync.set(is_in_sync.into());
    }

    /// Sets how many CAs of ours the caBundles have.
    pub(super) fn set_bundle_cas(&self, count: usize) {
        self.bundle_cas.set(gauge_value(count));
    }

    /// Sets how many CAs of others the caBundles have.
    pub(super) fn set_bundle_foreign(&self, count: usize) {
        self.bundle_foreign.set(gauge_value(count));
    }

    /// Counts a new CA.
    pub(super) fn count_rotation(&self, reason: RotationReason) {
        let labels = [("reason", reason.name())];
        self.rotations.get_or_create(&labels).inc();
    }

    /// Counts a failed call to the API server.
    pub(super) fn count_failed_call(&self, error: &StoreError) {
        let (call, reason) = match error {
            StoreError::Conflict { call } => (call, CONFLICT),
            StoreError::Timeout { call } => (call, LATE),
            StoreError::Other { call, .. } => (call, OTHER),
        };
        let labels = [("call", call.name()), ("reason", reason)];
        self.failed_calls.get_or_create(&labels).inc();
    }
}

fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
