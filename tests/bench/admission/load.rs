//! The client: cheap enough to keep a server busy from one CPU, and strict about what it is answered.

use std::time::Duration;

use anyhow::{Result, ensure};
use tests::https::HttpsClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

/// One connection that is kept alive.
pub(crate) struct KeepAliveConnection {
    stream: TlsStream<TcpStream>,
    response: Vec<u8>,
}

/// `POST /inject` with this body, as bytes.
pub(crate) fn request(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /inject?timeout=5s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-apiserver-admission\r\n\
         Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Asks over so many connections, each again as soon as it is answered, and counts the answers.
pub(crate) async fn closed_loop(
    https: &HttpsClient,
    body: &[u8],
    connections: u32,
    time: Duration,
) -> Result<u64> {
    let mut clients = JoinSet::new();
    let start = Instant::now();
    for _ in 0..connections {
        let (mut wire, request) = (KeepAliveConnection::open(https).await?, request(body));
        clients.spawn(async move {
            let mut answered = 0;
            while start.elapsed() < time {
                wire.exchange(&request).await?;
                answered += 1;
            }
            anyhow::Ok(answered)
        });
    }
    let mut answered = 0;
    while let Some(client) = clients.join_next().await {
        answered += client??;
    }
    Ok(answered)
}

/// Asks `rate` times a second over so many connections, whatever the server does, and returns the
/// sorted times from when each request was due to its whole answer.
pub(crate) async fn open_loop(
    https: &HttpsClient,
    body: &[u8],
    connections: u32,
    rate: u32,
    time: Duration,
) -> Result<Vec<Duration>> {
    let mut wires = Vec::new();
    for _ in 0..connections {
        wires.push(KeepAliveConnection::open(https).await?);
    }
    let mut clients = JoinSet::new();
    let start = Instant::now();
    for (first, mut wire) in (0..).zip(wires) {
        let request = request(body);
        clients.spawn(async move {
            let mut times = Vec::new();
            for n in (first..).step_by(connections as usize) {
                let due = start + Duration::from_secs(1) * n / rate;
                if due >= start + time {
                    break;
                }
                // A timer would be late by up to its millisecond, which is what is measured.
                while Instant::now() < due {
                    yield_now().await;
                }
                wire.exchange(&request).await?;
                times.push(due.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(client) = clients.join_next().await {
        times.extend(client??);
    }
    times.sort_unstable();
    Ok(times)
}

// === impl Wire ===

impl KeepAliveConnection {
    /// Connects.
    pub(crate) async fn open(https: &HttpsClient) -> Result<Self> {
        let stream = https.connect_tls().await?;
        Ok(Self {
            stream,
            response: Vec::with_capacity(16 << 10),
        })
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        self.send(request).await?;
        self.read_response().await
    }

    /// Reads one answer, and makes sure that it injects.
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

/// The size of a whole answer, as soon as its head is there.
fn response_size(answer: &[u8]) -> Option<usize> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = position(answer, b"\r\n\r\n")?;
    let length = &answer[position(&answer[..head], LENGTH)? + LENGTH.len()..];
    let digits = length.iter().take_while(|byte| byte.is_ascii_digit());
    Some(head + 4 + digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    position(bytes, wanted).is_some()
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
