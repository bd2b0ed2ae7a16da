//! A port: accepts connections until the server shuts down, limits them, and serves HTTP/1.1 on each, over TLS or
//! without.

mod client_ca;
mod client_stream;
mod connection;
mod connection_slots;
mod dedicated_thread;
#[cfg(fuzzing)]
pub mod fuzz;
mod listen;
mod metrics;
mod tls;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet, yield_now};
use tokio::time::{Instant, interval, sleep, timeout};
use tracing::{debug, error, warn};

use super::limits::Limits;
use client_stream::ClientStream;
use connection::serve_http;
use connection_slots::{ConnectionSlot, ConnectionSlots, SlotState};
use metrics::PortMetrics;

pub use client_ca::read_client_ca;
pub use listen::listen;

pub(super) use connection::ShutdownPhase;
pub(super) use dedicated_thread::start_thread;
pub(super) use metrics::ConnectionMetrics;
pub(super) use tls::TlsAcceptor;

/// A port, and what serves its requests.
pub(super) struct Port {
    pub(super) listener: TcpListener,
    /// `None` serves plain HTTP.
    pub(super) tls: Option<Arc<TlsAcceptor>>,
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) metrics: PortMetrics,
    pub(super) phase: watch::Receiver<ShutdownPhase>,
    pub(super) liveness: watch::Sender<Liveness>,
}

/// The state of a port's accept loop, accurate to [`TICK_INTERVAL`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Liveness {
    /// When its thread last ran its tasks.
    pub(super) ran: Instant,
    /// When it was last able to accept a connection.
    pub(super) accepting: Instant,
}

/// Interval at which the accept loop reports that it runs, and at which time at the limit is counted.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after an accept that failed for lack of a resource, usually file descriptors, which are freed as
/// connections end.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Connections that are accepted before their tasks run. With more, a burst could evict connections from which
/// nothing has been read yet.
const BATCH_SIZE: u32 = 8;

// === impl Liveness ===

impl Liveness {
    pub(super) fn now() -> Self {
        let now = Instant::now();
        Self {
            ran: now,
            accepting: now,
        }
    }

    fn update(&mut self, is_accepting: bool) {
        self.ran = Instant::now();
        if is_accepting {
            self.accepting = self.ran;
        }
    }
}

// === impl Port ===

impl Port {
    /// Serves the port, on the current thread's runtime, until the phase is [`ShutdownPhase::Closing`] or its sender is
    /// dropped. Open connections then have [`Limits::head_timeout`] and [`Limits::shutdown_grace`] to end.
    ///
    /// # Errors
    /// If the system cannot move the listener to this runtime.
    pub(super) async fn serve(self) -> anyhow::Result<()> {
        let Self {
            listener,
            tls,
            router,
            limits,
            metrics,
            phase,
            liveness,
        } = self;
        // A listener belongs to the runtime in which it was created.
        let listener = TcpListener::from_std(listener.into_std()?)?;
        let slots = ConnectionSlots::new(limits.max_connections, metrics);
        let grace = limits.head_timeout + limits.shutdown_grace;
        let limits = Arc::new(limits);
        let closing = phase.clone();
        let serve = |stream, slot: ConnectionSlot| {
            let (tls, router) = (tls.clone(), router.clone());
            let (limits, phase) = (Arc::clone(&limits), phase.clone());
            async move {
                let Some(tls) = tls else {
                    let stream = ClientStream::new(stream, limits.write_timeout, None);
                    return serve_http(stream, &slot, router, &limits, phase).await;
                };
                match tls.accept(stream, &limits, slot.source).await {
                    Ok(stream) => serve_http(stream, &slot, router, &limits, phase).await,
                    Err(error) => {
                        tls.failed_handshakes.inc();
                        debug!(%error, "TLS handshake failed");
                    }
                }
            }
        };
        accept(listener, &slots, &liveness, closing, grace, serve).await;
        Ok(())
    }
}

