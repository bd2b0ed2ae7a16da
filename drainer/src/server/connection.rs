//! The server side of HTTP/1.1 for hooks: one request without a body, one response, close.
//!
//! A thousand hooks may wait for an hour each. So a waiting hook keeps nothing but its socket: it has no buffers, which in
//! hyper would take 13 KB for each hook.

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::timeout;

/// A connection whose request was read.
pub(crate) struct HookConnection<S>(S);

/// A response: status and body.
pub(crate) struct HookResponse {
    pub(crate) status: &'static str,
    pub(crate) body: String,
}

/// Maximum size of a request's head in bytes; a hook's has 200.
const MAX_HEAD: usize = 2048;

/// Maximum number of headers in a request.
const MAX_HEADERS: usize = 32;

/// Timeout to write a response, which fits into the socket's buffer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

// === impl HookConnection ===

impl<S: AsyncRead + AsyncWrite + Unpin> HookConnection<S> {
    /// Reads a request from `stream`. Returns its method and its path without a query, as in `GET /status`, with the
    /// connection; `None` if the client closed the connection, if `cancelled` completed before the request had arrived, or
    /// if it is not HTTP, which is answered with 400.
    pub(crate) async fn read(mut stream: S, cancelled: impl Future) -> Option<(String, Self)> {
        let result = {
            let mut read = pin!(read_head(&mut stream));
            tokio::select! {
                biased;
                result = &mut read => result,
                // Data that has arrived by now counts, even if this task was not woken for it yet.
                _ = cancelled => {
                    yield_now().await;
                    timeout(Duration::ZERO, read).await.ok()?
                }
            }
        };
        match result {
            Ok(request) => Some((request, Self(stream))),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let response = HookResponse::new("400 Bad Request", "not an HTTP/1.1 request\n");
                respond(stream, response).await;
                None
            }
            Err(_) => None,
        }
    }

    /// Waits for `response`, writes it and closes the connection. The wait has no timeout; it is cancelled if the client
    /// closes the connection.
    pub(crate) async fn respond_when_ready(mut self, response: impl Future<Output = HookResponse>) {
        let response = tokio::select! {
            biased;
            response = response => response,
            () = closed(&mut self.0) => return,
        };
        respond(self.0, response).await;
    }
}

/// Reads a request up to the end of its head. The error is `InvalidData` if it is not HTTP.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<String> {
    let mut head = Vec::with_capacity(512);
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                let target = request.path.unwrap_or_default();
                let path = target.split('?').next().unwrap_or(target);
                return Ok(format!("{} {path}", request.method.unwrap_or_default()));
            }
            Ok(httparse::Status::Partial) if head.len() < MAX_HEAD => {}
            Ok(httparse::Status::Partial) | Err(_) => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// Waits until the client has closed the connection. Data that it sends meanwhile is discarded.
async fn closed<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut ignored = [0; 64];
    while matches!(stream.read(&mut ignored).await, Ok(1..)) {}
}

async fn respond<S: AsyncWrite + Unpin>(mut stream: S, response: HookResponse) {
    let HookResponse { status, body } = response;
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let write = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    };
    // A client that does not read its response does not need it.
    drop(timeout(WRITE_TIMEOUT, write).await);
}

// === impl HookResponse ===

impl HookResponse {
    pub(crate) fn new(status: &'static str, body: &str) -> Self {
        let body = body.to_owned();
        Self { status, body }
    }

    pub(crate) fn not_found() -> Self {
        Self::new("404 Not Found", "not found\n")
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use tokio::io::{DuplexStream, duplex};
    use tokio::time::sleep;

    async fn read(sent: &[&str]) -> (Option<String>, String) {
        let (near, mut far) = duplex(64);
        let cancelled = sleep(Duration::from_secs(2));
        let reader = tokio::spawn(async {
            let connection = HookConnection::read(near, cancelled).await;
            connection.map(|(request, _)| request)
        });
        for part in sent {
            // The reader may have stopped already.
            let _ = far.write_all(part.as_bytes()).await;
        }
        if sent.last().is_some_and(|last| last.is_empty()) {
            far.shutdown().await.unwrap();
        }
        let mut response = String::new();
        let _ = far.read_to_string(&mut response).await;
        (reader.await.unwrap(), response)
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_read_however_it_is_split() {
        let long = format!("x: {}\r\n", "y".repeat(MAX_HEAD));
        let whole = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        let split: &[&str] = &["GET /a?b=c", " HTTP/1.1\r\n", "Host: x\r\n\r", "\n"];
        let table: [(&[&str], Option<&str>, &str); 8] = [
            (&[whole], Some("GET /a"), ""),
            (split, Some("GET /a"), ""),
            (&["POST /a/b HTTP/1.0\r\n\r\n"], Some("POST /a/b"), ""),
            (&["GET /a HTTP/1.1\r\n", ""], None, ""),
            (&[""], None, ""),
            (&["GET /a HTTP/1.1\r\n"], None, ""), // and then nothing more
            (&["\x16\x03\x01\x02"], None, "400"),
            (&["GET /a HTTP/1.1\r\n", &long], None, "400"),
        ];
        for (sent, want, status) in table {
            let (request, response) = read(sent).await;
            assert_eq!(request.as_deref(), want, "{sent:?}");
            let line = response.lines().next().unwrap_or_default();
            assert!(line.contains(status), "{sent:?}: {line}");
            assert_eq!(line.is_empty(), status.is_empty(), "{sent:?}: {line}");
        }
    }

    #[tokio::test]
    async fn request_that_has_arrived_is_read_despite_cancellation() {
        let (near, mut far) = tokio::net::UnixStream::pair().unwrap();
        far.write_all(b"GET /a HTTP/1.1\r\n\r\n").await.unwrap();
        // Cancelled at once, before the runtime knows that there is data to read.
        let (request, _) = HookConnection::read(near, async {}).await.unwrap();
        assert_eq!(request, "GET /a");
        let (near, _silent) = tokio::net::UnixStream::pair().unwrap();
        assert!(HookConnection::read(near, async {}).await.is_none());
    }

    /// A connection whose request was read, and its other end.
    async fn requested() -> (HookConnection<DuplexStream>, DuplexStream) {
        let (near, mut far) = duplex(1024);
        far.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let (_, connection) = HookConnection::read(near, pending::<()>()).await.unwrap();
        (connection, far)
    }

    #[tokio::test(start_paused = true)]
    async fn closed_connections_end_the_wait() {
        let (connection, mut far) = requested().await;
        let waiting = tokio::spawn(connection.respond_when_ready(pending()));
        far.write_all(b"more").await.unwrap();
        drop(far);
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn response_has_its_length_and_closes() {
        let (connection, mut far) = requested().await;
        let response = async { HookResponse::new("200 OK", "drained\n") };
        connection.respond_when_ready(response).await;
        let mut got = String::new();
        far.read_to_string(&mut got).await.unwrap();
        assert_eq!(
            got,
            "HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\ndrained\n"
        );
    }
}
