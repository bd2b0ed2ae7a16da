//! HTTP/2 clients, without TLS.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use super::BODY;
use super::failure::{Failure, FailureKind, SendError};
use super::http1::{error_chain, verify_response};
use super::shared::MultiplexedConnection;
use crate::listener::Protocol;
use crate::service::Service;

/// A connection, shared by its requests.
#[derive(Debug, Clone)]
pub(super) struct Http2Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection, and ends it after the last request.
    _driver: Arc<JoinSet<()>>,
}

// === impl Http2 ===

impl MultiplexedConnection for Http2Connection {
    async fn open(service: &Service) -> Result<Self, Failure> {
        let refused = |error: String| Failure::new(FailureKind::Refused, error);
        let connection = service
            .connect(Protocol::Http)
            .await
            .map_err(|error| refused(error.to_string()))?;
        let (sender, driven) = handshake(TokioExecutor::new(), TokioIo::new(connection.stream))
            .await
            .map_err(|error| refused(error_chain(&error)))?;
        let open = connection.guard;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Its error is told to the requests that met it.
            let _ = driven.await;
            drop(open);
        });
        Ok(Self {
            sender,
            _driver: Arc::new(driver),
        })
    }

    async fn post(mut self) -> Result<(), SendError> {
        let unsent = |error: hyper::Error| SendError::NotSent(error_chain(&error));
        self.sender.ready().await.map_err(unsent)?;
        let request = Request::post("http://edge.shop/")
            .body(Full::new(Bytes::from_static(BODY)))
            .expect("the address is constant");
        let answer = self.sender.try_send_request(request).await;
        let answer = answer.map_err(|mut error| match error.take_message() {
            Some(_) => SendError::NotSent(error_chain(error.error())),
            None => {
                let detail = error_chain(error.error());
                SendError::Failed(Failure::new(FailureKind::CutInFlight, detail))
            }
        })?;
        verify_response(answer).await.map_err(SendError::Failed)
    }
}
