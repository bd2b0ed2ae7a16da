//! `/metrics`, for Prometheus.

use std::future;
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::report::{METRICS_TYPE, Report};

/// The router of the port for metrics.
pub(super) fn router(report: Arc<Report>) -> Router {
    Router::new().route("/metrics", get(move || future::ready(metrics(&report))))
}

fn metrics(report: &Report) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, METRICS_TYPE)], report.text())
}
