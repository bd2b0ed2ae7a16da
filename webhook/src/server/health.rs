//! The plain HTTP port: `/healthz`, `/readyz` and `/metrics`.

use std::future;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::watch;

use super::phase::Phase;
use crate::certificates::serving::Serving;
use crate::report::{METRICS_TYPE, Report};

/// The router of the plain port.
pub(super) fn router(
    phase: watch::Receiver<Phase>,
    serving: Arc<Serving>,
    report: Arc<Report>,
) -> Router {
    Router::new()
        .route("/healthz", get("ok\n"))
        .route(
            "/readyz",
            get(move || future::ready(ready(*phase.borrow(), &serving))),
        )
        .route("/metrics", get(move || future::ready(metrics(&report))))
}

fn ready(phase: Phase, serving: &Serving) -> impl IntoResponse + use<> {
    match phase {
        Phase::Serving if serving.is_ready() => (StatusCode::OK, "ok\n"),
        Phase::Serving => (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for a certificate that is trusted\n",
        ),
        Phase::Leaving | Phase::Ending => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
    }
}

fn metrics(report: &Report) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, METRICS_TYPE)], report.text())
}
