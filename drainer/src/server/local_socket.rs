//! The Unix socket for `drainer drain` and `drainer status`, in Linux's abstract namespace: it needs no file and no volume,
//! and belongs to the pod's network namespace. Any process in that may connect, or take the name first, so both sides
//! check each other.

use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

use super::binding::Binding;

/// The listener.
pub(crate) struct LocalSocket {
    binding: Binding<UnixListener>,
    permits: Arc<Semaphore>,
}

/// Maximum number of concurrent connections on the Unix socket without a request yet, or with one for the status; further
/// ones wait to be accepted. The limit is separate from the port's, so that a flood there does not keep the drainer's own
/// hook out.
const MAX_CONNECTIONS: usize = 8;

/// The path that Tokio takes for the name of the socket. The port makes it unique on a node's network.
fn abstract_path(port: NonZeroU16) -> String {
    format!("\0envoy-drainer:{port}")
}

/// Connects to the drainer that listens on `port`.
///
/// # Errors
/// If nothing listens, or another process than the drainer of this container.
pub(crate) async fn connect(port: NonZeroU16) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(abstract_path(port)).await?;
    if is_own_process(&stream)? {
        Ok(stream)
    } else {
        let error = "another process than the drainer of this container has taken its socket";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
    }
}

/// Returns true if the peer is a process of this container: it has the same user, and is visible here. Processes of other
/// containers have the process ID 0, unless the pod shares its process namespace.
fn is_own_process(stream: &UnixStream) -> io::Result<bool> {
    let peer = stream.peer_cred()?;
    let own_user = rustix::process::geteuid().as_raw();
    Ok(peer.uid() == own_user && peer.pid().is_some_and(|pid| pid != 0))
}

// === impl LocalSocket ===

impl LocalSocket {
    /// Binds the socket of the drainer that listens on `port`, or logs why not; [`LocalSocket::accept`] retries.
    pub(crate) fn open(port: NonZeroU16) -> Self {
        let bind = move || UnixListener::bind(abstract_path(port));
        let address = format!("@{}", &abstract_path(port)[1..]);
        Self {
            binding: Binding::open("the drainer's own hook", &address, bind),
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        }
    }

    /// Waits for the next connection of a process of this container. It is cancel-safe: no connection is lost.
    ///
    /// # Errors
    /// For lack of file descriptors or memory.
    pub(crate) async fn accept(&mut self) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
        let permit = self.permits.clone().acquire_owned().await;
        loop {
            let (stream, _) = self.binding.listener().await.accept().await?;
            if is_own_process(&stream).unwrap_or(false) {
                return Ok((stream, permit.expect("never closed")));
            }
            // Otherwise a flood of these would keep the port from being served.
            yield_now().await;
        }
    }
}
