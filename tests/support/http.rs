//! An HTTP/1.1 client for one request per connection, over TCP, Unix sockets or any other stream.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use drainer::AdminAddress;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The limit of a response body, more than any test needs.
const MAX_BODY: usize = 64 << 20;

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextResponse {
    /// The status code.
    pub status: StatusCode,
    /// The body, which is text in all tests.
    pub body: String,
}

/// A client of one address, with a timeout for each request and a connection for each.
#[derive(Debug, Clone)]
pub struct Client {
    address: AdminAddress,
    timeout: Duration,
}

// === impl Client ===

impl Client {
    /// A client with a timeout of five seconds.
    pub fn new(address: AdminAddress) -> Self {
        Self {
            address,
            timeout: Duration::from_secs(5),
        }
    }

    /// The same client with another timeout.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The address of the server.
    pub fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// Sends `GET path`.
    ///
    /// # Errors
    /// Without a complete response within the timeout; any status is one.
    pub async fn get(&self, path: &str) -> Result<TextResponse> {
        self.send(Method::GET, path).await
    }

    /// Sends `POST path` without a body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn post(&self, path: &str) -> Result<TextResponse> {
        self.send(Method::POST, path).await
    }

    async fn send(&self, method: Method, path: &str) -> Result<TextResponse> {
        let context = format!("{method} {path} at {}", self.address);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .body(Full::default())?;
        timeout(self.timeout, exchange(&self.address, request))
            .await
            .map_err(|_| anyhow!("no response within {:?}", self.timeout))
            .flatten()
            .context(context)
    }
}

impl From<SocketAddr> for Client {
    fn from(address: SocketAddr) -> Self {
        Self::new(AdminAddress::Tcp(address))
    }
}

/// Sends a request on a new connection and reads the complete response, without a timeout.
///
/// # Errors
/// When the connection or the request fails.
pub async fn exchange(
    address: &AdminAddress,
    request: Request<Full<Bytes>>,
) -> Result<TextResponse> {
    match address {
        AdminAddress::Tcp(address) => {
            exchange_on(TcpStream::connect(address).await?, request).await
        }
        AdminAddress::Path(path) => exchange_on(UnixStream::connect(path).await?, request).await,
        // In the abstract namespace, the name of a socket begins with a zero byte.
        AdminAddress::Abstract(name) => {
            let path = format!("\0{name}");
            exchange_on(UnixStream::connect(Path::new(&path)).await?, request).await
        }
    }
}

/// Sends a request on this connection.
async fn exchange_on<S>(stream: S, request: Request<Full<Bytes>>) -> Result<TextResponse>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Drives the connection until the response is complete, and closes it then, or when this is cancelled.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let response: Response<_> = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
    let body = body.map_err(|error| anyhow!(error))?.to_bytes();
    Ok(TextResponse {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}
