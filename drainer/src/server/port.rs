//! The TCP port for Envoy's hook, open to anything in the cluster. It accepts every connection, so
//! that a flood does not keep Envoy's hook out.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};

use super::binding::bind_when_free;

/// Receive buffer of a connection in bytes, of which the kernel allocates twice as much: 2,000
/// connections of a flood, half of them not accepted yet, must fit into the container's memory limit. A
/// hook's request takes about a tenth of it.
const RECEIVE_BUFFER: u32 = 4096;

/// How many connections the kernel queues until they are accepted; it refuses more. Tokio and the
/// standard library use 128, which a flood fills within milliseconds. The kernel itself allows 4096 at
/// most (`net.core.somaxconn`).
const BACKLOG: u32 = 1024;

/// Binds the port, as soon as it is free.
pub(super) async fn bind(address: SocketAddr) -> TcpListener {
    let bind = || listen(address, |it| it.set_recv_buffer_size(RECEIVE_BUFFER));
    bind_when_free("Envoy's hook", &address.to_string(), bind).await
}

/// Listens on `address`, with socket options that `configure` sets and connections inherit. On a machine
/// without IPv6, `[::]` means all IPv4 addresses.
///
/// # Errors
/// As [`TcpListener::bind`], and those of `configure`.
pub fn listen(
    address: SocketAddr,
    configure: impl Fn(&TcpSocket) -> io::Result<()>,
) -> io::Result<TcpListener> {
    let listen_on = |address: SocketAddr| {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Connections of an earlier process may still be in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        if address.is_ipv6() {
            // IPv4 too, also where the node's default is IPv6 alone (`net.ipv6.bindv6only`).
            SockRef::from(&socket).set_only_v6(false)?;
        }
        configure(&socket)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    match listen_on(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
            listen_on((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        result => result,
    }
}

/// Returns true if an address cannot be bound because the kernel or the container has no IPv6.
fn has_no_ipv6(error: &io::Error) -> bool {
    // The standard library has no kind for a kernel without IPv6.
    let is_unsupported = error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
    is_unsupported || error.kind() == ErrorKind::AddrNotAvailable
}
