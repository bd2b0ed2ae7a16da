//! Serves HTTP/1.1 on one connection, with its deadlines.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::connection_limiter::ConnectionSlot;
use super::connection_slots::ConnectionStage;
use super::limits::Limits;
use super::phase::{ShutdownPhase, wait_for_closing};

/// What is buffered of a connection, and so the size of a request's head. Bodies are read through
/// it. An API server's head has some 300 bytes; hyper takes no less than 8 KiB.
const BUFFER_SIZE: usize = 16 << 10;

/// An extension of a response: it answers an AdmissionReview.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReviewResponseMarker;

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepAlive {
    /// One request, whose response closes it: a probe or a scrape. Idle ones are closed when the
    /// server ends; what a client loses on one it sends again.
    Disabled,
    /// As many requests as come until it is old. Idle ones are left to the client when the server
    /// ends, and go when it closes them, or their head's time has passed: what it loses on one it does
    /// not send again.
    Enabled,
}

/// What all connections of a port have in common.
#[derive(Clone)]
pub(super) struct ConnectionHandler {
    router: Router,
    head_timeout: Duration,
    keep_alive: KeepAlive,
    limits: Arc<Limits>,
    phase: watch::Receiver<ShutdownPhase>,
    connection_count: Arc<AtomicU32>,
}

// === impl ConnectionHandler ===

impl ConnectionHandler {
    /// The port that serves `router`, and gives the head of a request so long.
    pub(super) fn new(
        router: Router,
        head_timeout: Duration,
        keep_alive: KeepAlive,
        limits: &Arc<Limits>,
        phase: &watch::Receiver<ShutdownPhase>,
    ) -> Self {
        Self {
            router,
            head_timeout,
            keep_alive,
            limits: Arc::clone(limits),
            phase: phase.clone(),
            connection_count: Arc::default(),
        }
    }

    /// Serves requests until the client goes, a deadline passes or the server ends. Its `place` hears
    /// how far it comes.
    ///
    /// An old connection, or one of a server that leaves, is closed by a response that says so and
    /// never while it is idle: the client might be sending.
    pub(super) async fn serve(
        self,
        io: impl AsyncRead + AsyncWrite + Unpin,
        place: ConnectionSlot,
    ) {
        let Self {
            router,
            head_timeout: head,
            keep_alive: used,
            limits,
            mut phase,
            connection_count: made,
        } = self;
        let retire_at = match used {
            KeepAlive::Disabled => Instant::now(),
            KeepAlive::Enabled => {
                Instant::now()
                    + max_age(
                        limits.max_connection_age,
                        made.fetch_add(1, Ordering::Relaxed),
                    )
            }
        };
        let router = TowerToHyperService::new(router);
        let (announced, place) = (&phase.clone(), &place);
        let service = service_fn(|mut request: Request<Incoming>| {
            place.advance(ConnectionStage::Unanswered);
            request.extensions_mut().insert(ConnectInfo(place.source()));
            let in_flight = place.in_flight();
            let response = router.call(request);
            async move {
                // The answer is written in the same poll in which this ends.
                let _in_flight = in_flight;
                let mut response = response.await?;
                if response
                    .extensions()
                    .get::<ReviewResponseMarker>()
                    .is_some()
                {
                    place.advance(ConnectionStage::Answered);
                }
                let leaving = *announced.borrow() > ShutdownPhase::Serving;
                if leaving || Instant::now() >= retire_at {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(head)
                .max_buf_size(BUFFER_SIZE)
                .serve_connection(TokioIo::new(io), service)
        );
        let closing = async {
            match used {
                KeepAlive::Disabled => wait_for_closing(&mut phase).await,
                KeepAlive::Enabled => pending().await,
            }
        };
        let served = async {
            tokio::select! {
                served = connection.as_mut() => served,
                () = closing => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        // The last resort. Nothing is known that outlasts all the other deadlines.
        let cut_at = retire_at + head + limits.body_timeout + limits.shutdown_grace;
        match timeout_at(cut_at, served).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "Connection ended"),
            Err(_) => debug!("Connection cut"),
        }
    }
}

/// How old the `n`th connection may grow: between four fifths of `age` and the whole, spread evenly by
/// the golden ratio, so that connections made together do not end together.
fn max_age(age: Duration, n: u32) -> Duration {
    const GOLDEN: u32 = 0x9E37_79B9;
    let spread = f64::from(n.wrapping_mul(GOLDEN)) / f64::from(u32::MAX);
    age.mul_f64(1.0 - spread / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_end_spread_over_the_last_fifth() {
        let full = Duration::from_secs(300);
        let mut ages: Vec<_> = (0..100).map(|n| max_age(full, n)).collect();
        ages.sort();
        assert!(ages[0] >= full * 4 / 5 && ages[99] <= full, "{ages:?}");
        let widest = ages.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest < Some(Duration::from_secs(2)), "{widest:?}");
    }
}
