//! The upstream server of the Envoys under test.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Body = Full<Bytes>;

/// A server in this process, which stops when all its clones are dropped. Over HTTP/1.1, and HTTP/2 by prior knowledge, it
/// responds to
///
/// - any path with 200 and the body of the request, after N ms with `?ms=N`;
/// - `Upgrade: echo` with 101, and then echoes bytes.
///
/// On a second port it echoes TCP. It never closes a connection, so that it causes no failure that a test counts.
#[derive(Debug, Clone)]
pub struct Upstream {
    http: SocketAddr,
    tcp: SocketAddr,
    _tasks: Arc<JoinSet<()>>,
}

// === impl Upstream ===

impl Upstream {
    /// Starts the server on two ports of 127.0.0.1.
    ///
    /// # Errors
    /// When they cannot be bound.
    pub async fn start() -> Result<Self> {
        let http = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (http_address, tcp_address) = (http.local_addr()?, tcp.local_addr()?);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(http, serve));
        tasks.spawn(accept(tcp, echo));
        Ok(Self {
            http: http_address,
            tcp: tcp_address,
            _tasks: Arc::new(tasks),
        })
    }

    /// The address of its HTTP port.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The address of its TCP port.
    pub fn tcp(&self) -> SocketAddr {
        self.tcp
    }
}

/// Serves each connection in a task that is aborted with this future.
pub async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(stream))),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream) {
    // Fails when the client disconnects.
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None);
    let service = service_fn(respond);
    let _ = server
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
}

async fn respond(request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let delay = requested_delay(&request);
    if request.headers().contains_key(UPGRADE) {
        return Ok(upgrade(request));
    }
    let body = request.into_body().collect().await?.to_bytes();
    sleep(delay).await;
    Ok(Response::new(Full::new(body)))
}

/// The `ms` of the query; zero without one.
fn requested_delay(request: &Request<Incoming>) -> Duration {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let delay = pairs.find(|(name, _)| name == "ms");
    let milliseconds = delay.and_then(|(_, ms)| ms.parse().ok());
    Duration::from_millis(milliseconds.unwrap_or(0))
}

fn upgrade(request: Request<Incoming>) -> Response<Body> {
    // Ends with the connection.
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            echo(TokioIo::new(upgraded)).await;
        }
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("echo"));
    response
}

async fn echo<S: AsyncRead + AsyncWrite>(stream: S) {
    let (mut read, mut write) = split(stream);
    // Fails when the client disconnects.
    let _ = copy(&mut read, &mut write).await;
}
