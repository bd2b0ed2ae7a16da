//! Binding a port.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// What the kernel keeps of a connection's unread bytes; it takes as much again for itself. It counts
/// to the container's memory, and would grow to 6 MiB where a review waits for its turn. At a round trip
/// of 2 ms, as between zones, it still lets 16 MiB a second pass.
const RECEIVE_BUFFER: u32 = 32 << 10;

/// What the kernel keeps of a connection's unread answers; it takes as much again for itself. It counts
/// to the container's memory, and would grow to 4 MiB for a client that sends reviews and reads no
/// answer. The answer to an ordinary pod fits.
const SEND_BUFFER: u32 = 16 << 10;

/// Listens on `address`. Where there is no IPv6, `[::]` is all addresses of IPv4.
///
/// # Errors
/// When the address cannot be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    drainer::listen(address, |socket| {
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        socket.set_send_buffer_size(SEND_BUFFER)
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::{TcpSocket, TcpStream};

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
