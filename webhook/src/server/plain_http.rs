//! The ports of plain HTTP, for probes and metrics, on a thread of their own: however busy admission
//! is, the kubelet is answered, and metrics show why it is busy.

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

/// One of these ports.
pub(super) struct PlainPort {
    pub(super) listener: TcpListener,
    pub(super) router: Router,
    pub(super) metrics: PortMetrics,
}

/// Starts the thread, which serves until the phase is [`Phase::Ending`] or its sender is gone. The
/// result waits for its end.
///
/// # Errors
/// When the system gives no thread, or no descriptors for it.
pub(super) fn start(
    ports: [PlainPort; 2],
    limits: &Arc<Limits>,
    phase: &watch::Receiver<ShutdownPhase>,
) -> io::Result<impl Future<Output = ()> + use<>> {
    // A listener belongs to the runtime it was made in.
    let [one, other] = ports.map(|port| {
        let listener = port.listener.into_std()?;
        Ok::<_, io::Error>((listener, port.router, port.metrics))
    });
    let ports = [one?, other?];
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (limits, phase) = (Arc::clone(limits), phase.clone());
    let (end, ended) = oneshot::channel();
    let thread = thread::Builder::new()
        .name("probes".to_owned())
        .spawn(move || {
            let served = runtime.block_on(async {
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
            if let Err(error) = served {
                error!(%error, "Probes and metrics are not served");
            }
            let _ = end.send(());
        })?;
    Ok(async move {
        // Sent or dropped by a panic, the thread is at its end.
        let _ = ended.await;
        if thread.join().is_err() {
            error!("The thread for probes and metrics failed");
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
    // All are alike: each is for one request, which is to come at once.
    let limiter = ConnectionLimiter::new(
        limits.max_plain_connections,
        ConnectionStage::Unanswered,
        metrics,
    );
    let http = ConnectionHandler::new(
        router,
        limits.plain_head_timeout,
        KeepAlive::Disabled,
        limits,
        phase,
    );
    accept(
        listener,
        &limiter,
        limits.shutdown_grace,
        phase.clone(),
        |stream, place| {
            let stream = WriteDeadline::new(stream, limits.write_timeout);
            http.clone().serve(stream, place)
        },
    )
    .await;
}
