//! HTTP/1.1 clients.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::CONNECTION;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::failure::{Failure, FailureKind, SendError};
use super::open_loop::{OpenLoopParams, with_timeout};
use super::{BODY, ConnectionPool};
use crate::listener::Protocol;
use crate::service::Service;

/// A connection between two requests.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: SendRequest<Full<Bytes>>,
    is_reused: bool,
    /// Drives the connection, and ends it when this is dropped.
    _driver: JoinSet<()>,
}

/// Sends a request on the connection whose turn it is, or on a new one where that was closed.
pub(super) async fn keep_alive(
    service: Arc<Service>,
    slots: Arc<ConnectionPool<Http1Connection>>,
) -> Result<(), Failure> {
    let turn = slots.next_slot();
    let answered = match slots.take(turn) {
        Some(connection) => connection.post("/").await,
        None => Err(SendError::NotSent("no connection is kept".into())),
    };
    let kept = match answered {
        Ok(kept) => kept,
        Err(SendError::NotSent(_)) => Http1Connection::open(&service).await?.post("/").await?,
        Err(SendError::Failed(failure)) => return Err(failure),
    };
    slots.put(turn, kept);
    Ok(())
}

/// Sends a request on a connection of its own.
pub(super) async fn connection_per_request(
    service: Arc<Service>,
    path: String,
) -> Result<(), Failure> {
    Http1Connection::open(&service).await?.post(&path).await?;
    Ok(())
}

/// Sends one request and keeps the connection until the load is stopped.
pub(super) async fn idle(service: &Service, clients: OpenLoopParams) {
    let OpenLoopParams {
        request_timeout: limit,
        tally,
        mut stop,
        ..
    } = clients;
    tally.record_sent();
    let mut kept = None;
    let request = async {
        kept = Http1Connection::open(service).await?.post("/").await?;
        Ok(())
    };
    tally.record_result(with_timeout(limit, request).await);
    stop.stopped().await;
    drop(kept);
}

// === impl Http1 ===

impl Http1Connection {
    async fn open(service: &Service) -> Result<Self, Failure> {
        let refused = |error: String| Failure::new(FailureKind::Refused, error);
        let connection = service
            .connect(Protocol::Http)
            .await
            .map_err(|error| refused(error.to_string()))?;
        let (sender, driven) = handshake(TokioIo::new(connection.stream))
            .await
            .map_err(|error| refused(error.to_string()))?;
        let open = connection.guard;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Its error is told to the request that met it.
            let _ = driven.await;
            drop(open);
        });
        Ok(Self {
            sender,
            is_reused: false,
            _driver: driver,
        })
    }

    /// Sends one request, and returns the connection if another may follow on it.
    async fn post(mut self, path: &str) -> Result<Option<Self>, SendError> {
        let unsent = |error: hyper::Error| SendError::NotSent(error.to_string());
        self.sender.ready().await.map_err(unsent)?;
        let request = Request::post(path)
            .header("host", "edge.shop")
            .body(Full::new(Bytes::from_static(BODY)))
            .expect("the path was made from numbers");
        let answer = self.sender.try_send_request(request).await;
        let answer = answer.map_err(|mut error| match error.take_message() {
            Some(_) => SendError::NotSent(error_chain(error.error())),
            None => SendError::Failed(self.connection_lost(error.error())),
        })?;
        let closes = announces_close(answer.headers());
        verify_response(answer).await.map_err(SendError::Failed)?;
        self.is_reused = true;
        Ok((!closes).then_some(self))
    }

    /// A connection that ended before an answer began.
    fn connection_lost(&self, error: &hyper::Error) -> Failure {
        let kind = if self.is_reused {
            FailureKind::CutOnReused
        } else {
            FailureKind::CutInFlight
        };
        Failure::new(kind, error_chain(error))
    }
}

/// Whether the server closes the connection after this answer. Who sends another request then cannot
/// know whether it will be read.
fn announces_close(headers: &HeaderMap) -> bool {
    let options = headers.get_all(CONNECTION).into_iter();
    options
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("close"))
}

/// Reads the whole answer, and compares it with what it must be.
pub(super) async fn verify_response(answer: Response<Incoming>) -> Result<(), Failure> {
    let status = answer.status();
    let body = answer.into_body().collect().await;
    let body = body.map_err(|error| Failure::new(FailureKind::CutInFlight, error_chain(&error)))?;
    verify_content(status, &body.to_bytes())
}

/// Compares a whole answer with what it must be.
pub(super) fn verify_content(status: StatusCode, body: &[u8]) -> Result<(), Failure> {
    if status == 200 && body == BODY {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&body[..body.len().min(80)]);
    let detail = format!("{status}, `{body}`");
    Err(Failure::new(FailureKind::BadResponse, detail))
}

/// An error with its causes, which say what hyper's own words leave out.
pub(super) fn error_chain(error: &hyper::Error) -> String {
    let mut told = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}
