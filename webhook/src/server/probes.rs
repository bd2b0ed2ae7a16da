//! `/healthz` and `/readyz`, for the kubelet's probes, and `/metrics`, for Prometheus.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::watch;

use super::transport::{Liveness, ShutdownPhase};
use crate::certificates::resolver::CertResolver;
use crate::metrics::{Registry, encode_all};

/// A replica whose TLS port has not been able to accept connections for this long is not ready: its thread is
/// stalled, or it has no file descriptors left. The connection limit is no reason: any client can reach it, and new
/// connections are still accepted.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A replica whose admission thread has not run its tasks for this long is restarted: a bug blocks it. No request
/// takes a hundredth of that, and the tasks take turns however many requests there are.
const LIVENESS_TIMEOUT: Duration = Duration::from_secs(30);

/// The media type of OpenMetrics text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The inputs of both probes.
#[derive(Clone)]
pub(super) struct HealthState {
    /// The server's phase.
    pub(super) phase: watch::Receiver<ShutdownPhase>,
    /// Knows whether API servers trust the certificate.
    pub(super) resolver: Arc<CertResolver>,
    /// The TLS port's, on the admission thread.
    pub(super) liveness: watch::Receiver<Liveness>,
}

/// The router of the health port.
pub(super) fn health_router(state: &HealthState) -> Router {
    let probe = |failure: fn(&HealthState) -> Option<&'static str>| {
        let state = state.clone();
        get(move || future::ready(respond(failure(&state))))
    };
    Router::new()
        .route("/healthz", probe(HealthState::not_alive_reason))
        .route("/readyz", probe(HealthState::not_ready_reason))
}

/// The router of the metrics port.
pub(super) fn metrics_router(registry: Registry) -> Router {
    let registry = Arc::new(registry);
    let expose = move || future::ready(([(CONTENT_TYPE, OPEN_METRICS)], encode_all(&registry)));
    Router::new().route("/metrics", get(expose))
}

fn respond(failure: Option<&'static str>) -> impl IntoResponse {
    match failure {
        None => (StatusCode::OK, "ok\n"),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}

// === impl HealthState ===

impl HealthState {
    fn not_ready_reason(&self) -> Option<&'static str> {
        if *self.phase.borrow() > ShutdownPhase::Serving {
            Some("shutting down\n")
        } else if !self.resolver.is_ready() {
            Some("waiting for a certificate that API servers trust\n")
        } else if self.liveness.borrow().accepting.elapsed() > STALL_TIMEOUT {
            Some("the TLS port does not accept connections\n")
        } else {
            None
        }
    }

    fn not_alive_reason(&self) -> Option<&'static str> {
        let is_stuck = self.liveness.borrow().ran.elapsed() > LIVENESS_TIMEOUT;
        is_stuck.then_some("the admission thread is stuck\n")
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_port_fails_readiness_and_stuck_thread_liveness() {
        let (port, liveness) = watch::channel(Liveness::now());
        let resolver = CertResolver::default();
        resolver.set_ready();
        let health = HealthState {
            phase: watch::Sender::new(ShutdownPhase::Serving).subscribe(),
            resolver: Arc::new(resolver),
            liveness,
        };
        let ready_and_alive = || {
            (
                health.not_ready_reason().is_none(),
                health.not_alive_reason().is_none(),
            )
        };
        advance(STALL_TIMEOUT).await;
        assert_eq!(ready_and_alive(), (true, true));
        advance(Duration::from_secs(1)).await;
        assert_eq!(ready_and_alive(), (false, true));
        advance(LIVENESS_TIMEOUT).await;
        assert_eq!(ready_and_alive(), (false, false));
        port.send_modify(|liveness| liveness.ran = Instant::now());
        assert_eq!(ready_and_alive(), (false, true));
        port.send_modify(|liveness| liveness.accepting = Instant::now());
        assert_eq!(ready_and_alive(), (true, true));
    }
}
