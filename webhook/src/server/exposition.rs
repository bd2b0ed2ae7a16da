//! `/metrics`, for Prometheus.

use std::future;
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;

use crate::metrics::{MEDIA_TYPE, encode};

/// The router of the metrics port.
pub(super) fn router(registry: Arc<Registry>) -> Router {
    Router::new().route("/metrics", get(move || future::ready(respond(&registry))))
}

fn respond(registry: &Registry) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, MEDIA_TYPE)], encode(registry))
}
