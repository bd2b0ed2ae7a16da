//! Binding a port, on a machine that may have no IPv6.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// What Linux says of a kernel without IPv6; the standard library has no kind for it.
const EAFNOSUPPORT: i32 = 97;

/// Listens on `address`. Where there is no IPv6, `[::]` is all addresses of IPv4.
///
/// # Errors
/// As [`TcpListener::bind`].
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && has_no_ipv6(&error) => {
            TcpListener::bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), address.port())).await
        }
        bound => bound,
    }
}

/// Returns true if it is for want of IPv6 that an address cannot be bound, in the kernel or in the
/// container.
fn has_no_ipv6(error: &io::Error) -> bool {
    error.raw_os_error() == Some(EAFNOSUPPORT) || error.kind() == ErrorKind::AddrNotAvailable
}
