//! HTTP/3 clients, over QUIC.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3::error::StreamError;
use h3_quinn::OpenStreams;
use quinn::crypto::rustls::QuicClientConfig;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::failure::{Failure, FailureKind, SendError, error_chain};
use crate::pool::{HttpConnection, spawn_driver};
use crate::request::RequestTemplate;
use crate::target::{CONNECT_TIMEOUT, Connector};
use crate::tls;

/// A connection for concurrent requests.
#[derive(Clone)]
pub(super) struct Http3Connection {
    sender: SendRequest<OpenStreams, Bytes>,
    connection: quinn::Connection,
    /// Drives the connection, and closes it after the last request.
    _driver: Arc<JoinSet<()>>,
}

// === impl Http3Connection ===

impl HttpConnection for Http3Connection {
    const ALPN: &[u8] = b"h3";

    const CONNECTIONS: usize = 4;

    async fn open(connector: &Connector) -> Result<Self, Failure> {
        let refused = |error: &dyn Error| Failure::refused(error_chain(error));
        let address = connector.quic_address().await;
        let (address, server_name, guard) = address.map_err(|error| refused(&error))?;
        let connection = timeout(CONNECT_TIMEOUT, connect(address, server_name)).await;
        let connection = connection.map_err(|_| Failure::refused("no handshake"))?;
        let connection = connection.map_err(|error| refused(&error))?;
        let quic = h3_quinn::Connection::new(connection.clone());
        let opened = h3::client::new(quic).await;
        let (mut driver, sender) = opened.map_err(|error| refused(&error))?;
        let driver = async move { driver.wait_idle().await };
        Ok(Self {
            sender,
            connection,
            _driver: Arc::new(spawn_driver(driver, guard)),
        })
    }

    fn share(&self) -> Option<Self> {
        Some(self.clone())
    }

    async fn send(mut self, template: &RequestTemplate) -> Result<Option<Self>, SendError> {
        if let Some(reason) = self.connection.close_reason() {
            return Err(SendError::NotSent(reason.to_string()));
        }
        let mut stream = match self.sender.send_request(template.http2(())).await {
            Ok(stream) => stream,
            // This is checked before anything is sent.
            Err(error @ StreamError::RemoteClosing { .. }) => {
                return Err(SendError::NotSent(error.to_string()));
            }
            Err(error) => return Err(connection_lost(&error)),
        };
        let exchange = async {
            let body = template.body();
            if !body.is_empty() {
                stream.send_data(body).await?;
            }
            stream.finish().await?;
            let head = stream.recv_response().await?;
            let mut body = Vec::new();
            while let Some(mut chunk) = stream.recv_data().await? {
                body.extend_from_slice(&chunk.copy_to_bytes(chunk.remaining()));
            }
            Ok((head, body))
        };
        let (head, body) = exchange.await.map_err(|error| connection_lost(&error))?;
        let (head, ()) = head.into_parts();
        let verified = template.verify(&head, &body, None);
        verified.map_err(SendError::Failed)?;
        Ok(None)
    }
}

fn connection_lost(error: &StreamError) -> SendError {
    SendError::Failed(Failure::new(FailureKind::CutInFlight, error.to_string()))
}

/// Connects from its own socket, as each client of a Service does.
async fn connect(address: SocketAddr, server_name: &str) -> io::Result<quinn::Connection> {
    let config =
        QuicClientConfig::try_from(tls::config(Http3Connection::ALPN)).map_err(io::Error::other)?;
    let config = quinn::ClientConfig::new(Arc::new(config));
    let any = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let endpoint = quinn::Endpoint::client(any)?;
    let connection = endpoint.connect_with(config, address, server_name);
    Ok(connection.map_err(io::Error::other)?.await?)
}
