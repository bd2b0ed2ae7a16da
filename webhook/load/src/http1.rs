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
use crate::open_loop::{OpenLoopParams, within};
use crate::pool::{HttpConnection, spawn_driver};
use crate::request::RequestTemplate;
use crate::target::{Connector, Protocol};

/// A connection that was closed before its next request arrived fails that within this time, at the latest.
const MAX_RACE: Duration = Duration::from_millis(500);

/// How many connections idle clients keep.
const IDLE_CONNECTIONS: usize = 5;

/// How long they wait before they open the next one.
const IDLE_PAUSE: Duration = Duration::from_millis(200);

/// A connection without a request in flight.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: SendRequest<Full<Bytes>>,
    is_reused: bool,
    /// Drives the connection, and closes it when this is dropped.
    _driver: JoinSet<()>,
}

/// Sends a request on its own connection. Returns the connection if it may be kept.
pub(super) async fn connection_per_request(
    exchange: Arc<(Connector, RequestTemplate)>,
) -> Result<Option<Http1Connection>, Failure> {
    let (connector, request) = &*exchange;
    let connection = Http1Connection::open(connector).await?;
    Ok(connection.send(request).await?)
}

/// Keeps connections open after one request each, until the stop. Opens a new one, with its request, in place of one
/// that the server has closed.
pub(super) async fn run_idle(mut params: OpenLoopParams, exchange: (Connector, RequestTemplate)) {
    let exchange = Arc::new(exchange);
    let mut idle = Vec::<Http1Connection>::new();
    while let Some(()) = params.schedule.next().await {
        idle.retain(|connection| !connection.sender.is_closed());
        if idle.len() < IDLE_CONNECTIONS {
            let sent_at = params.tally.record_sent();
            let request = connection_per_request(Arc::clone(&exchange));
            let kept = within(params.request_timeout, request).await;
            let result = kept.map(|kept| idle.extend(kept));
            params.tally.record_result(sent_at, result);
        }
        params.schedule.postpone(IDLE_PAUSE);
    }
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
