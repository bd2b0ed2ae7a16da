//! The address that clients connect to, and their connections to it.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::failure::{Failure, error_chain};
use crate::tls;
use crate::url::{HostPort, LoadUrl};

/// The timeout of a connection attempt, of TCP and of TLS together.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The address that clients connect to.
#[derive(Debug, Clone)]
pub enum Target {
    /// A host, whose name is resolved for each connection.
    Host(HostPort),
    /// The pods of a simulated Service.
    Endpoints(Arc<dyn Endpoints>),
}

/// Chooses the pod of a new connection, as a Service does.
pub trait Endpoints: Debug + Send + Sync {
    /// The address of the next pod, and what counts the connection to it.
    ///
    /// # Errors
    /// As a refused connection, if no pod has such a port or is ready.
    fn next(&self, protocol: Protocol) -> io::Result<(SocketAddr, ConnectionGuard)>;
}

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/2.
    Http,
    /// HTTP/3, over UDP.
    Http3,
    /// Any bytes.
    Tcp,
}

/// Counts a connection as open until it is dropped.
#[derive(Debug, Default)]
pub struct ConnectionGuard(#[expect(dead_code, reason = "counted by its `Arc`")] Option<Arc<()>>);

/// Opens the connections of one kind of clients.
#[derive(Clone)]
pub(crate) struct Connector {
    target: Target,
    server_name: String,
    /// `None` for connections without TLS.
    tls: Option<TlsConnector>,
}

/// A connection over TCP, with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

// === impl ConnectionGuard ===

impl ConnectionGuard {
    /// A guard whose connection is counted by the owners of `count`.
    pub fn new(count: &Arc<()>) -> Self {
        Self(Some(Arc::clone(count)))
    }
}

// === impl Target ===

impl Target {
    async fn next(&self, protocol: Protocol) -> io::Result<(SocketAddr, ConnectionGuard)> {
        match self {
            Self::Host(HostPort { host, port }) => {
                let no_address = || io::Error::new(io::ErrorKind::NotFound, "no address");
                let addresses = lookup_host((host.as_str(), *port)).await;
                let address = addresses.and_then(|mut it| it.next().ok_or_else(no_address));
                let unresolved =
                    |error| io::Error::other(format!("cannot resolve the host `{host}`: {error}"));
                Ok((address.map_err(unresolved)?, ConnectionGuard::default()))
            }
            Self::Endpoints(endpoints) => endpoints.next(protocol),
        }
    }
}

// === impl Connector ===

impl Connector {
    /// A connector for requests to this URL, which offers `protocol` in TLS (ALPN).
    pub(crate) fn new(target: Target, url: &LoadUrl, protocol: &[u8]) -> Self {
        Self {
            target,
            server_name: url.host().to_owned(),
            tls: url.is_tls().then(|| Arc::new(tls::config(protocol)).into()),
        }
    }

    /// Opens a connection, with TLS if the URL has it.
    pub(crate) async fn connect(
        &self,
        protocol: Protocol,
    ) -> Result<(Box<dyn Stream>, ConnectionGuard), Failure> {
        let connected = timeout(CONNECT_TIMEOUT, self.try_connect(protocol)).await;
        connected
            .unwrap_or_else(|_| Err(io::Error::other("no connection within 5 s")))
            .map_err(|error| Failure::refused(error_chain(&error)))
    }

    async fn try_connect(
        &self,
        protocol: Protocol,
    ) -> io::Result<(Box<dyn Stream>, ConnectionGuard)> {
        let (address, guard) = self.target.next(protocol).await?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok((Box::new(stream), guard));
        };
        let name = ServerName::try_from(self.server_name.clone()).map_err(io::Error::other)?;
        Ok((Box::new(tls.connect(name, stream).await?), guard))
    }

    /// The address for a connection over QUIC, and the name of the server.
    #[cfg(feature = "h3")]
    pub(crate) async fn quic_address(&self) -> io::Result<(SocketAddr, &str, ConnectionGuard)> {
        let (address, guard) = self.target.next(Protocol::Http3).await?;
        Ok((address, &self.server_name, guard))
    }
}
