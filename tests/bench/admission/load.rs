//! The load generator: cheap enough to saturate a server from one CPU, and strict about responses.

use std::time::Duration;

use anyhow::{Result, ensure};
use tests::admission_report::{Connections, Load};
use tests::https::HttpsClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::pods::Review;

/// Number of clients, enough to saturate a server.
const CLIENTS: usize = 16;

/// The memory that bodies in flight may take, in bytes: less than the server's limit for all of them together.
const BODY_MEMORY: usize = 12 << 20;

/// A keep-alive connection.
pub(crate) struct KeepAliveConnection {
    https: HttpsClient,
    stream: TlsStream<TcpStream>,
    response: Vec<u8>,
}

/// Returns the bytes of a `POST /inject` with this body.
pub(crate) fn request(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /inject?timeout=5s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-apiserver-admission\r\n\
         Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// As many of these reviews as the server answers.
pub(crate) fn saturating(review: &Review, connections: Connections) -> Load {
    Load {
        connections,
        clients: CLIENTS.min(BODY_MEMORY / review.body.len()) as u32,
        rate: None,
    }
}

/// Opens a connection for each client.
pub(crate) async fn open(load: Load, https: &HttpsClient) -> Result<Vec<KeepAliveConnection>> {
    let mut connections = Vec::new();
    for _ in 0..load.clients {
        connections.push(KeepAliveConnection::open(https).await?);
    }
    Ok(connections)
}

/// Sends requests for this duration, from clients with these connections. Returns the sorted latencies, each from
/// the time when the request was due to the end of its response, including the handshake of a new connection.
pub(crate) async fn run(
    load: Load,
    connections: Vec<KeepAliveConnection>,
    body: &[u8],
    duration: Duration,
) -> Result<Vec<Duration>> {
    let mut clients = JoinSet::new();
    let start = Instant::now();
    for (first, mut connection) in (0..).zip(connections) {
        let request = request(body);
        clients.spawn(async move {
            let mut latencies = Vec::new();
            for n in (first..).step_by(load.clients as usize) {
                let at = |rate| start + Duration::from_secs(1) * n / rate;
                let due = load.rate.map_or_else(Instant::now, at);
                if due >= start + duration {
                    break;
                }
                // A timer has a resolution of 1 ms, which is the order of the latencies measured.
                while Instant::now() < due {
                    yield_now().await;
                }
                if load.connections == Connections::New {
                    connection = KeepAliveConnection::open(&connection.https).await?;
                }
                connection.exchange(&request).await?;
                latencies.push(due.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(client) = clients.join_next().await {
        latencies.extend(client??);
    }
    latencies.sort_unstable();
    Ok(latencies)
}

// === impl KeepAliveConnection ===

impl KeepAliveConnection {
    /// Opens a TLS connection.
    pub(crate) async fn open(https: &HttpsClient) -> Result<Self> {
        let stream = https.connect_tls().await?;
        Ok(Self {
            https: https.clone(),
            stream,
            response: Vec::with_capacity(16 << 10),
        })
    }

    /// Writes and flushes bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Sends a request and reads its response.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        self.send(request).await?;
        self.read_response().await
    }

    /// Reads one response. Returns an error unless it carries a patch.
    pub(crate) async fn read_response(&mut self) -> Result<()> {
        self.response.clear();
        let mut size = None;
        while size.is_none_or(|size| self.response.len() < size) {
            let read = self.stream.read_buf(&mut self.response).await?;
            ensure!(read > 0, "the server closed the connection");
            size = size.or_else(|| response_size(&self.response));
        }
        let ok = self.response.starts_with(b"HTTP/1.1 200 OK\r\n");
        ensure!(
            ok && contains(&self.response, b"\"patchType\""),
            "not injected: {}",
            String::from_utf8_lossy(&self.response)
        );
        Ok(())
    }
}

/// Returns the size of the whole response, once its head is complete.
fn response_size(response: &[u8]) -> Option<usize> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = position(response, b"\r\n\r\n")?;
    let length = &response[position(&response[..head], LENGTH)? + LENGTH.len()..];
    let digits = length.iter().take_while(|byte| byte.is_ascii_digit());
    Some(head + 4 + digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

fn contains(bytes: &[u8], pattern: &[u8]) -> bool {
    position(bytes, pattern).is_some()
}

fn position(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
}
