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

/// Maximum size of a request's head in bytes; a hook's has 200.
const MAX_HEAD: usize = 2048;

/// Maximum number of headers in a request.
const MAX_HEADERS: usize = 32;

/// Timeout to write a response, which fits into the socket's buffer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one request, and closes the connection. `respond` gets its method and its target, as in
/// `GET /status`. The wait for its response has no timeout; it is cancelled if the client closes the connection. There is
/// no response if `cancelled` completes before the request has arrived. What is not HTTP is answered with 400.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    cancelled: impl Future,
    respond: impl AsyncFnOnce(String) -> String,
) {
    let response = match read(&mut stream, cancelled).await {
        Ok(request) => tokio::select! {
            biased;
            response = respond(request) => response,
            () = closed(&mut stream) => return,
        },
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            response("400 Bad Request", "not an HTTP/1.1 request\n")
        }
        Err(_) => return,
    };
    let write = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await
    };
    // A client that does not read its response does not need it.
    drop(timeout(WRITE_TIMEOUT, write).await);
}

/// Reads a request unless `cancelled` completes before it has arrived.
async fn read(stream: &mut (impl AsyncRead + Unpin), cancelled: impl Future) -> io::Result<String> {
    let mut read = pin!(read_head(stream));
    tokio::select! {
        biased;
        request = &mut read => request,
        // Data that has arrived by now counts, even if this task was not woken for it yet.
        _ = cancelled => {
            yield_now().await;
            timeout(Duration::ZERO, read).await?
        }
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
                return Ok(format!("{} {target}", request.method.unwrap_or_default()));
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

/// Formats a response, after which the connection is closed.
pub(crate) fn response(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use tokio::io::{DuplexStream, duplex};
    use tokio::time::sleep;

    /// Responds with the request.
    async fn echo(stream: impl AsyncRead + AsyncWrite + Unpin, cancelled: impl Future) {
        let respond = async |request: String| response("200 OK", &request);
        serve(stream, cancelled, respond).await;
    }

    /// Sends these parts. Returns the response; empty without one.
    async fn send(sent: &[&str]) -> String {
        let (near, mut far) = duplex(64);
        let cancelled = sleep(Duration::from_secs(2));
        let server = tokio::spawn(echo(near, cancelled));
        for part in sent {
            // The server may have stopped reading already.
            let _ = far.write_all(part.as_bytes()).await;
        }
        if sent.last().is_some_and(|last| last.is_empty()) {
            far.shutdown().await.unwrap();
        }
        let mut response = String::new();
        let _ = far.read_to_string(&mut response).await;
        server.await.unwrap();
        response
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_read_however_it_is_split() {
        let long = format!("x: {}\r\n", "y".repeat(MAX_HEAD));
        let whole = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        let split: &[&str] = &["GET /a?b=c", " HTTP/1.1\r\n", "Host: x\r\n\r", "\n"];
        let table: [(&[&str], &str, &str); 8] = [
            (&[whole], "200", "GET /a"),
            (split, "200", "GET /a?b=c"),
            (&["POST /a/b HTTP/1.0\r\n\r\n"], "200", "POST /a/b"),
            (&["GET /a HTTP/1.1\r\n", ""], "", ""),
            (&[""], "", ""),
            (&["GET /a HTTP/1.1\r\n"], "", ""), // and then nothing more
            (&["\x16\x03\x01\x02"], "400", "not an HTTP/1.1 request\n"),
            (
                &["GET /a HTTP/1.1\r\n", &long],
                "400",
                "not an HTTP/1.1 request\n",
            ),
        ];
        for (sent, status, body) in table {
            let response = send(sent).await;
            let (head, text) = response.split_once("\r\n\r\n").unwrap_or_default();
            let line = head.lines().next().unwrap_or_default();
            assert_eq!(
                line.split(' ').nth(1).unwrap_or_default(),
                status,
                "{sent:?}"
            );
            assert_eq!(text, body, "{sent:?}");
            assert_eq!(
                response.is_empty(),
                status.is_empty(),
                "{sent:?}: {response}"
            );
        }
    }

    #[tokio::test]
    async fn request_that_has_arrived_is_read_despite_cancellation() {
        for (sent, want) in [("GET /a HTTP/1.1\r\n\r\n", "GET /a"), ("", "")] {
            let (near, mut far) = tokio::net::UnixStream::pair().unwrap();
            far.write_all(sent.as_bytes()).await.unwrap();
            // Cancelled at once, before the runtime knows that there is data to read.
            echo(near, async {}).await;
            let mut response = String::new();
            far.read_to_string(&mut response).await.unwrap();
            assert!(response.ends_with(want), "{response}");
            assert_eq!(response.is_empty(), want.is_empty(), "{response}");
        }
    }

    /// The client's end of a connection whose request is served.
    async fn request(
        respond: impl AsyncFnOnce(String) -> String,
    ) -> (impl Future<Output = ()>, DuplexStream) {
        let (near, mut far) = duplex(1024);
        far.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        (serve(near, pending::<()>(), respond), far)
    }

    #[tokio::test(start_paused = true)]
    async fn closed_connections_end_the_wait() {
        let (serve, mut far) = request(async |_| pending().await).await;
        let waiting = tokio::spawn(serve);
        far.write_all(b"more").await.unwrap();
        drop(far);
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn response_has_its_length_and_closes() {
        let (serve, mut far) = request(async |_| response("200 OK", "drained\n")).await;
        serve.await;
        let mut got = String::new();
        far.read_to_string(&mut got).await.unwrap();
        assert_eq!(
            got,
            "HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\ndrained\n"
        );
    }
}
