//! A TCP stream whose writes time out when its client does not read.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A TCP stream whose writes fail with [`ErrorKind::TimedOut`] if the kernel has not accepted all bytes within the
/// limit after a write first blocked. A client that reads a little now and then gets no more time than one that
/// reads nothing.
///
/// If it is dropped while a write is blocked, the connection is reset: otherwise the kernel would keep the unread
/// bytes for minutes after the close.
#[derive(Debug)]
pub(super) struct WriteDeadline {
    stream: TcpStream,
    limit: Duration,
    /// Set from the first write that blocks until all is written.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes read in total.
    pub(super) received: u64,
}

// === impl WriteDeadline ===

impl WriteDeadline {
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            deadline: None,
            received: 0,
        }
    }

    /// Polls a write, and the deadline while the write is blocked.
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = write(Pin::new(&mut self.stream), context) {
            return Poll::Ready(written);
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteDeadline {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.received += (buffer.filled().len() - before) as u64;
        read
    }
}

impl AsyncWrite for WriteDeadline {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(context, |stream, context| {
            stream.poll_write_vectored(context, parts)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // TCP's own flush and shutdown never block. TLS and HTTP both flush once they have written everything.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.deadline = None;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for WriteDeadline {
    fn drop(&mut self) {
        if self.deadline.is_some() {
            // Fails only if the connection is closed.
            let _ = self.stream.set_zero_linger();
        }
    }
}
