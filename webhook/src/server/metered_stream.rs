//! A TLS stream that fails if its client's records have too little payload.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::write_deadline::WriteDeadline;

/// Bytes that may be received beyond the payload and a quarter of it: a handshake with the client's certificates,
/// and two records of 16 KiB that have not been read yet.
const OVERHEAD_ALLOWANCE: u64 = 64 << 10;

/// A TLS stream whose reads fail with [`ErrorKind::InvalidData`] once more than its payload, a quarter of that and
/// [`OVERHEAD_ALLOWANCE`] have been received.
///
/// A record takes about as long to decrypt whatever its size: 7 MiB in records of one byte are seconds of CPU. A
/// record has 22 bytes of overhead, and those of Go's client have a payload of at least 1 KiB if there is that
/// much to send.
/// <https://github.com/golang/go/blob/master/src/crypto/tls/conn.go>
#[derive(Debug)]
pub(super) struct MeteredTlsStream {
    stream: TlsStream<WriteDeadline>,
    payload: u64,
}

// === impl MeteredTlsStream ===

impl MeteredTlsStream {
    pub(super) fn new(stream: TlsStream<WriteDeadline>) -> Self {
        Self { stream, payload: 0 }
    }

    fn is_overhead_excessive(&self) -> bool {
        let received = self.stream.get_ref().0.received;
        received > self.payload + self.payload / 4 + OVERHEAD_ALLOWANCE
    }
}

impl AsyncRead for MeteredTlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.payload += (buffer.filled().len() - before) as u64;
        if self.is_overhead_excessive() {
            return Poll::Ready(Err(ErrorKind::InvalidData.into()));
        }
        read
    }
}

impl AsyncWrite for MeteredTlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
