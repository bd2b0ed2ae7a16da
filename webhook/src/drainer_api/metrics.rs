//! Metrics of the drainer API.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::api_server::TooLarge;
use crate::metrics::{Labels, RESULTS, Registry, export_zeros, metrics, result};

metrics! {
    /// The metrics of the drainer API: requests, and the calls to the API server that they cause. Clones count together.
    #[derive(Debug, Clone)]
    pub struct Metrics {
        requests: Family<RequestLabels, Counter>, "api_requests",
            "Requests of drainers, by path and status";
        token_reviews: Family<Labels<1>, Counter>, "api_token_reviews",
            "TokenReviews that requests of drainers caused, by result";
        endpoint_lists: Family<Labels<1>, Counter>, "api_endpoint_lists",
            "Lists of EndpointSlices that requests of drainers caused, by result";
        /// Failed TLS handshakes.
        pub failed_handshakes: Counter, "api_tls_handshakes_failed",
            "Connections of drainers whose TLS handshake failed";
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: &'static str,
    status: u16,
}

/// The result of a list of more than the webhook reads: any author of EndpointSlices can cause any number of them.
const TOO_LARGE: &str = "too_large";

// === impl Metrics ===

impl Metrics {
    /// Creates the metrics and adds them to `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::registered(registry);
        export_zeros(&this.token_reviews, "result", &RESULTS);
        export_zeros(&this.endpoint_lists, "result", &RESULTS);
        export_zeros(&this.endpoint_lists, "result", &[TOO_LARGE]);
        this
    }

    /// Counts a request and the status of its response.
    pub(super) fn count_request(&self, path: &'static str, status: u16) {
        let labels = RequestLabels { path, status };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a TokenReview.
    pub(super) fn count_token_review(&self, is_ok: bool) {
        self.token_reviews.get_or_create(&result(is_ok)).inc();
    }

    /// Counts a list of EndpointSlices.
    pub(super) fn count_endpoint_list<T>(&self, list: &anyhow::Result<T>) {
        let labels = match list {
            Err(error) if error.is::<TooLarge>() => [("result", TOO_LARGE)],
            list => result(list.is_ok()),
        };
        self.endpoint_lists.get_or_create(&labels).inc();
    }
}
