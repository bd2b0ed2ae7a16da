//! Serves HTTP/1.1 on one connection, with timeouts.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
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
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::connection_slots::{ConnectionSlot, SlotId, SlotState};
use crate::server::limits::Limits;

/// The server's phase, in the order of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum ShutdownPhase {
    /// Ready, before any shutdown.
    Serving,
    /// Shutdown requested: keeps serving, is not ready, and closes each connection with its next response.
    Draining,
    /// Accepts no more connections, and serves the open ones until they are closed.
    Closing,
}

/// Size of a connection's read buffer in bytes, and so of a request's head. Bodies are read through it too. The head
/// of an API server's request has about 300 bytes; hyper's minimum is 8 KiB.
const BUFFER_SIZE: usize = 16 << 10;

/// How long an evicted connection that has served no request waits for its first one.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(1);

/// Serves requests until the client closes the connection or a timeout expires, and records the connection's progress
/// in `slot`.
///
/// A connection that is old, or whose server is shutting down, is closed by a response with `Connection: close`, and
/// never while it is idle: a request might be on its way, which clients do not retry. One that is evicted is closed
/// when its request in flight is answered, or at once if there is none.
pub(super) async fn serve_http(
    io: impl AsyncRead + AsyncWrite + Unpin,
    slot: &ConnectionSlot,
    router: Router,
    limits: &Limits,
    phase: watch::Receiver<ShutdownPhase>,
) {
    let retire_at = Instant::now() + max_age(limits.max_connection_age, slot.id);
    let router = TowerToHyperService::new(router);
    let (phase, has_served) = (&phase, &AtomicBool::new(false));
    let service = service_fn(|mut request: Request<Incoming>| {
        has_served.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(ConnectInfo(slot.source));
        slot.set_in_flight(true);
        let response = router.call(request);
        async move {
            let mut response = response.await?;
            // The response is written in the same poll in which this future completes. If it is dropped before,
            // so is the connection.
            slot.set_in_flight(false);
            let is_shutting_down = *phase.borrow() > ShutdownPhase::Serving;
            let is_evicted = *slot.state.borrow() > SlotState::Held;
            if is_shutting_down || is_evicted || Instant::now() >= retire_at {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_timeout)
            .max_buf_size(BUFFER_SIZE)
            .serve_connection(TokioIo::new(io), service)
    );
    let mut state = slot.state.clone();
    let served = async {
        tokio::select! {
            biased;
            served = connection.as_mut() => return served,
            _ = state.wait_for(|state| *state > SlotState::Held) => {}
        }
        // A request that has arrived is answered, even if this task was not woken for it yet.
        yield_now().await;
        let grace = if has_served.load(Ordering::Relaxed) {
            Duration::ZERO
        } else {
            FIRST_REQUEST_GRACE
        };
        if let Ok(served) = timeout(grace, connection.as_mut()).await {
            return served;
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = served.await {
        debug!(%error, "Connection failed");
    }
}

/// The maximum age of the `n`th connection: between four fifths of `age` and all of it, spread evenly by the golden
/// ratio, so that connections opened together are not closed together.
fn max_age(age: Duration, n: SlotId) -> Duration {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let spread = n.wrapping_mul(GOLDEN) as f64 / u64::MAX as f64;
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
