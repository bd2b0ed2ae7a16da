//! `/metrics`, for Prometheus.

use std::future;
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::metrics::{METRICS_MEDIA_TYPE, Metrics};

/// The router of the port for metrics.
pub(super) fn router(metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(move || future::ready(exposition(&metrics))))
}

fn exposition(metrics: &Metrics) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, METRICS_MEDIA_TYPE)], metrics.text())
}
