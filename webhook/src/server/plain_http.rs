//! The plain HTTP ports for probes and metrics, on a thread of their own, so that both respond however busy the
//! admission thread is.

use std::io;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::accept::accept;
use super::connection::{ConnectionHandler, KeepAlive};
use super::connection_limiter::ConnectionLimiter;
use super::dedicated_thread;
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
) -> io::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
    let (limits, phase) = (Arc::clone(limits), phase.clone());
    dedicated_thread::start("probes", async move || {
        let [one, other] = ports.map(|port| port.serve(&limits, &phase));
        tokio::try_join!(one, other)?;
        Ok(())
    })
}

// === impl PlainPort ===

impl PlainPort {
    /// Serves the port on the current thread's runtime.
    ///
    /// # Errors
    /// If the system cannot move the listener to this runtime.
    async fn serve(
        self,
        limits: &Arc<Limits>,
        phase: &watch::Receiver<ShutdownPhase>,
    ) -> io::Result<()> {
        // A listener belongs to the runtime in which it was created.
        let listener = TcpListener::from_std(self.listener.into_std()?)?;
        let limiter = ConnectionLimiter::new(limits.max_plain_http_connections, self.metrics);
        let handler = ConnectionHandler {
            router: self.router,
            keep_alive: KeepAlive::Disabled,
            limits: Arc::clone(limits),
            phase: phase.clone(),
        };
        let serve = |stream, slot| {
            let stream = WriteDeadline::new(stream, limits.write_timeout);
            handler.clone().serve(stream, slot)
        };
        let (grace, phase) = (limits.shutdown_grace, phase.clone());
        accept(listener, &limiter, grace, phase, serve).await;
        Ok(())
    }
}
