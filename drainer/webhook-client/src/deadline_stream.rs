//! A TCP stream on which everything has to be done by one deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A blocking stream whose reads and writes fail with [`ErrorKind::TimedOut`] after the deadline.
#[derive(Debug)]
pub(crate) struct DeadlineStream {
    stream: TcpStream,
    /// When the current exchange has to be complete.
    pub(crate) deadline: Instant,
}

/// The time until a deadline.
///
/// # Errors
/// With [`ErrorKind::TimedOut`] if there is none left.
pub(crate) fn time_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// Linux reports the timeout of a socket as `EAGAIN`.
fn as_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

// === impl DeadlineStream ===

impl DeadlineStream {
    /// Connects within `limit`, and at the latest by the deadline.
    ///
    /// # Errors
    /// If the connection fails, or not in time.
    pub(crate) fn connect(
        address: SocketAddr,
        limit: Duration,
        deadline: Instant,
    ) -> io::Result<Self> {
        let limit = limit.min(time_until(deadline)?);
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, deadline })
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = time_until(self.deadline)?;
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer).map_err(as_timeout)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = time_until(self.deadline)?;
        self.stream.set_write_timeout(Some(left))?;
        self.stream.write(bytes).map_err(as_timeout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
