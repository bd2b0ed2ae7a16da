//! The Unix socket for `drainer drain` and `drainer status`, in Linux's abstract namespace: it needs no file and no
//! volume, and belongs to the pod's network namespace. Any process in that namespace may connect, or take the name
//! first, so both sides check each other.

use std::num::NonZeroU16;

use anyhow::bail;
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};

use super::binding::bind_when_free;

/// The path that Tokio takes for the name of the socket. The port makes it unique on a node's network.
fn abstract_path(port: u16) -> String {
    format!("\0envoy-drainer:{port}")
}

/// Binds the socket of the drainer that listens on `port`, as soon as its name is free.
pub(super) async fn bind(port: u16) -> UnixListener {
    let path = abstract_path(port);
    let bind = || UnixListener::bind(&path);
    bind_when_free("the drainer's own hook", &path.replace('\0', "@"), bind).await
}

/// Connects to the drainer that listens on `port`.
///
/// # Errors
/// If nothing listens, or a process other than the drainer of this container does.
pub(crate) async fn connect(port: NonZeroU16) -> anyhow::Result<UnixStream> {
    let stream = UnixStream::connect(abstract_path(port.get())).await?;
    if !is_own_process(&stream) {
        bail!("a process other than the drainer of this container has taken its socket");
    }
    Ok(stream)
}

/// Returns true if the peer is a process of this container: it has the same user, and is visible here. Processes of
/// other containers have the process ID 0, unless the pod shares its process namespace.
pub(super) fn is_own_process(stream: &UnixStream) -> bool {
    let own_user = rustix::process::geteuid().as_raw();
    let is_own = |peer: UCred| peer.uid() == own_user && peer.pid().is_some_and(|pid| pid != 0);
    stream.peer_cred().is_ok_and(is_own)
}
