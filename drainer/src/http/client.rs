//! A small HTTP/1.1 client: one address, one connection, one call in flight, every call bounded.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::admin_address::AdminAddress;

/// A peer in the same pod takes microseconds; one that takes a second is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Room for a head and for pieces of a body, in bytes. It is kept with the connection, and hyper's own
/// grows to 400 KiB.
const READ_BUFFER: usize = 8 << 10;

/// A client that keeps one connection to one address and opens it again when needed.
pub(crate) struct Client {
    address: AdminAddress,
    connection: Option<Connection>,
}

/// What was answered.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// How far a call may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    /// For the whole call, the connection included; `None` waits for as long as the peer lives.
    pub(crate) timeout: Option<Duration>,
    /// For the answer's body, in bytes.
    pub(crate) max_body: usize,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nothing listens there: the one error that can prove an end.
    #[error("connection refused")]
    ConnectionRefused,
    /// The connection could not be made for another reason.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// Connected, perhaps, but no whole answer in time: hung or busy.
    #[error("no answer within {}", crate::duration::format_go(*.0))]
    TimedOut(Duration),
    /// Half an answer, or none that is HTTP.
    #[error("broken answer: {0}")]
    Protocol(hyper::Error),
    /// More than was asked for.
    #[error("answer of more than {0} bytes")]
    TooLarge(usize),
}

/// A connection, and the task that drives it, which ends with it.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    task: AbortHandle,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(address: AdminAddress) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    /// Makes one call. After an error, or when dropped half-way, the next call opens a new connection.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        bounds: CallLimits,
    ) -> Result<HttpResponse, CallError> {
        // Out of `self` while in use: a call that is dropped takes its connection with it.
        let open = self.connection.take();
        let call = self.exchange(open, method, path, bounds.max_body);
        let (answer, open) = match bounds.timeout {
            Some(time) => timeout(time, call)
                .await
                .map_err(|_| CallError::TimedOut(time))??,
            None => call.await?,
        };
        self.connection = Some(open);
        Ok(answer)
    }

    async fn exchange(
        &self,
        open: Option<Connection>,
        method: Method,
        path: &str,
        max_body: usize,
    ) -> Result<(HttpResponse, Connection), CallError> {
        let kept = match open {
            Some(mut open) => open.sender.ready().await.is_ok().then_some(open),
            None => None,
        };
        let mut open = match kept {
            Some(open) => open,
            // The first call, or the peer has closed, as Envoy does after `connection: close`.
            None => self.connect().await?,
        };
        let mut request = Request::new(Empty::new());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("paths are written in this crate");
        // Envoy answers 400 without it, and takes any value.
        let host = header::HeaderValue::from_static("drainer");
        request.headers_mut().insert(header::HOST, host);
        let response = open
            .sender
            .send_request(request)
            .await
            .map_err(CallError::Protocol)?;
        let status = response.status();
        let body = read(response.into_body(), max_body).await?;
        Ok((HttpResponse { status, body }, open))
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let connect = async {
            match &self.address {
                AdminAddress::Tcp(address) => {
                    let stream = TcpStream::connect(address).await.map_err(connect_error)?;
                    handshake(TokioIo::new(stream)).await
                }
                AdminAddress::Path(path) => {
                    let stream = UnixStream::connect(path).await.map_err(connect_error)?;
                    handshake(TokioIo::new(stream)).await
                }
                AdminAddress::Abstract(name) => {
                    let stream = connect_abstract(name).map_err(connect_error)?;
                    handshake(TokioIo::new(stream)).await
                }
            }
        };
        timeout(CONNECT_TIMEOUT, connect)
            .await
            .map_err(|_| CallError::TimedOut(CONNECT_TIMEOUT))?
    }
}

/// Reads a body into one piece. A frame is copied and dropped as it comes: kept, a body in frames of
/// a byte each would take thirty times its size.
async fn read(mut body: Incoming, max: usize) -> Result<Bytes, CallError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(CallError::Protocol)?;
        let data = frame.data_ref().map_or(&[][..], AsRef::as_ref);
        if bytes.len() + data.len() > max {
            return Err(CallError::TooLarge(max));
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes.into())
}

/// Connects to a socket in the abstract namespace, which either succeeds or fails at once.
fn connect_abstract(name: &str) -> io::Result<UnixStream> {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

fn connect_error(error: io::Error) -> CallError {
    match error.kind() {
        ErrorKind::ConnectionRefused => CallError::ConnectionRefused,
        _ => CallError::Connect(error),
    }
}

async fn handshake<S>(stream: S) -> Result<Connection, CallError>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BUFFER);
    let handshake = builder.handshake(stream).await;
    let (sender, connection) = handshake.map_err(CallError::Protocol)?;
    // Its error is the sender's too.
    let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
    Ok(Connection { sender, task })
}

// === impl Connection ===

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
