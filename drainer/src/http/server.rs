//! One caller of the drainer's server: an HTTP/1.1 request without a body, one answer, the end.
//!
//! A caller may wait for an hour, and a thousand may. So nothing is kept while one waits but its
//! socket: no buffers (hyper's would be 13 KB for each), which is why this is not left to hyper.

use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::timeout;

/// A caller whose request was read.
pub(crate) struct HookConnection<S> {
    stream: S,
    pub(crate) request: HookRequest,
}

/// What a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookRequest {
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
}

/// An answer: status, media type, body.
pub(crate) struct HookResponse {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

/// The head of a hook's request has 200 bytes, ten times less.
const MAX_HEAD: usize = 2048;
const MAX_HEADERS: usize = 32;

/// An answer fits into the socket's buffer; whoever has not even room for that is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

// === impl HookConnection ===

impl<S: AsyncRead + AsyncWrite + Unpin> HookConnection<S> {
    /// Reads the request of whoever is at the other end of `stream`. Returns `None` if it went
    /// away, was `given_up` or does not speak HTTP, for which it gets a 400.
    pub(crate) async fn read(mut stream: S, cancelled: impl Future) -> Option<Self> {
        let read = {
            let mut reading = pin!(read_head(&mut stream));
            let in_time = tokio::select! {
                biased;
                read = &mut reading => Some(read),
                _ = cancelled => None,
            };
            match in_time {
                Some(read) => read,
                // What has arrived by now counts, though this task was not woken for it yet.
                None => {
                    yield_now().await;
                    timeout(Duration::ZERO, reading).await.ok()?
                }
            }
        };
        match read {
            Ok(request) => Some(Self { stream, request }),
            Err(HeadError::Closed) => None,
            Err(HeadError::Invalid) => {
                let told = HookResponse::text("400 Bad Request", "not an HTTP/1.1 request\n");
                respond(stream, told).await;
                None
            }
        }
    }

    /// Answers, and closes the connection. There is no time-out before the answer; whoever hangs
    /// up meanwhile is let go, and `answer` with it.
    pub(crate) async fn respond_when_ready(mut self, answer: impl Future<Output = HookResponse>) {
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = closed(&mut self.stream) => return,
        };
        respond(self.stream, answer).await;
    }
}

/// Why there is no request.
enum HeadError {
    Closed,
    Invalid,
}

async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Result<HookRequest, HeadError> {
    let mut head = Vec::with_capacity(512);
    loop {
        let read = stream.read_buf(&mut head).await;
        if read.map_err(|_| HeadError::Closed)? == 0 {
            return Err(HeadError::Closed);
        }
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                let (method, target) = (request.method, request.path);
                let path = target.map(|target| target.split('?').next().unwrap_or(target));
                return match (method, path) {
                    (Some(method), Some(path)) => Ok(HookRequest {
                        method: method.to_owned(),
                        path: path.to_owned(),
                    }),
                    _ => Err(HeadError::Invalid),
                };
            }
            Ok(httparse::Status::Partial) if head.len() < MAX_HEAD => {}
            Ok(httparse::Status::Partial) | Err(_) => return Err(HeadError::Invalid),
        }
    }
}

/// Waits until the other end has closed. What it sends meanwhile was not asked for.
async fn closed<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut ignored = [0; 64];
    while matches!(stream.read(&mut ignored).await, Ok(1..)) {}
}

async fn respond<S: AsyncWrite + Unpin>(mut stream: S, answer: HookResponse) {
    let HookResponse {
        status,
        content_type: kind,
        body,
    } = answer;
    let length = body.len();
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    )
    .into_bytes();
    bytes.extend(body);
    let written = async {
        stream.write_all(&bytes).await?;
        stream.shutdown().await
    };
    // Whoever does not take its answer does not need it.
    drop(timeout(WRITE_TIMEOUT, written).await);
}

// === impl HookResponse ===

impl HookResponse {
    pub(crate) fn text(status: &'static str, body: &str) -> Self {
        Self {
            status,
            content_type: "text/plain",
            body: body.as_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use tokio::io::duplex;
    use tokio::time::sleep;

    async fn read(sent: &[&str]) -> (Option<HookRequest>, String) {
        let (near, mut far) = duplex(64);
        let given_up = sleep(Duration::from_secs(2));
        let reader = tokio::spawn(async {
            let caller = HookConnection::read(near, given_up).await;
            caller.map(|caller| caller.request)
        });
        for part in sent {
            // The reader may have had enough already.
            let _ = far.write_all(part.as_bytes()).await;
        }
        if sent.last().is_some_and(|last| last.is_empty()) {
            far.shutdown().await.unwrap();
        }
        let mut answer = String::new();
        let _ = far.read_to_string(&mut answer).await;
        (reader.await.unwrap(), answer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_read_however_it_is_cut() {
        let request = |method: &str, path: &str| {
            let (method, path) = (method.to_owned(), path.to_owned());
            Some(HookRequest { method, path })
        };
        let long = format!("x: {}\r\n", "y".repeat(MAX_HEAD));
        let table: [(&[&str], _, &str); 8] = [
            (
                &["GET /a HTTP/1.1\r\nHost: x\r\n\r\n"],
                request("GET", "/a"),
                "",
            ),
            (
                &["GET /a?b=c", " HTTP/1.1\r\n", "Host: x\r\n\r", "\n"],
                request("GET", "/a"),
                "",
            ),
            (&["POST /a/b HTTP/1.0\r\n\r\n"], request("POST", "/a/b"), ""),
            (&["GET /a HTTP/1.1\r\n", ""], None, ""),
            (&[""], None, ""),
            (&["GET /a HTTP/1.1\r\n"], None, ""), // and then silence
            (&["\x16\x03\x01\x02"], None, "400"),
            (&["GET /a HTTP/1.1\r\n", &long], None, "400"),
        ];
        for (sent, want, status) in table {
            let (got, answer) = read(sent).await;
            assert_eq!(got, want, "{sent:?}");
            let line = answer.lines().next().unwrap_or_default();
            assert!(line.contains(status), "{sent:?}: {line}");
            assert_eq!(line.is_empty(), status.is_empty(), "{sent:?}: {line}");
        }
    }

    #[tokio::test]
    async fn a_request_that_has_arrived_is_read_before_it_is_given_up() {
        let (near, mut far) = tokio::net::UnixStream::pair().unwrap();
        far.write_all(b"GET /a HTTP/1.1\r\n\r\n").await.unwrap();
        // Given up at the first moment, before the runtime has seen that there is something to read.
        let caller = HookConnection::read(near, async {}).await.unwrap();
        assert_eq!(caller.request.path, "/a");
        let (near, _silent) = tokio::net::UnixStream::pair().unwrap();
        assert!(HookConnection::read(near, async {}).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_hangs_up_is_let_go() {
        let (near, mut far) = duplex(64);
        far.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let caller = HookConnection::read(near, pending::<()>()).await.unwrap();
        let waiting = tokio::spawn(caller.respond_when_ready(pending()));
        far.write_all(b"more").await.unwrap();
        drop(far);
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_says_its_length_and_closes() {
        let (near, mut far) = duplex(1024);
        far.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let caller = HookConnection::read(near, pending::<()>()).await.unwrap();
        let answer = async { HookResponse::text("200 OK", "drained\n") };
        caller.respond_when_ready(answer).await;
        let mut got = String::new();
        far.read_to_string(&mut got).await.unwrap();
        assert_eq!(
            got,
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 8\r\n\
             connection: close\r\n\r\ndrained\n"
        );
    }
}
