//! A connection that a client holds, and does with as it likes: bytes, not a library's manners.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::listener::DIRECT_PATH;

/// An open connection.
#[derive(Debug)]
pub struct RawConnection(BufReader<TcpStream>);

// === impl Held ===

impl RawConnection {
    /// Connects, and says nothing.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self(BufReader::new(TcpStream::connect(address).await?)))
    }

    /// A keep-alive connection between two requests.
    ///
    /// # Errors
    /// When it is refused, or the first request is not answered.
    pub async fn open_idle(address: SocketAddr) -> Result<Self> {
        let mut held = Self::open(address).await?;
        held.get(DIRECT_PATH).await?;
        Ok(held)
    }

    /// A TCP stream that has carried bytes both ways.
    ///
    /// # Errors
    /// When it is refused or does not echo.
    pub async fn open_stream(address: SocketAddr) -> Result<Self> {
        let mut held = Self::open(address).await?;
        held.ping().await?;
        Ok(held)
    }

    /// A connection that was upgraded, as a WebSocket is, and has carried bytes both ways since.
    ///
    /// # Errors
    /// When it is refused, not upgraded or does not echo.
    pub async fn open_upgraded(address: SocketAddr) -> Result<Self> {
        let mut held = Self::open(address).await?;
        let head = held
            .send("GET / HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
            .await?;
        ensure!(head.starts_with("http/1.1 101 "), "{head}");
        held.ping().await?;
        Ok(held)
    }

    /// Sends a request, reads the whole answer and returns its head in small letters.
    ///
    /// # Errors
    /// When the connection ends before that.
    pub async fn get(&mut self, path: &str) -> Result<String> {
        let head = self
            .send(&format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n"))
            .await?;
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "));
        let length: u64 = length.context("no content-length")?.trim().parse()?;
        let mut body = Vec::new();
        (&mut self.0).take(length).read_to_end(&mut body).await?;
        ensure!(body.len() as u64 == length, "half an answer: {head}");
        Ok(head)
    }

    /// Sends a few bytes and waits for their echo.
    ///
    /// # Errors
    /// When they do not come back.
    pub async fn ping(&mut self) -> Result<()> {
        self.0.write_all(b"ping").await?;
        let mut pong = [0; 4];
        self.0.read_exact(&mut pong).await?;
        ensure!(&pong == b"ping", "{}", pong.escape_ascii());
        Ok(())
    }

    /// Whether the other end has closed, which is given so long.
    pub async fn is_closed_within(&mut self, limit: Duration) -> bool {
        let mut rest = Vec::new();
        let end = self.0.read_to_end(&mut rest);
        timeout(limit, end).await.is_ok()
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
