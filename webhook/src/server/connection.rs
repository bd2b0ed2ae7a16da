//! Serves HTTP/1.1 on one connection, with timeouts.

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

/// Size of a connection's read buffer in bytes, and so of a request's head. Bodies are read through it too. The head
/// of an API server's request has about 300 bytes; hyper's minimum is 8 KiB.
const BUFFER_SIZE: usize = 16 << 10;

/// Extension of a response that answers an AdmissionReview.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReviewResponseTag;

/// Whether a connection serves more than one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepAlive {
    /// It serves one request, and the response closes it: a probe or a scrape. On shutdown, idle connections are
    /// closed; clients retry a request that is lost by that.
    Disabled,
    /// It serves requests until [`Limits::max_connection_age`]. On shutdown, idle connections stay open until the
    /// client closes them or [`Limits::head_timeout`] ends, since clients do not retry a request that is lost.
    Enabled,
}

/// Serves the connections of one port.
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
    /// Creates a handler that serves `router`.
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

    /// Serves requests until the client closes the connection, a timeout expires or the server shuts down, and
    /// records the connection's progress in `slot`.
    ///
    /// A connection that is old, or whose server is shutting down, is closed by a response with
    /// `Connection: close`, and never while it is idle: a request might be on its way.
    pub(super) async fn serve(self, io: impl AsyncRead + AsyncWrite + Unpin, slot: ConnectionSlot) {
        let Self {
            router,
            head_timeout,
            keep_alive,
            limits,
            mut phase,
            connection_count,
        } = self;
        let retire_at = match keep_alive {
            KeepAlive::Disabled => Instant::now(),
            KeepAlive::Enabled => {
                Instant::now()
                    + max_age(
                        limits.max_connection_age,
                        connection_count.fetch_add(1, Ordering::Relaxed),
                    )
            }
        };
        let router = TowerToHyperService::new(router);
        let (current_phase, slot) = (&phase.clone(), &slot);
        let service = service_fn(|mut request: Request<Incoming>| {
            slot.advance(ConnectionStage::Unanswered);
            request.extensions_mut().insert(ConnectInfo(slot.source()));
            let in_flight = slot.in_flight();
            let response = router.call(request);
            async move {
                // The response is written in the same poll in which this future completes.
                let _in_flight = in_flight;
                let mut response = response.await?;
                if response.extensions().get::<ReviewResponseTag>().is_some() {
                    slot.advance(ConnectionStage::Answered);
                }
                let shutting_down = *current_phase.borrow() > ShutdownPhase::Serving;
                if shutting_down || Instant::now() >= retire_at {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(head_timeout)
                .max_buf_size(BUFFER_SIZE)
                .serve_connection(TokioIo::new(io), service)
        );
        let closing = async {
            match keep_alive {
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
        // A last resort: no connection is known to outlast all the other timeouts.
        let cut_at = retire_at + head_timeout + limits.body_timeout + limits.shutdown_grace;
        match timeout_at(cut_at, served).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "Connection failed"),
            Err(_) => debug!("Closed connection: maximum age exceeded"),
        }
    }
}

/// The maximum age of the `n`th connection: between four fifths of `age` and all of it, spread evenly by the golden
/// ratio, so that connections opened together are not closed together.
fn max_age(age: Duration, n: u32) -> Duration {
    const GOLDEN: u32 = 0x9E37_79B9;
    let spread = f64::from(n.wrapping_mul(GOLDEN)) / f64::from(u32::MAX);
    age.mul_f64(1.0 - spread / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_ages_spread_over_the_last_fifth() {
        let max = Duration::from_secs(300);
        let mut ages: Vec<_> = (0..100).map(|n| max_age(max, n)).collect();
        ages.sort();
        assert!(ages[0] >= max * 4 / 5 && ages[99] <= max, "{ages:?}");
        let widest_gap = ages.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest_gap < Some(Duration::from_secs(2)), "{widest_gap:?}");
    }
}
