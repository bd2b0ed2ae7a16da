//! The plain HTTP ports for probes and metrics, on a thread of their own, so that both respond however busy the
//! admission thread is.

use std::sync::Arc;
use std::{io, thread};

use axum::Router;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tracing::error;

use super::accept::accept;
use super::connection::{ConnectionHandler, KeepAlive};
use super::connection_limiter::ConnectionLimiter;
use super::connection_slots::ConnectionStage;
use super::limits::Limits;
use super::metrics::PortMetrics;
use super::phase::ShutdownPhase;
use super::write_deadline::WriteDeadline;

/// One of the two ports.
pub(super) struct PlainPort {
    pub(super) listener: TcpListener,
    pub(super) router: Router,
    pub(super) metrics: PortMetrics,
}

/// Starts the thread, which serves until the phase is [`ShutdownPhase::Closing`] or its sender is dropped. The
/// result waits for the thread's end.
///
/// # Errors
/// If the system cannot create the thread, or the file descriptors of its runtime.
pub(super) fn start(
    ports: [PlainPort; 2],
    limits: &Arc<Limits>,
    phase: &watch::Receiver<ShutdownPhase>,
) -> io::Result<impl Future<Output = ()> + use<>> {
    // A listener belongs to the runtime in which it was created.
    let [one, other] = ports.map(|port| {
        let listener = port.listener.into_std()?;
        Ok::<_, io::Error>((listener, port.router, port.metrics))
    });
    let ports = [one?, other?];
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (limits, phase) = (Arc::clone(limits), phase.clone());
    let (done, finished) = oneshot::channel();
    let thread = thread::Builder::new()
        .name("probes".to_owned())
        .spawn(move || {
            let result = runtime.block_on(async {
                let serve = async |(listener, router, metrics)| {
                    serve(
                        TcpListener::from_std(listener)?,
                        router,
                        metrics,
                        &limits,
                        &phase,
                    )
                    .await;
                    io::Result::Ok(())
                };
                let [one, other] = ports;
                tokio::try_join!(serve(one), serve(other))
            });
            if let Err(error) = result {
                error!(%error, "Failed to serve probes and metrics");
            }
            let _ = done.send(());
        })?;
    Ok(async move {
        // Sent, or dropped by a panic, the thread is about to end.
        let _ = finished.await;
        if thread.join().is_err() {
            error!("Thread for probes and metrics panicked");
        }
    })
}

async fn serve(
    listener: TcpListener,
    router: Router,
    metrics: PortMetrics,
    limits: &Arc<Limits>,
    phase: &watch::Receiver<ShutdownPhase>,
) {
    // All have the same stage: each serves one request, which has to arrive at once.
    let limiter = ConnectionLimiter::new(
        limits.max_plain_http_connections,
        ConnectionStage::Unanswered,
        metrics,
    );
    let handler = ConnectionHandler::new(
        router,
        limits.plain_http_head_timeout,
        KeepAlive::Disabled,
        limits,
        phase,
    );
    accept(
        listener,
        &limiter,
        limits.shutdown_grace,
        phase.clone(),
        |stream, slot| {
            let stream = WriteDeadline::new(stream, limits.write_timeout);
            handler.clone().serve(stream, slot)
        },
    )
    .await;
}
