//! A client's TCP stream: its writes time out if the client does not read, and its reads fail if TLS records have too
//! little payload.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Bytes that may be received beyond five quarters of the payload: a handshake with the client's certificates, and two
/// records of 16 KiB that have not been read yet.
const OVERHEAD_ALLOWANCE: u64 = 64 << 10;

/// A TCP stream whose writes fail with [`ErrorKind::TimedOut`] if the kernel has not accepted all bytes within the
/// limit after a write first blocked. A client that reads a little now and then gets no more time than one that
/// reads nothing.
///
/// With TLS, its reads fail with [`ErrorKind::InvalidData`] once it has received more than five quarters of the payload
/// and [`OVERHEAD_ALLOWANCE`]. A record takes about as long to decrypt whatever its size: 7 MiB in records of one byte
/// take seconds of CPU. A record has 22 bytes of overhead, and those of Go's client have a payload of at least 1 KiB if
/// there is that much to send.
/// <https://github.com/golang/go/blob/master/src/crypto/tls/conn.go>
///
/// If it is dropped while a write is blocked, the connection is reset: otherwise the kernel would keep the unread
/// bytes for minutes after the close.
#[derive(Debug)]
pub(super) struct ClientStream {
    stream: TcpStream,
    write_timeout: Duration,
    /// Set from the first write that blocks until all is written.
    write_deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes read in total.
    received: u64,
    /// Bytes of payload that TLS has returned in total; `None` without TLS.
    payload: Option<Arc<AtomicU64>>,
}

// === impl ClientStream ===

impl ClientStream {
    pub(super) fn new(
        stream: TcpStream,
        write_timeout: Duration,
        payload: Option<Arc<AtomicU64>>,
    ) -> Self {
        Self {
            stream,
            write_timeout,
            write_deadline: None,
            received: 0,
            payload,
        }
    }

    fn is_overhead_excessive(&self) -> bool {
        self.payload.as_ref().is_some_and(|payload| {
            let payload = payload.load(Ordering::Relaxed);
            self.received > payload + payload / 4 + OVERHEAD_ALLOWANCE
        })
    }

    /// Polls a write, and the deadline while the write is blocked.
    fn poll_with_deadline<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.stream), context) {
            return Poll::Ready(written);
        }
        let sleep = || Box::pin(sleep(self.write_timeout));
        let deadline = self.write_deadline.get_or_insert_with(sleep);
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // By now, all that was received before has been decrypted and read, but for an incomplete record.
        if self.is_overhead_excessive() {
            return Poll::Ready(Err(ErrorKind::InvalidData.into()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.received += (buffer.filled().len() - before) as u64;
        read
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_deadline(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with_deadline(context, |stream, context| {
            stream.poll_write_vectored(context, parts)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // TCP's own flush and shutdown never block. TLS and HTTP both flush once they have written everything.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_deadline = None;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        if self.write_deadline.is_some() {
            // Fails only if the connection is closed.
            let _ = self.stream.set_zero_linger();
        }
    }
}
