//! `POST /inject` and `POST /workloads`: an AdmissionReview in, its answer out.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper::body::Body as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::body::{BodyError, BodyLimiter};
use super::connection::ReviewResponseMarker;
use super::limits::Limits;
use super::scheduler::Scheduler;
use crate::admission::{InvalidReview, ReviewResponse, SkippedPod};
use crate::metrics::Metrics;

/// Answers the bytes of an AdmissionReview with the bytes of its response.
pub type AdmitFn = dyn Fn(&[u8]) -> Result<ReviewResponse, InvalidReview> + Send + Sync;

/// One of the two webhooks.
#[derive(Clone)]
struct ReviewHandler {
    admit: Arc<AdmitFn>,
    body_limiter: Arc<BodyLimiter>,
    scheduler: Arc<Scheduler>,
    metrics: Arc<Metrics>,
    skipped_pods: Option<mpsc::Sender<SkippedPod>>,
}

/// A request that gets no answer from admission. The API server then does what its failurePolicy
/// says, and puts the sentence into its log.
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
    admit: Box<AdmitFn>,
    admit_workload: Box<AdmitFn>,
    limits: &Limits,
    metrics: &Arc<Metrics>,
    skipped_pods: Option<&mpsc::Sender<SkippedPod>>,
) -> Router {
    let bodies = Arc::new(BodyLimiter::new(limits));
    let scheduler = Arc::<Scheduler>::default();
    let reviewer = |admit: Box<AdmitFn>| ReviewHandler {
        admit: admit.into(),
        body_limiter: Arc::clone(&bodies),
        scheduler: Arc::clone(&scheduler),
        metrics: Arc::clone(metrics),
        skipped_pods: skipped_pods.cloned(),
    };
    Router::new()
        .route("/inject", post(handle_review).with_state(reviewer(admit)))
        .route(
            "/workloads",
            post(handle_review).with_state(reviewer(admit_workload)),
        )
}

async fn handle_review(
    State(reviewer): State<ReviewHandler>,
    ConnectInfo(source): ConnectInfo<IpAddr>,
    request: Request,
) -> Response {
    match reviewer.handle(request, source).await {
        Ok(review) => {
            let mut response = ([(CONTENT_TYPE, "application/json")], review).into_response();
            response.extensions_mut().insert(ReviewResponseMarker);
            response
        }
        Err(refused) => {
            reviewer.metrics.count_refused(refused.status().as_u16());
            refused.into_response()
        }
    }
}

// === impl ReviewHandler ===

impl ReviewHandler {
    async fn handle(&self, request: Request, source: IpAddr) -> Result<Vec<u8>, RequestError> {
        if !is_json(request.headers()) {
            return Err(RequestError::ContentType);
        }
        let body = request.into_body();
        // The API server always sends one: client-go makes a reader of the review's bytes, whose length
        // net/http takes. A body of one-byte chunks would cost half a core to read, so that it is not
        // even discarded.
        // <https://github.com/kubernetes/client-go/blob/master/rest/request.go>
        let length = body
            .size_hint()
            .exact()
            .ok_or(RequestError::MissingLength)?;
        let _in_flight = self.metrics.track_request();
        let body = self.body_limiter.read(body, length).await?;
        let turn = timeout_at(body.deadline, self.scheduler.acquire(source));
        let turn = turn.await.map_err(|_| BodyError::Busy)?;
        let started = Instant::now();
        let answer = (self.admit)(&body.bytes);
        let took = started.elapsed();
        drop(body);
        turn.finish(took).await;
        let answer = answer?;
        self.metrics.record_admission(&answer, took);
        if let Some(undrained) = answer.skipped_pod {
            self.queue_notification(undrained);
        }
        Ok(answer.body)
    }

    /// Has it told if anyone does so, and has the time.
    fn queue_notification(&self, undrained: SkippedPod) {
        let queue = self.skipped_pods.as_ref();
        if queue.is_some_and(|queue| queue.try_send(undrained).is_err()) {
            self.metrics.count_dropped_event();
        }
    }
}

/// Parameters are of no matter: JSON has none that change it.
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
        let mut response = (self.status(), format!("{self}\n")).into_response();
        if matches!(self, Self::Body(BodyError::Busy)) {
            // The API server's client tries again by itself, within its time-out, if it is told when.
            // <https://github.com/kubernetes/client-go/blob/master/rest/with_retry.go>
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(RETRY_AFTER, soon);
        }
        response
    }
}
