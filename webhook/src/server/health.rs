//! `/healthz` and `/readyz`, for the kubelet's probes.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::watch;
use tokio::time::Instant;

use super::phase::ShutdownPhase;
use crate::certificates::resolver::CertResolver;

/// A replica whose TLS port has not been able to accept connections for this long is not ready: its thread is
/// stalled, or it has no file descriptors left. The connection limit is no reason: any client can reach it, and new
/// connections are still accepted.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A replica whose admission thread has not run its tasks for this long is restarted: a bug blocks it. No request
/// takes a hundredth of that, and the tasks take turns however many requests there are.
const LIVENESS_TIMEOUT: Duration = Duration::from_secs(30);

/// The inputs of both probes.
#[derive(Clone)]
pub(super) struct HealthState {
    /// The server's phase.
    pub(super) phase: watch::Receiver<ShutdownPhase>,
    /// Knows whether API servers trust the certificate.
    pub(super) resolver: Arc<CertResolver>,
    /// When the TLS port was last able to accept a connection.
    pub(super) last_accepting: watch::Receiver<Instant>,
    /// When the admission thread last ran its tasks.
    pub(super) last_ran: watch::Receiver<Instant>,
}

/// The router of the health port.
pub(super) fn router(state: HealthState) -> Router {
    let liveness = state.clone();
    Router::new()
        .route(
            "/healthz",
            get(move || future::ready(respond(liveness.not_alive_reason()))),
        )
        .route(
            "/readyz",
            get(move || future::ready(respond(state.not_ready_reason()))),
        )
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
        } else if self.last_accepting.borrow().elapsed() > STALL_TIMEOUT {
            Some("the TLS port does not accept connections\n")
        } else {
            None
        }
    }

    fn not_alive_reason(&self) -> Option<&'static str> {
        let is_stuck = self.last_ran.borrow().elapsed() > LIVENESS_TIMEOUT;
        is_stuck.then_some("the admission thread is stuck\n")
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_port_fails_readiness_and_stuck_thread_liveness() {
        let (accepting, last_accepting) = watch::channel(Instant::now());
        let (running, last_ran) = watch::channel(Instant::now());
        let resolver = CertResolver::default();
        resolver.set_ready();
        let health = HealthState {
            phase: watch::Sender::new(ShutdownPhase::Serving).subscribe(),
            resolver: Arc::new(resolver),
            last_accepting,
            last_ran,
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
        running.send_replace(Instant::now());
        assert_eq!(ready_and_alive(), (false, true));
        accepting.send_replace(Instant::now());
        assert_eq!(ready_and_alive(), (true, true));
    }
}
