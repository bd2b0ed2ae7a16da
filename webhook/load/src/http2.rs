//! HTTP/2 clients, which know beforehand that the server speaks it.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use crate::failure::{Failure, FailureKind, SendError, error_chain};
use crate::pool::{HttpConnection, spawn_driver};
use crate::request::RequestTemplate;
use crate::target::{Connector, Protocol};

/// A connection for concurrent requests.
#[derive(Debug, Clone)]
pub(super) struct Http2Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection, and closes it after the last request.
    _driver: Arc<JoinSet<()>>,
}

// === impl Http2Connection ===

impl HttpConnection for Http2Connection {
    const ALPN: &[u8] = b"h2";

    const CONNECTIONS: usize = 4;

    async fn open(connector: &Connector) -> Result<Self, Failure> {
        let (stream, guard) = connector.connect(Protocol::Http).await?;
        let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| Failure::refused(error_chain(&error)))?;
        Ok(Self {
            sender,
            _driver: Arc::new(spawn_driver(driver, guard)),
        })
    }

    fn share(&self) -> Option<Self> {
        Some(self.clone())
    }

    async fn send(mut self, template: &RequestTemplate) -> Result<Option<Self>, SendError> {
        let not_sent = |error: hyper::Error| SendError::NotSent(error_chain(&error));
        self.sender.ready().await.map_err(not_sent)?;
        let request = template.http2(Full::new(template.body()));
        let response = self.sender.try_send_request(request).await;
        let response =
            response.map_err(|error| SendError::from_hyper(error, FailureKind::CutInFlight))?;
        let verified = template.verify_response(response).await;
        verified.map_err(SendError::Failed)?;
        Ok(None)
    }
}
