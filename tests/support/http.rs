//! One HTTP/1.1 exchange, over whatever carries bytes.

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

/// More than any answer that the tests ask for.
const MAX_BODY: usize = 64 << 20;

/// A server's answer, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextResponse {
    /// The status code.
    pub status: StatusCode,
    /// The body, which is text in all that the tests ask for.
    pub body: String,
}

/// A client of one address, with a time limit for each exchange; each has its own connection.
#[derive(Debug, Clone)]
pub struct Client {
    address: AdminAddress,
    timeout: Duration,
}

// === impl Client ===

impl Client {
    /// A client that gives an exchange five seconds.
    #[must_use]
    pub fn new(address: AdminAddress) -> Self {
        let limit = Duration::from_secs(5);
        Self {
            address,
            timeout: limit,
        }
    }

    /// The same client with another limit.
    #[must_use]
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Where it connects to.
    #[must_use]
    pub fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// Asks for `path`.
    ///
    /// # Errors
    /// When no whole answer came within the limit; any status is an answer.
    pub async fn get(&self, path: &str) -> Result<TextResponse> {
        self.send(Method::GET, path).await
    }

    /// Posts to `path`, without a body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn post(&self, path: &str) -> Result<TextResponse> {
        self.send(Method::POST, path).await
    }

    async fn send(&self, method: Method, path: &str) -> Result<TextResponse> {
        let what = format!("{method} {path} at {}", self.address);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .body(Full::default())?;
        timeout(self.timeout, exchange(&self.address, request))
            .await
            .map_err(|_| anyhow!("no answer within {:?}", self.timeout))
            .flatten()
            .context(what)
    }
}

impl From<SocketAddr> for Client {
    fn from(address: SocketAddr) -> Self {
        Self::new(AdminAddress::Tcp(address))
    }
}

/// Sends a request on a connection of its own and reads the whole answer. It has no time limit.
///
/// # Errors
/// When the connection or the exchange fails.
pub async fn exchange(
    address: &AdminAddress,
    request: Request<Full<Bytes>>,
) -> Result<TextResponse> {
    match address {
        AdminAddress::Tcp(address) => {
            exchange_on(TcpStream::connect(address).await?, request).await
        }
        AdminAddress::Path(path) => exchange_on(UnixStream::connect(path).await?, request).await,
        // A leading zero is how a path names a socket of the abstract namespace.
        AdminAddress::Abstract(name) => {
            let path = format!("\0{name}");
            exchange_on(UnixStream::connect(Path::new(&path)).await?, request).await
        }
    }
}

/// Sends a request on this connection and reads the whole answer. It has no time limit.
///
/// # Errors
/// When the exchange fails.
pub async fn exchange_on<S>(stream: S, request: Request<Full<Bytes>>) -> Result<TextResponse>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Drives the connection while the answer is awaited, and closes it then, also on a cancel.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let answer: Response<_> = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_BODY).collect().await;
    let body = body.map_err(|error| anyhow!(error))?.to_bytes();
    Ok(TextResponse {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}
