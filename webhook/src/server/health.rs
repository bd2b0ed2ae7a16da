//! `/healthz` and `/readyz`, for the kubelet.

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

/// A replica whose TLS port has accepted nothing for so long, though it could have been asked to, is
/// not ready: its thread is held up, or it has no file descriptors. That its places are all taken is
/// no reason: any client can see to that, and each newcomer gets one.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A replica whose admission thread has not run its tasks for so long is to be restarted: a bug holds it.
/// No request takes a hundredth of it, and however many come, the tasks take turns.
const LIVENESS_TIMEOUT: Duration = Duration::from_secs(30);

/// What decides whether the replica is ready, and whether it is alive.
#[derive(Clone)]
pub(super) struct HealthState {
    /// How far the server is.
    pub(super) phase: watch::Receiver<ShutdownPhase>,
    /// Whether clients trust its certificate.
    pub(super) resolver: Arc<CertResolver>,
    /// When the TLS port last was able to accept a connection.
    pub(super) last_accepting: watch::Receiver<Instant>,
    /// When the admission thread last ran its tasks.
    pub(super) last_ran: watch::Receiver<Instant>,
}

/// The router of the port for probes.
pub(super) fn router(readiness: HealthState) -> Router {
    let alive = readiness.clone();
    Router::new()
        .route(
            "/healthz",
            get(move || future::ready(respond(alive.not_alive_reason()))),
        )
        .route(
            "/readyz",
            get(move || future::ready(respond(readiness.not_ready_reason()))),
        )
}

fn respond(why_not: Option<&'static str>) -> impl IntoResponse {
    match why_not {
        None => (StatusCode::OK, "ok\n"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

// === impl HealthState ===

impl HealthState {
    fn not_ready_reason(&self) -> Option<&'static str> {
        if *self.phase.borrow() > ShutdownPhase::Serving {
            Some("shutting down\n")
        } else if !self.resolver.is_ready() {
            Some("waiting for a certificate that is trusted\n")
        } else if self.last_accepting.borrow().elapsed() > STALL_TIMEOUT {
            Some("the TLS port accepts no connections\n")
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
    async fn a_stalled_tls_port_is_not_ready_and_a_stuck_thread_not_alive() {
        let (accepts, accepting) = watch::channel(Instant::now());
        let (runs, running) = watch::channel(Instant::now());
        let serving = CertResolver::empty();
        serving.set_ready();
        let health = HealthState {
            phase: watch::Sender::new(ShutdownPhase::Serving).subscribe(),
            resolver: Arc::new(serving),
            last_accepting: accepting,
            last_ran: running,
        };
        let is_well = || {
            (
                health.not_ready_reason().is_none(),
                health.not_alive_reason().is_none(),
            )
        };
        advance(STALL_TIMEOUT).await;
        assert_eq!(is_well(), (true, true));
        advance(Duration::from_secs(1)).await;
        assert_eq!(is_well(), (false, true));
        advance(LIVENESS_TIMEOUT).await;
        assert_eq!(is_well(), (false, false));
        runs.send_replace(Instant::now());
        assert_eq!(is_well(), (false, true));
        accepts.send_replace(Instant::now());
        assert_eq!(is_well(), (true, true));
    }
}
