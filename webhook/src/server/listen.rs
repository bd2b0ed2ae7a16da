//! Binding a port.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// How many connections the kernel keeps that are still to be accepted: what a crowd opens while the
/// thread is at one large pod. The kernel's own limit is 4096 (`net.core.somaxconn`).
const BACKLOG: u32 = 1024;

/// What the kernel keeps of a connection's unread bytes; it takes as much again for itself. It counts
/// to the container's memory, and would grow to 6 MiB where a body waits for memory. At a round trip of
/// 2 ms, as between zones, it still lets 64 MiB a second pass.
const RECEIVE_BUFFER: u32 = 128 << 10;

/// What the kernel keeps of a connection's unread answers; it takes as much again for itself. It counts
/// to the container's memory, and would grow to 4 MiB for a client that sends reviews and reads no
/// answer. One answer, or one page of metrics, fits.
const SEND_BUFFER: u32 = 32 << 10;

/// What Linux says of a kernel without IPv6; the standard library has no kind for it.
const EAFNOSUPPORT: i32 = 97;

/// Listens on `address`. Where there is no IPv6, `[::]` is all addresses of IPv4.
///
/// # Errors
/// When the address cannot be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match try_listen(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
            try_listen((IpAddr::from(Ipv4Addr::UNSPECIFIED), address.port()).into())
        }
        listening => listening,
    }
}

fn try_listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Each connection inherits both from its listener.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns true if it is for want of IPv6 that an address cannot be bound, in the kernel or in the
/// container.
fn has_no_ipv6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_inherit_small_buffers() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (accepted, _) = listener.accept().await.unwrap();
        let socket = TcpSocket::from_std_stream(accepted.into_std().unwrap());
        // Linux reports twice what was asked for.
        assert!(socket.send_buffer_size().unwrap() <= 2 * SEND_BUFFER);
        assert!(socket.recv_buffer_size().unwrap() <= 2 * RECEIVE_BUFFER);
    }
}
