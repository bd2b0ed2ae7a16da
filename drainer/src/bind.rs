//! Binding a port, on a machine that may have no IPv6.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// How many connections the kernel keeps until they are accepted; it refuses more. Tokio and the
/// standard library have 128, which a flood fills within milliseconds. The kernel itself allows 4096
/// at most (`net.core.somaxconn`).
pub(crate) const BACKLOG: u32 = 1024;

/// What Linux says of a kernel without IPv6; the standard library has no kind for it.
const EAFNOSUPPORT: i32 = 97;

/// Listens on `address`. Where there is no IPv6, `[::]` is all addresses of IPv4.
///
/// # Errors
/// As [`TcpListener::bind`].
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address, |_| Ok(()))
}

/// Does what [`bind`] does, with options that `set` sets and connections inherit.
///
/// # Errors
/// As [`TcpListener::bind`], and of `set`.
pub fn listen(
    address: SocketAddr,
    set: impl Fn(&TcpSocket) -> io::Result<()>,
) -> io::Result<TcpListener> {
    match listen_on(address, &set) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
            let everywhere = (IpAddr::from(Ipv4Addr::UNSPECIFIED), address.port());
            listen_on(everywhere.into(), &set)
        }
        bound => bound,
    }
}

fn listen_on(
    address: SocketAddr,
    set: impl Fn(&TcpSocket) -> io::Result<()>,
) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections of an earlier process may linger.
    socket.set_reuseaddr(true)?;
    set(&socket)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns true if it is for want of IPv6 that an address cannot be bound, in the kernel or in the
/// container.
fn has_no_ipv6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == ErrorKind::AddrNotAvailable
}
