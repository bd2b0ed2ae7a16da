//! Serves HTTPS on one port.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpListener;
use tracing::debug;

use super::accept::accept;
use super::connection::ConnectionHandler;
use super::connection_limiter::ConnectionLimiter;
use super::scheduler::Scheduler;
use super::tls;

/// Serves the port until the server has shut down. Connections then have [`super::Limits::head_timeout`] and
/// [`super::Limits::shutdown_grace`] to end.
pub(super) async fn serve(
    listener: TcpListener,
    limiter: &Arc<ConnectionLimiter>,
    acceptor: &tls::Acceptor,
    handler: &ConnectionHandler,
    scheduler: &Arc<Scheduler>,
    failed_handshakes: &Counter,
) {
    let (limits, phase) = (&handler.limits, handler.phase.clone());
    let grace = limits.head_timeout + limits.shutdown_grace;
    accept(listener, limiter, grace, phase, |stream, slot| {
        let (config, failed_handshakes) = (acceptor.current(), failed_handshakes.clone());
        let (handler, limits) = (handler.clone(), Arc::clone(limits));
        let (scheduler, source) = (Arc::clone(scheduler), slot.source);
        async move {
            match tls::handshake(config, stream, &limits, &scheduler, source).await {
                Ok(stream) => handler.serve(stream, slot).await,
                Err(error) => {
                    failed_handshakes.inc();
                    debug!(%error, "TLS handshake failed");
                }
            }
        }
    })
    .await;
}
