//! Connections on which a test writes the bytes itself, without an HTTP library.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::listener::DIRECT_PATH;

/// An open connection.
#[derive(Debug)]
pub struct RawConnection(BufReader<TcpStream>);

// === impl RawConnection ===

impl RawConnection {
    /// Connects without sending anything.
    ///
    /// # Errors
    /// When the connection is refused.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self(BufReader::new(TcpStream::connect(address).await?)))
    }

    /// A keep-alive connection between two requests.
    ///
    /// # Errors
    /// When the connection is refused, or the first request gets no response.
    pub async fn open_idle(address: SocketAddr) -> Result<Self> {
        let mut connection = Self::open(address).await?;
        connection.get(DIRECT_PATH).await?;
        Ok(connection)
    }

    /// A TCP stream that has echoed bytes.
    ///
    /// # Errors
    /// When the connection is refused or does not echo.
    pub async fn open_stream(address: SocketAddr) -> Result<Self> {
        let mut connection = Self::open(address).await?;
        connection.ping().await?;
        Ok(connection)
    }

    /// An upgraded connection, as for a WebSocket, that has echoed bytes.
    ///
    /// # Errors
    /// When the connection is refused, is not upgraded or does not echo.
    pub async fn open_upgraded(address: SocketAddr) -> Result<Self> {
        let mut connection = Self::open(address).await?;
        let head = connection
            .send("GET / HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
            .await?;
        ensure!(head.starts_with("http/1.1 101 "), "{head}");
        connection.ping().await?;
        Ok(connection)
    }

    /// Sends a request, reads the complete response and returns its head in lower case.
    ///
    /// # Errors
    /// When the connection ends before that.
    pub async fn get(&mut self, path: &str) -> Result<String> {
        let head = self
            .send(&format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n"))
            .await?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: u64 = length.context("no content-length")?.trim().parse()?;
        let mut body = Vec::new();
        (&mut self.0).take(length).read_to_end(&mut body).await?;
        ensure!(body.len() as u64 == length, "truncated response: {head}");
        Ok(head)
    }

    /// Sends four bytes and waits for their echo.
    ///
    /// # Errors
    /// When they are not echoed.
    pub async fn ping(&mut self) -> Result<()> {
        self.0.write_all(b"ping").await?;
        let mut pong = [0; 4];
        self.0.read_exact(&mut pong).await?;
        ensure!(&pong == b"ping", "{}", pong.escape_ascii());
        Ok(())
    }

    /// Sends Redis' PING and waits for its response.
    ///
    /// # Errors
    /// When there is none.
    pub async fn redis_ping(&mut self) -> Result<()> {
        self.0.write_all(b"*1\r\n$4\r\nPING\r\n").await?;
        let mut pong = [0; 7];
        self.0.read_exact(&mut pong).await?;
        ensure!(&pong == b"+PONG\r\n", "{}", pong.escape_ascii());
        Ok(())
    }

    async fn send(&mut self, request: &str) -> Result<String> {
        self.0.write_all(request.as_bytes()).await?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = self.0.read_line(&mut head).await?;
            ensure!(read > 0, "the connection ended: `{head}`");
        }
        Ok(head.to_ascii_lowercase())
    }
}
