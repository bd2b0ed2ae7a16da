//! Metrics of the drainer API: requests, and what they ask of the API server.

use axum::http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::api_server::TooLarge;
use crate::metrics::{Registry, ResultLabels};

/// The metrics of the drainer API. Clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    token_reviews: Family<ResultLabels, Counter>,
    endpoint_lists: Family<ResultLabels, Counter>,
    /// Failed TLS handshakes.
    pub failed_handshakes: Counter,
}

/// A path of the drainer API.
#[derive(Debug, Clone, Copy)]
pub(super) enum DrainerApiPath {
    Replacement,
    Report,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: &'static str,
    status: u16,
}

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics and adds them to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self {
            requests: Family::default(),
            token_reviews: Family::default(),
            endpoint_lists: Family::default(),
            failed_handshakes: Counter::default(),
        };
        registry.register(
            "drainer_api_requests",
            "Requests of drainers, by path and status",
            this.requests.clone(),
        );
        registry.register(
            "drainer_api_token_reviews",
            "TokenReviews that requests of drainers caused, by result",
            this.token_reviews.clone(),
        );
        registry.register(
            "drainer_api_endpoint_lists",
            "Lists of EndpointSlices that requests of drainers caused, by result",
            this.endpoint_lists.clone(),
        );
        registry.register(
            "drainer_api_tls_handshakes_failed",
            "Connections of drainers whose TLS handshake failed",
            this.failed_handshakes.clone(),
        );
        // Exported at zero, so that the first failure is an increase.
        for labels in &ResultLabels::ALL {
            drop(this.token_reviews.get_or_create(labels));
            drop(this.endpoint_lists.get_or_create(labels));
        }
        drop(this.endpoint_lists.get_or_create(&ResultLabels::TOO_LARGE));
        this
    }

    pub(super) fn count_request(&self, path: DrainerApiPath, status: StatusCode) {
        let path = match path {
            DrainerApiPath::Replacement => "replacement",
            DrainerApiPath::Report => "report",
        };
        let status = status.as_u16();
        let labels = RequestLabels { path, status };
        self.requests.get_or_create(&labels).inc();
    }

    pub(super) fn count_token_review(&self, is_ok: bool) {
        let labels = ResultLabels::new(is_ok);
        self.token_reviews.get_or_create(&labels).inc();
    }

    /// Counts a list. One of too large a namespace is counted apart: its author can cause any number of them.
    pub(super) fn count_endpoint_list<T>(&self, result: &anyhow::Result<T>) {
        let labels = match result {
            Err(error) if error.is::<TooLarge>() => ResultLabels::TOO_LARGE,
            result => ResultLabels::new(result.is_ok()),
        };
        self.endpoint_lists.get_or_create(&labels).inc();
    }
}
