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

use super::phase::Phase;
use crate::certificates::serving::Serving;

/// A replica whose TLS port has accepted nothing for so long, though it could have been asked to, is
/// not ready: its thread is held up, or it has no file descriptors. That its places are all taken is
/// no reason: any client can see to that, and each newcomer gets one.
const STALLED: Duration = Duration::from_secs(5);

/// A replica whose admission thread has not run its tasks for so long is to be restarted: a bug holds it.
/// No request takes a hundredth of it, and however many come, the tasks take turns.
const STUCK: Duration = Duration::from_secs(30);

/// What decides whether the replica is ready, and whether it is alive.
#[derive(Clone)]
pub(super) struct Readiness {
    /// How far the server is.
    pub(super) phase: watch::Receiver<Phase>,
    /// Whether clients trust its certificate.
    pub(super) serving: Arc<Serving>,
    /// When the TLS port last was able to accept a connection.
    pub(super) accepting: watch::Receiver<Instant>,
    /// When the admission thread last ran its tasks.
    pub(super) running: watch::Receiver<Instant>,
}

/// The router of the port for probes.
pub(super) fn router(readiness: Readiness) -> Router {
    let alive = readiness.clone();
    Router::new()
        .route(
            "/healthz",
            get(move || future::ready(answer(alive.why_dead()))),
        )
        .route(
            "/readyz",
            get(move || future::ready(answer(readiness.why_not()))),
        )
}

fn answer(why_not: Option<&'static str>) -> impl IntoResponse {
    match why_not {
        None => (StatusCode::OK, "ok\n"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

// === impl Readiness ===

impl Readiness {
    fn why_not(&self) -> Option<&'static str> {
        if *self.phase.borrow() > Phase::Serving {
            Some("shutting down\n")
        } else if !self.serving.is_ready() {
            Some("waiting for a certificate that is trusted\n")
        } else if self.accepting.borrow().elapsed() > STALLED {
            Some("the TLS port accepts no connections\n")
        } else {
            None
        }
    }

    fn why_dead(&self) -> Option<&'static str> {
        let is_stuck = self.running.borrow().elapsed() > STUCK;
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
        let serving = Serving::waiting();
        serving.announce();
        let health = Readiness {
            phase: watch::Sender::new(Phase::Serving).subscribe(),
            serving: Arc::new(serving),
            accepting,
            running,
        };
        let is_well = || (health.why_not().is_none(), health.why_dead().is_none());
        advance(STALLED).await;
        assert_eq!(is_well(), (true, true));
        advance(Duration::from_secs(1)).await;
        assert_eq!(is_well(), (false, true));
        advance(STUCK).await;
        assert_eq!(is_well(), (false, false));
        runs.send_replace(Instant::now());
        assert_eq!(is_well(), (false, true));
        accepts.send_replace(Instant::now());
        assert_eq!(is_well(), (true, true));
    }
}
