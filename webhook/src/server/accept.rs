//! Accepts connections until the server ends, and waits for those that are left.

use std::time::Duration;
use std::{io, mem};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{error, warn};

use super::phase::{Phase, ending};

/// The pause after an accept failed for lack of something, usually file descriptors: what is
/// missing comes back when connections end.
const PAUSE: Duration = Duration::from_millis(200);

/// Gives each connection to `serve`, in a task of its own and `limit` at a time, until the phase is
/// [`Phase::Ending`]; then gives those tasks `finish` to end, and drops the rest. Each task hears
/// whether all places are taken.
///
/// Connections beyond the limit wait in the kernel: the API server goes on without an answer as
/// soon as it is refused a connection, and here it waits for a while.
pub(super) async fn accept<F>(
    listener: TcpListener,
    limit: usize,
    finish: Duration,
    mut phase: watch::Receiver<Phase>,
    serve: impl Fn(TcpStream, watch::Receiver<bool>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let full = watch::Sender::new(false);
    loop {
        let is_full = connections.len() >= limit;
        full.send_if_modified(|was| mem::replace(was, is_full) != is_full);
        tokio::select! {
            () = ending(&mut phase) => break,
            Some(ended) = connections.join_next() => told(ended),
            stream = next(&listener), if !is_full => {
                connections.spawn(serve(stream, full.subscribe()));
            }
        }
    }
    drop(listener);
    let finished = timeout(finish, async {
        while let Some(ended) = connections.join_next().await {
            told(ended);
        }
    });
    if finished.await.is_err() {
        warn!(connections = connections.len(), "Cut connections in flight");
    }
}

/// Accepts the next connection, however often that fails.
async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A response is one write; without this it may wait for the client's acknowledgement.
                if stream.set_nodelay(true).is_ok() {
                    return stream;
                }
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                warn!(%error, "Accepting a connection failed");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Returns true if only that one connection failed.
fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}

/// A task may panic: the admission answers for bugs in what it does to a pod, and whatever else goes
/// wrong costs its own connection, for which the API server does what its failurePolicy says.
fn told(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!(%error, "A connection's task failed");
    }
}
