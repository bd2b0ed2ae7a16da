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

/// What decides whether the replica is ready.
#[derive(Clone)]
pub(super) struct Readiness {
    /// How far the server is.
    pub(super) phase: watch::Receiver<Phase>,
    /// Whether clients trust its certificate.
    pub(super) serving: Arc<Serving>,
    /// When the TLS port last was able to accept a connection.
    pub(super) accepting: watch::Receiver<Instant>,
}

/// The router of the port for probes.
pub(super) fn router(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get("ok\n"))
        .route("/readyz", get(move || future::ready(readiness.answer())))
}

// === impl Readiness ===

impl Readiness {
    fn answer(&self) -> impl IntoResponse + use<> {
        match self.why_not() {
            None => (StatusCode::OK, "ok\n"),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }

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
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stalled_tls_port_is_not_ready() {
        let (accepts, accepting) = watch::channel(Instant::now());
        let serving = Serving::waiting();
        serving.announce();
        let readiness = Readiness {
            phase: watch::Sender::new(Phase::Serving).subscribe(),
            serving: Arc::new(serving),
            accepting,
        };
        advance(STALLED).await;
        assert_eq!(readiness.why_not(), None);
        advance(Duration::from_secs(1)).await;
        assert!(readiness.why_not().is_some());
        accepts.send_replace(Instant::now());
        assert_eq!(readiness.why_not(), None);
    }
}
