//! HTTP/1.1 clients.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::HeaderMap;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::CONNECTION;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::failure::{Failure, FailureKind, SendError};
use crate::pool::{HttpConnection, spawn_driver};
use crate::request::RequestTemplate;
use crate::target::{Connector, Protocol};

/// A connection that was closed before its next request arrived fails that within this time, at the latest.
const MAX_RACE: Duration = Duration::from_millis(500);

/// A connection without a request in flight.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: SendRequest<Full<Bytes>>,
    is_reused: bool,
    /// Drives the connection, and closes it when this is dropped.
    _driver: JoinSet<()>,
}

/// Sends a request on its own connection.
pub(super) async fn connection_per_request(
    connector: Arc<Connector>,
    request: Arc<RequestTemplate>,
) -> Result<(), Failure> {
    let connection = Http1Connection::open(&connector).await?;
    connection.send(&request).await?;
    Ok(())
}

// === impl Http1Connection ===

impl HttpConnection for Http1Connection {
    const ALPN: &[u8] = b"http/1.1";

    // Each is used often, so that none is idle for long.
    const CONNECTIONS: usize = 10;

    async fn open(connector: &Connector) -> Result<Self, Failure> {
        let (stream, guard) = connector.connect(Protocol::Http).await?;
        let (sender, driver) = handshake(TokioIo::new(stream))
            .await
            .map_err(Failure::refused)?;
        Ok(Self {
            sender,
            is_reused: false,
            _driver: spawn_driver(driver, guard),
        })
    }

    fn share(&self) -> Option<Self> {
        None
    }

    async fn send(mut self, template: &RequestTemplate) -> Result<Option<Self>, SendError> {
        let not_sent = |error: hyper::Error| SendError::NotSent(error.to_string());
        self.sender.ready().await.map_err(not_sent)?;
        let sent_at = Instant::now();
        let response = self.sender.try_send_request(template.http1()).await;
        let lost = if self.is_reused && sent_at.elapsed() < MAX_RACE {
            FailureKind::CutOnReused
        } else {
            FailureKind::CutInFlight
        };
        let response = response.map_err(|error| SendError::from_hyper(error, lost))?;
        let closes = announces_close(response.headers());
        let verified = template.verify_response(response).await;
        verified.map_err(SendError::Failed)?;
        self.is_reused = true;
        Ok((!closes).then_some(self))
    }
}

/// Returns true if the server closes the connection after this response, so that a client must not reuse it.
fn announces_close(headers: &HeaderMap) -> bool {
    let options = headers.get_all(CONNECTION).into_iter();
    options
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("close"))
}
