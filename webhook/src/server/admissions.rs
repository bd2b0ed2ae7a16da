//! `POST /inject`, `/inject-all` and `/workloads`: the HTTP handlers of AdmissionReviews.

mod body;
mod log;
mod metrics;

use std::net::IpAddr;
use std::sync::Arc;

use admission::{InvalidReview, ReviewResponse};
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper::body::Body as _;
use tokio::time::{Instant, timeout_at};

use super::limits::Limits;
use super::scheduler::Scheduler;
use crate::events::EventQueue;
use body::{BodyError, BodyLimiter};
use log::AdmissionLog;
use metrics::AdmissionLabels;

pub(super) use metrics::Metrics;

/// Turns the bytes of an AdmissionReview into its response, which may also deny the pod.
pub type AdmitFn = dyn Fn(&[u8]) -> Result<ReviewResponse, InvalidReview> + Send + Sync;

/// Reads reviews, admits their objects, and logs and counts the outcomes. All paths share it.
struct ReviewHandler {
    body_limiter: BodyLimiter,
    scheduler: Arc<Scheduler>,
    log: AdmissionLog,
    metrics: Metrics,
    events: Option<EventQueue>,
}

/// Why a request is answered with an HTTP error. The API server then applies its failurePolicy, and logs the
/// message.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("the Content-Type must be application/json")]
    ContentType,
    #[error("the request has no Content-Length")]
    MissingLength,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Review(#[from] InvalidReview),
}

/// The router of the TLS port.
pub(super) fn router(
    admissions: Vec<(&'static str, Box<AdmitFn>)>,
    limits: &Limits,
    metrics: Metrics,
    scheduler: Arc<Scheduler>,
    events: Option<EventQueue>,
) -> Router {
    let handler = Arc::new(ReviewHandler {
        body_limiter: BodyLimiter::new(limits),
        scheduler,
        log: AdmissionLog::new(),
        metrics,
        events,
    });
    let routes = admissions.into_iter();
    routes.fold(Router::new(), |router, (path, admit)| {
        let admit: Arc<AdmitFn> = Arc::from(admit);
        router.route(
            path,
            post(respond).with_state((Arc::clone(&handler), admit)),
        )
    })
}

async fn respond(
    State((handler, admit)): State<(Arc<ReviewHandler>, Arc<AdmitFn>)>,
    ConnectInfo(source): ConnectInfo<IpAddr>,
    request: Request,
) -> Result<impl IntoResponse, RequestError> {
    let review = handler.handle(&*admit, request, source).await;
    let review =
        review.inspect_err(|error| handler.metrics.count_rejected_request(error.status()))?;
    Ok(([(CONTENT_TYPE, "application/json")], review))
}

// === impl ReviewHandler ===

impl ReviewHandler {
    async fn handle(
        &self,
        admit: &AdmitFn,
        request: Request,
        source: IpAddr,
    ) -> Result<Vec<u8>, RequestError> {
        if !is_json(request.headers()) {
            return Err(RequestError::ContentType);
        }
        let body = request.into_body();
        // API servers always send a Content-Length: client-go makes a reader of the review's bytes, and net/http
        // takes its length. A body of one-byte chunks would cost half a core to read, so it is not read at all.
        // <https://github.com/kubernetes/client-go/blob/master/rest/request.go>
        let length = body
            .size_hint()
            .exact()
            .ok_or(RequestError::MissingLength)?;
        let _in_flight = self.metrics.track_request();
        let body = self.body_limiter.read(body, length).await?;
        let permit = timeout_at(body.deadline, self.scheduler.acquire(source, length)).await;
        let permit = permit.map_err(|_| BodyError::Busy)?;
        let started = Instant::now();
        let result = admit(&body.bytes);
        let took = started.elapsed();
        drop(body);
        permit.finish(took).await;
        let response = result?;
        let first_code = response.diagnostics.first().map(|first| first.code);
        let labels = AdmissionLabels::new(response.outcome, first_code);
        self.log.log(&response, &labels, source);
        self.metrics.count_admission(&labels, took);
        if let (Some(events), Some(skipped_pod)) = (&self.events, response.skipped_pod) {
            events.send(skipped_pod.into());
        }
        Ok(response.body)
    }
}

/// Returns true for JSON, whatever the parameters: none changes how JSON is read.
fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json"))
}

// === impl RequestError ===

impl RequestError {
    fn status(&self) -> StatusCode {
        match self {
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::MissingLength => StatusCode::LENGTH_REQUIRED,
            Self::Body(BodyError::TooLarge(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyError::TooSlow(_)) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(BodyError::Busy) => StatusCode::TOO_MANY_REQUESTS,
            Self::Body(BodyError::Incomplete) | Self::Review(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        // The API server's client retries by itself, within its timeout, if the response says when, in seconds.
        // <https://github.com/kubernetes/client-go/blob/master/rest/with_retry.go>
        let is_busy = matches!(self, Self::Body(BodyError::Busy));
        let retry_after = is_busy.then_some([(RETRY_AFTER, "1")]);
        (self.status(), retry_after, format!("{self}\n")).into_response()
    }
}
