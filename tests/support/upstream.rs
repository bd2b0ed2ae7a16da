//! The upstream server of the Envoys under test.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
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

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A server in this process, which stops when all its clones are dropped. Over HTTP/1.1, and HTTP/2 by prior knowledge, it
/// responds to
///
/// - any path with 200 and the body of the request, after N ms with `?ms=N`;
/// - `?pause=N` with 200, a first part of the body, and a last one N ms later;
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
    let delay = milliseconds(&request, "ms");
    if request.headers().contains_key(UPGRADE) {
        return Ok(upgrade(request));
    }
    if let Some(pause) = milliseconds(&request, "pause") {
        let parts = stream::iter([Duration::ZERO, pause]).then(|pause| async move {
            sleep(pause).await;
            Ok(Frame::data(Bytes::from_static(b"part")))
        });
        return Ok(Response::new(StreamBody::new(parts).boxed_unsync()));
    }
    let body = request.into_body().collect().await?.to_bytes();
    sleep(delay.unwrap_or_default()).await;
    Ok(Response::new(Full::new(body).boxed_unsync()))
}

/// A time in the query; `None` without one.
fn milliseconds(request: &Request<Incoming>, key: &str) -> Option<Duration> {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let (_, milliseconds) = pairs.find(|(name, _)| name == key)?;
    milliseconds.parse().ok().map(Duration::from_millis)
}

fn upgrade(request: Request<Incoming>) -> Response<Body> {
    // Ends with the connection.
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            echo(TokioIo::new(upgraded)).await;
        }
    });
    let mut response = Response::new(Body::default());
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
