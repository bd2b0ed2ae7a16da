//! The accept loop: accepts connections until the server shuts down, and then waits for the open ones.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet, yield_now};
use tokio::time::{Instant, interval, sleep, timeout};
use tracing::{debug, error, warn};

use super::connection_limiter::{ConnectionLimiter, ConnectionSlot, TICK_INTERVAL};
use super::phase::{ShutdownPhase, wait_for_closing};

/// Pause after an accept that failed for lack of a resource, usually file descriptors, which are freed as
/// connections end.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Connections that are accepted before their tasks run. With more, a burst could evict connections from which
/// nothing has been read yet.
const BATCH_SIZE: u32 = 8;

/// Runs `serve` for each connection, in a task of its own, until the phase is [`ShutdownPhase::Closing`]; then
/// waits up to `grace` for these tasks and drops the rest.
///
/// Every connection is accepted at once. One left in the kernel's queue would wait behind a crowd that does not
/// leave; accepted, it takes the slot of another one.
pub(super) async fn accept<F>(
    listener: TcpListener,
    limiter: &Arc<ConnectionLimiter>,
    grace: Duration,
    mut phase: watch::Receiver<ShutdownPhase>,
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
            now = ticks.tick() => limiter.tick(now > failed_until),
            accepted = accept_next(&listener) => match accepted {
                Ok((stream, peer)) => {
                    let slot = limiter.acquire(peer);
                    let mut eviction = slot.eviction.clone();
                    // Boxed, because the task below would otherwise reserve memory for it twice.
                    // <https://github.com/rust-lang/rust/issues/62958>
                    let served = Box::pin(serve(stream, slot));
                    connections.spawn(async move {
                        let closed = async { while eviction.changed().await.is_ok() {} };
                        tokio::select! {
                            biased;
                            () = closed => debug!(%peer, "Connection evicted"),
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
            Err(error) if is_connection_error(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns true if only this connection failed.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
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
    use crate::server::listen::listen;
    use crate::server::metrics::Metrics;

    #[tokio::test]
    async fn a_burst_does_not_evict_unserved_connections() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        // All of them are in the kernel's queue before the first is accepted.
        let clients: Vec<_> = (0..100).map(|_| Client::connect(address)).collect();
        let metrics = Metrics::register(&mut registry())
            .connections
            .for_port("health");
        let limiter = ConnectionLimiter::new(100, metrics);
        let (_phase, phase) = watch::channel(ShutdownPhase::Serving);
        let (serve, mut served) = mpsc::unbounded_channel();
        let accepted = accept(listener, &limiter, Duration::ZERO, phase, |stream, slot| {
            let serve = serve.clone();
            async move {
                let _ = serve.send(());
                pending::<()>().await;
                drop((stream, slot));
            }
        });
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
