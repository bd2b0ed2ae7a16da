//! HTTP/2 clients, without TLS.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use crate::BODY;
use crate::failure::{Failure, FailureKind, SendError, error_chain};
use crate::pool::{HttpConnection, spawn_driver};
use crate::response::verify_response;
use crate::service::Protocol;
use crate::service::Service;

/// A connection for concurrent requests.
#[derive(Debug, Clone)]
pub(super) struct Http2Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection, and closes it after the last request.
    _driver: Arc<JoinSet<()>>,
}

// === impl Http2Connection ===

impl HttpConnection for Http2Connection {
    async fn open(service: &Service) -> Result<Self, Failure> {
        let (stream, guard) = service
            .connect(Protocol::Http)
            .await
            .map_err(Failure::refused)?;
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

    async fn post(mut self, path: &str) -> Result<Option<Self>, SendError> {
        let not_sent = |error: hyper::Error| SendError::NotSent(error_chain(&error));
        self.sender.ready().await.map_err(not_sent)?;
        let request = Request::post(format!("http://edge.shop{path}"))
            .body(Full::new(Bytes::from_static(BODY)))
            .expect("the address is constant");
        let response = self.sender.try_send_request(request).await;
        let response =
            response.map_err(|error| SendError::from_hyper(error, FailureKind::CutInFlight))?;
        verify_response(response).await.map_err(SendError::Failed)?;
        Ok(None)
    }
}
