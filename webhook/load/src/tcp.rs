//! Messages to an echo server over TCP.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};

use crate::failure::{Failure, FailureKind};
use crate::messages::{AnswerReader, MessageClient, MessageWriter};
use crate::target::{ConnectionGuard, Connector, Protocol, Stream};

/// A message, and its echo.
const MESSAGE: [u8; 16] = *b"a spoon of sugar";

/// Clients of an echo server.
pub(crate) struct TcpClient {
    pub(crate) connector: Connector,
}

pub(crate) struct TcpWriter(WriteHalf<Box<dyn Stream>>);

pub(crate) struct EchoReader {
    stream: ReadHalf<Box<dyn Stream>>,
    /// What has been read of the next echo.
    partial: Vec<u8>,
    _guard: ConnectionGuard,
}

fn cut(error: &io::Error) -> Failure {
    Failure::new(FailureKind::CutInFlight, error.to_string())
}

// === impl TcpClient ===

impl MessageClient for TcpClient {
    type Writer = TcpWriter;
    type Reader = EchoReader;

    async fn open(&self) -> Result<(TcpWriter, EchoReader), Failure> {
        let (stream, guard) = self.connector.connect(Protocol::Tcp).await?;
        let (read, write) = split(stream);
        let reader = EchoReader {
            stream: read,
            partial: Vec::with_capacity(MESSAGE.len()),
            _guard: guard,
        };
        Ok((TcpWriter(write), reader))
    }
}

// === impl TcpWriter ===

impl MessageWriter for TcpWriter {
    async fn send(&mut self) -> Result<(), Failure> {
        let written = self.0.write_all(&MESSAGE).await;
        written.map_err(|error| cut(&error))
    }

    async fn close(mut self) {
        // A connection that has failed is closed.
        let _ = self.0.shutdown().await;
    }
}

// === impl EchoReader ===

impl AnswerReader for EchoReader {
    async fn read(&mut self) -> Result<(), Failure> {
        while self.partial.len() < MESSAGE.len() {
            let missing = (MESSAGE.len() - self.partial.len()) as u64;
            let mut rest = (&mut self.stream).take(missing);
            match rest.read_buf(&mut self.partial).await {
                Ok(0) => return Err(cut(&io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(cut(&error)),
            }
        }
        let echo = std::mem::take(&mut self.partial);
        if echo == MESSAGE {
            return Ok(());
        }
        let detail = format!("`{}`", echo.escape_ascii());
        Err(Failure::new(FailureKind::BadResponse, detail))
    }
}
