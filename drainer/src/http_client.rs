//! An HTTP/1.1 client with bounded bodies, and a connection for each call.
//!
//! A connection to Envoy that is kept stays with the process that accepted it: after a hot restart that is the one that
//! is ending. Connecting takes microseconds within a pod.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(test)]
use {crate::settings::admin_address::AdminAddress, tokio::io::DuplexStream};

/// Read buffer of a connection in bytes, for a head or a part of a body. Hyper's default grows to
/// 400 KiB.
const READ_BUFFER: usize = 8 << 10;

/// Why there is no response to a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpError {
    /// Nothing listens at the address: the only error that can prove an exit.
    #[error("connection refused")]
    ConnectionRefused,
    /// The socket does not admit the drainer's user.
    #[error("permission denied")]
    PermissionDenied,
    /// No usable response, perhaps of a peer that is hung or busy: worth a retry.
    #[error("{0}")]
    NoResponse(String),
    /// The response of a server that does not speak HTTP/1.
    #[error("{0}")]
    NotHttp(String),
    /// A body above the limit.
    #[error("response of more than {0} bytes")]
    TooLarge(usize),
}

#[cfg(test)]
tokio::task_local! {
    /// What connects in place of sockets, for tests in paused time: that runs ahead of real sockets.
    pub(crate) static IN_MEMORY: Box<dyn Fn(&AdminAddress) -> io::Result<DuplexStream>>;
    /// What responds to a request in place of a server, which may be `None`, for tests that make calls by the million.
    pub(crate) static RESPONSES:
        Box<dyn Fn(&AdminAddress, &Method, &str) -> Option<Result<Response<Bytes>, HttpError>>>;
}

/// Returns true in a test without sockets.
#[cfg(test)]
pub(crate) fn is_in_memory() -> bool {
    IN_MEMORY.try_with(|_| ()).is_ok() || RESPONSES.try_with(|_| ()).is_ok()
}

/// A request without a body. Envoy returns 400 without a host, and accepts any.
pub(crate) fn request(method: Method, path: &str) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(path);
    let builder = builder.header(header::HOST, "drainer");
    let request = builder.body(Full::default());
    request.expect("paths are written in this crate")
}

/// Waits for a connection, and says why there is none.
pub(crate) async fn connect<S>(
    connecting: impl Future<Output = io::Result<S>>,
) -> Result<S, HttpError> {
    connecting.await.map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => HttpError::ConnectionRefused,
        ErrorKind::PermissionDenied => HttpError::PermissionDenied,
        _ => HttpError::NoResponse(format!("cannot connect: {error}")),
    })
}

/// Sends one request on a connected `stream`, and reads the response. The connection is closed with the stream, also if
/// this is cancelled.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    request: Request<Full<Bytes>>,
    max_body: usize,
) -> Result<Response<Bytes>, HttpError> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BUFFER);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let response = async { read(sender.send_request(request).await?, max_body).await };
    let mut response = std::pin::pin!(response);
    tokio::select! {
        biased;
        response = &mut response => response,
        // It has ended, perhaps with the response in the sender's hands, which else reports the same error.
        _ = connection => response.await,
    }
}

/// Reads the body of a response into one buffer. Each frame is copied and dropped: if kept, a body in
/// frames of one byte each would take thirty times its size.
async fn read(response: Response<Incoming>, max: usize) -> Result<Response<Bytes>, HttpError> {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let data = frame.data_ref().map_or(&[][..], AsRef::as_ref);
        if bytes.len() + data.len() > max {
            return Err(HttpError::TooLarge(max));
        }
        bytes.extend_from_slice(data);
    }
    Ok(Response::from_parts(head, bytes.into()))
}

// === impl HttpError ===

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        let text = format!("broken response: {error}");
        if error.is_parse() {
            Self::NotHttp(text)
        } else {
            Self::NoResponse(text)
        }
    }
}
