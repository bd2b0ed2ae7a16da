//! An HTTP/1.1 client with one address, one connection, and at most one bounded call at a time.

use std::io::{self, ErrorKind};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::admin_address::AdminAddress;

/// Timeout to connect, which takes microseconds within a pod.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Read buffer of a connection in bytes, for a head or a part of a body. Hyper's default grows to
/// 400 KiB.
const READ_BUFFER: usize = 8 << 10;

/// A client that keeps one connection to one address and reconnects when needed.
pub(crate) struct Client {
    address: AdminAddress,
    connection: Option<Connection>,
}

/// Why a call has no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nothing listens at the address: the only error that can prove an exit.
    #[error("connection refused")]
    ConnectionRefused,
    /// Another failure to connect.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// No complete response in time, perhaps connected: the peer is hung or busy.
    #[error("no response within {}", crate::duration::format(*.0))]
    TimedOut(Duration),
    /// An incomplete response, or one that is not HTTP.
    #[error("broken response: {0}")]
    Protocol(hyper::Error),
    /// A body above the limit.
    #[error("response of more than {0} bytes")]
    TooLarge(usize),
}

/// A connection and the task that drives it, which is aborted on drop.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    task: AbortHandle,
}

// === impl Client ===

impl Client {
    /// A client of `address`, not connected yet.
    pub(crate) fn new(address: AdminAddress) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    /// Makes one call. If it fails or is cancelled, the next call opens a new connection.
    ///
    /// `limit` is the timeout of the whole call, including the connection; with `None`, it waits until
    /// the peer closes. `max_body` is the maximum size of the response's body, in bytes.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        limit: Option<Duration>,
        max_body: usize,
    ) -> Result<Response<Bytes>, CallError> {
        // Out of `self` while in use, so that a cancelled call closes its connection.
        let kept = self.connection.take();
        let call = self.exchange(kept, method, path, max_body);
        let (response, connection) = match limit {
            Some(limit) => timeout(limit, call)
                .await
                .map_err(|_| CallError::TimedOut(limit))??,
            None => call.await?,
        };
        self.connection = Some(connection);
        Ok(response)
    }

    async fn exchange(
        &self,
        kept: Option<Connection>,
        method: Method,
        path: &str,
        max_body: usize,
    ) -> Result<(Response<Bytes>, Connection), CallError> {
        // The peer may have closed the kept connection, even at this moment. Every call is idempotent, so it is
        // made again: <https://www.rfc-editor.org/rfc/rfc9112#section-9.3.1>.
        if let Some(mut connection) = kept
            && let Ok(response) = connection.send(&method, path).await
        {
            return Ok((read(response, max_body).await?, connection));
        }
        let mut connection = self.connect().await?;
        let response = connection.send(&method, path).await;
        let response = response.map_err(CallError::Protocol)?;
        Ok((read(response, max_body).await?, connection))
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let connect = async {
            match &self.address {
                AdminAddress::Tcp(address) => handshake(TcpStream::connect(address).await).await,
                AdminAddress::Path(path) => handshake(UnixStream::connect(path).await).await,
                // Tokio takes a path that begins with NUL for a name in the abstract namespace.
                AdminAddress::Abstract(name) => {
                    handshake(UnixStream::connect(format!("\0{name}")).await).await
                }
            }
        };
        timeout(CONNECT_TIMEOUT, connect)
            .await
            .map_err(|_| CallError::TimedOut(CONNECT_TIMEOUT))?
    }
}

/// Reads the body of a response into one buffer. Each frame is copied and dropped: if kept, a body in
/// frames of one byte each would take thirty times its size.
async fn read(response: Response<Incoming>, max: usize) -> Result<Response<Bytes>, CallError> {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(CallError::Protocol)?;
        let data = frame.data_ref().map_or(&[][..], AsRef::as_ref);
        if bytes.len() + data.len() > max {
            return Err(CallError::TooLarge(max));
        }
        bytes.extend_from_slice(data);
    }
    Ok(Response::from_parts(head, bytes.into()))
}

/// Begins HTTP on a connected stream.
async fn handshake<S>(connected: io::Result<S>) -> Result<Connection, CallError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = connected.map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => CallError::ConnectionRefused,
        _ => CallError::Connect(error),
    })?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BUFFER);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(CallError::Protocol)?;
    // The sender reports the same error.
    let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
    Ok(Connection { sender, task })
}

// === impl Connection ===

impl Connection {
    /// Sends a request, and receives the head of the response.
    async fn send(
        &mut self,
        method: &Method,
        path: &str,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.ready().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            // Envoy returns 400 without it, and accepts any value.
            .header(header::HOST, "drainer")
            .body(Empty::new())
            .expect("paths are written in this crate");
        self.sender.send_request(request).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
