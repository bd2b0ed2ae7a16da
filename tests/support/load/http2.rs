//! HTTP/2 clients, without TLS.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use super::BODY;
use super::failure::{Failure, FailureKind, Unanswered};
use super::http1::{chain, check};
use super::shared::SharedConnection;
use crate::listener::Protocol;
use crate::service::Service;

/// A connection, shared by its requests.
#[derive(Debug, Clone)]
pub(super) struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection, and ends it after the last request.
    _driver: Arc<JoinSet<()>>,
}

// === impl Http2 ===

impl SharedConnection for Http2 {
    async fn open(service: &Service) -> Result<Self, Failure> {
        let refused = |error: String| Failure::new(FailureKind::Refused, error);
        let connection = service
            .connect(Protocol::Http)
            .await
            .map_err(|error| refused(error.to_string()))?;
        let (sender, driven) = handshake(TokioExecutor::new(), TokioIo::new(connection.stream))
            .await
            .map_err(|error| refused(chain(&error)))?;
        let open = connection.open;
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

    async fn post(mut self) -> Result<(), Unanswered> {
        let unsent = |error: hyper::Error| Unanswered::Unsent(chain(&error));
        self.sender.ready().await.map_err(unsent)?;
        let request = Request::post("http://edge.shop/")
            .body(Full::new(Bytes::from_static(BODY)))
            .expect("the address is constant");
        let answer = self.sender.try_send_request(request).await;
        let answer = answer.map_err(|mut error| match error.take_message() {
            Some(_) => Unanswered::Unsent(chain(error.error())),
            None => {
                let detail = chain(error.error());
                Unanswered::Failed(Failure::new(FailureKind::CutInFlight, detail))
            }
        })?;
        check(answer).await.map_err(Unanswered::Failed)
    }
}
