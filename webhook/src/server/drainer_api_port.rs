//! The port for drainers, on a thread of its own, so that no crowd of pods takes CPU time or connections from admissions.

use std::io;
use std::sync::Arc;

use axum::Router;
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::connection::{ConnectionHandler, KeepAlive};
use super::connection_limiter::ConnectionLimiter;
use super::limits::Limits;
use super::metrics::Metrics;
use super::phase::ShutdownPhase;
use super::scheduler::Scheduler;
use super::{dedicated_thread, tls, tls_port};

/// The port for drainers: HTTPS, without client certificates.
pub struct DrainerApiPort {
    /// Its listener.
    pub listener: TcpListener,
    /// Creates what serves its requests, on the runtime of its thread.
    pub router: Box<dyn FnOnce() -> anyhow::Result<Router> + Send>,
    /// Its limits, of which those of bodies and plain HTTP are not used.
    pub limits: Limits,
    /// Counts failed TLS handshakes.
    pub failed_handshakes: Counter,
}

/// Starts the thread, which serves until the phase is [`ShutdownPhase::Closing`]. The result waits for the thread's end, which
/// is an error before that.
///
/// # Errors
/// If the system cannot create the thread, or the file descriptors of its runtime.
pub(super) fn start(
    port: DrainerApiPort,
    acceptor: tls::Acceptor,
    metrics: &Arc<Metrics>,
    phase: &watch::Receiver<ShutdownPhase>,
) -> io::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
    let (metrics, phase) = (Arc::clone(metrics), phase.clone());
    dedicated_thread::start("drainer-api", async move || {
        let DrainerApiPort {
            listener,
            router,
            limits,
            failed_handshakes,
        } = port;
        // A listener belongs to the runtime in which it was created.
        let listener = TcpListener::from_std(listener.into_std()?)?;
        let limiter = ConnectionLimiter::new(
            limits.max_connections,
            metrics.connections.for_port("drainer-api"),
        );
        let handler = ConnectionHandler {
            router: router()?,
            keep_alive: KeepAlive::Enabled,
            limits: Arc::new(limits),
            phase,
        };
        let scheduler = Arc::<Scheduler>::default();
        tls_port::serve(
            listener,
            &limiter,
            &acceptor,
            &handler,
            &scheduler,
            &failed_handshakes,
        )
        .await;
        Ok(())
    })
}