/// Runs `serve` for each connection, in a task of its own, until the phase is [`ShutdownPhase::Closing`]; then
/// waits up to `grace` for these tasks and drops the rest.
///
/// Every connection is accepted at once. One left in the kernel's queue would wait behind a flood of connections that
/// stay open; accepted, it takes the slot of another one.
async fn accept<F>(
    listener: TcpListener,
    slots: &Arc<ConnectionSlots>,
    liveness: &watch::Sender<Liveness>,
    mut phase: watch::Receiver<ShutdownPhase>,
    grace: Duration,
    serve: impl Fn(TcpStream, ConnectionSlot) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut ticks = interval(TICK_INTERVAL);
    let mut failed_until = Instant::now();
    let mut batch = 0;
    loop {
        tokio::select! {
            () = wait_for_closing(&mut phase) => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            tick = ticks.tick() => {
                let is_accepting = tick > failed_until;
                liveness.send_modify(|liveness| liveness.update(is_accepting));
                if is_accepting {
                    slots.count_full_time(TICK_INTERVAL);
                }
            }
            accepted = accept_next(&listener) => match accepted {
                Ok((stream, peer)) => {
                    let slot = slots.acquire(peer.ip());
                    let mut state = slot.state.clone();
                    // Boxed, because the task below would otherwise reserve memory for it twice.
                    // <https://github.com/rust-lang/rust/issues/62958>
                    let served = Box::pin(serve(stream, slot));
                    connections.spawn(async move {
                        let closed = state.wait_for(|state| *state == SlotState::Closed);
                        tokio::select! {
                            biased;
                            _ = closed => debug!(%peer, "Connection evicted"),
                            () = served => {}
                        }
                    });
                    batch += 1;
                    if batch == BATCH_SIZE {
                        batch = 0;
                        yield_now().await;
                    }
                }
                Err(error) => {
                    warn!(%error, "Failed to accept a connection");
                    failed_until = Instant::now() + TICK_INTERVAL;
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
    drop(listener);
    let finished = timeout(grace, async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    });
    if finished.await.is_err() {
        warn!(
            connections = connections.len(),
            "Closed connections with requests in flight"
        );
    }
}

/// Waits for [`ShutdownPhase::Closing`], or until its sender is dropped.
async fn wait_for_closing(phase: &mut watch::Receiver<ShutdownPhase>) {
    let _ = phase
        .wait_for(|phase| *phase == ShutdownPhase::Closing)
        .await;
}

/// Accepts the next connection, skipping those that their clients have closed already.
///
/// # Errors
/// If the system lacks a resource to accept a connection.
async fn accept_next(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // A response is one write; without this, it may wait for the client's acknowledgement.
                if stream.set_nodelay(true).is_ok() {
                    return Ok((stream, peer));
                }
            }
            Err(error) => match error.kind() {
                // Only this connection failed.
                ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset => {}
                _ => return Err(error),
            },
        }
    }
}

/// Logs the panic of a connection's task. Admission itself answers after a panic; any other panic costs only its
/// own connection, and the API server applies its failurePolicy.
fn log_panic(result: Result<(), JoinError>) {
    if let Err(error) = result {
        error!(%error, "Connection task panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::{Ipv4Addr, TcpStream as Client};

    use tokio::sync::mpsc;

    use super::*;
    use crate::metrics::registry;

    #[tokio::test]
    async fn a_burst_does_not_evict_unserved_connections() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        // All of them are in the kernel's queue before the first is accepted.
        let clients: Vec<_> = (0..100).map(|_| Client::connect(address)).collect();
        let metrics = ConnectionMetrics::register(&mut registry()).for_port("health");
        let slots = ConnectionSlots::new(100, metrics);
        let liveness = watch::Sender::new(Liveness::now());
        let (_phase, phase) = watch::channel(ShutdownPhase::Serving);
        let (serve, mut served) = mpsc::unbounded_channel();
        let serve = |stream, slot| {
            let serve = serve.clone();
            async move {
                let _ = serve.send(());
                pending::<()>().await;
                drop((stream, slot));
            }
        };
        let accepted = accept(listener, &slots, &liveness, phase, Duration::ZERO, serve);
        let all = async {
            for _ in &clients {
                served.recv().await;
            }
        };
        let all = timeout(Duration::from_secs(5), all);
        tokio::select! {
            () = accepted => unreachable!("the phase does not change"),
            served = all => served.expect("all are served in time"),
        }
    }
}
