//! Metrics of certificates: the served leaf and its CA, the caBundles, rotations, calls to the API server.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use strum::{IntoStaticStr, VariantArray, VariantNames};

use super::cluster::{StoreCall, StoreError};
use super::rotation::RotationReason;
use crate::metrics::{Labels, RESULTS, Registry, export_zeros, metrics, result};

metrics! {
    /// The metrics of certificates.
    #[derive(Debug, Default)]
    pub struct Metrics {
        reloads: Family<Labels<1>, Counter>, "certificate_reloads",
            "Attempts to serve a new certificate, by result";
        not_after: Family<Labels<1>, Gauge>, "certificate_expiration_timestamp_seconds",
            "Expiry of the served certificate, and of the CA that signed it, in seconds since 1970";
        /// 1 if there is a webhook configuration with a webhook.
        pub(super) webhooks_found: Gauge, "webhook_configuration_found",
            "1 if the webhook configuration had a webhook at the last reconcile";
        /// 1 if every caBundle is as desired.
        pub(super) bundle_in_sync: Gauge, "ca_bundle_in_sync",
            "1 if every caBundle matched the desired CAs at the last reconcile";
        bundle_cas: Gauge, "ca_bundle_own_certificates",
            "CAs of this webhook in the caBundles; more than a few mean that the CA Secret is lost again and again";
        bundle_foreign: Gauge, "ca_bundle_foreign_certificates",
            "Certificates of other issuers in the caBundles; the holder of the key of one can impersonate the webhook";
        rotations: Family<Labels<1>, Counter>, "ca_rotations",
            "CAs that this replica created, by reason";
        failed_calls: Family<Labels<2>, Counter>, "kubernetes_calls_failed",
            "Failed calls to the API server for certificates, by call and reason";
    }
}

/// The value of the label `certificate` of an expiry.
#[derive(Debug, Clone, Copy, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
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
        let this = Self::registered(registry);
        export_zeros(&this.reloads, "result", &RESULTS);
        export_zeros(&this.rotations, "reason", RotationReason::VARIANTS);
        for call in StoreCall::VARIANTS {
            for reason in StoreError::VARIANTS {
                let labels = [("call", call.into()), ("reason", *reason)];
                let _ = this.failed_calls.get_or_create(&labels);
            }
        }
        this
    }

    /// Counts an attempt to serve a new certificate.
    pub(super) fn count_reload(&self, is_served: bool) {
        self.reloads.get_or_create(&result(is_served)).inc();
    }

    /// Sets when a certificate expires.
    pub(crate) fn set_not_after(&self, kind: CertificateKind, not_after: SystemTime) {
        let seconds = not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.not_after
            .get_or_create(&[("certificate", kind.into())])
            .set(i64::try_from(seconds.as_secs()).unwrap_or(i64::MAX));
    }

    /// Sets how many certificates the caBundles have: CAs of ours, and others.
    pub(super) fn set_bundle_counts(&self, ours: usize, foreign: usize) {
        for (gauge, count) in [(&self.bundle_cas, ours), (&self.bundle_foreign, foreign)] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts a new CA.
    pub(super) fn count_rotation(&self, reason: RotationReason) {
        self.rotations
            .get_or_create(&[("reason", reason.into())])
            .inc();
    }

    /// Counts a failed call to the API server.
    pub(super) fn count_failed_call(&self, error: &StoreError) {
        let (StoreError::Conflict { call }
        | StoreError::Timeout { call }
        | StoreError::Other { call, .. }) = error;
        let labels = [("call", call.into()), ("reason", error.into())];
        self.failed_calls.get_or_create(&labels).inc();
    }
}
