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

use super::body::{Bodies, NoBody};
use super::connection::AnswersReview;
use super::limits::Limits;
use super::scheduler::Scheduler;
use crate::admission::{Answer, NotAReview, Undrained};
use crate::report::Report;

/// Answers the bytes of an AdmissionReview with the bytes of its response.
pub type Admit = dyn Fn(&[u8]) -> Result<Answer, NotAReview> + Send + Sync;

/// One of the two webhooks.
#[derive(Clone)]
struct Reviewer {
    admit: Arc<Admit>,
    bodies: Arc<Bodies>,
    scheduler: Arc<Scheduler>,
    report: Arc<Report>,
    undrained: Option<mpsc::Sender<Undrained>>,
}

/// A request that gets no answer from admission. The API server then does what its failurePolicy
/// says, and puts the sentence into its log.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the Content-Type must be application/json")]
    ContentType,
    #[error("the request has no Content-Length")]
    NoLength,
    #[error(transparent)]
    Body(#[from] NoBody),
    #[error(transparent)]
    Review(#[from] NotAReview),
}

/// The router of the TLS port.
pub(super) fn router(
    admit: Box<Admit>,
    advise: Box<Admit>,
    limits: &Limits,
    report: &Arc<Report>,
    undrained: Option<&mpsc::Sender<Undrained>>,
) -> Router {
    let bodies = Arc::new(Bodies::new(limits));
    let scheduler = Arc::<Scheduler>::default();
    let reviewer = |admit: Box<Admit>| Reviewer {
        admit: admit.into(),
        bodies: Arc::clone(&bodies),
        scheduler: Arc::clone(&scheduler),
        report: Arc::clone(report),
        undrained: undrained.cloned(),
    };
    Router::new()
        .route("/inject", post(review).with_state(reviewer(admit)))
        .route("/workloads", post(review).with_state(reviewer(advise)))
}

async fn review(
    State(reviewer): State<Reviewer>,
    ConnectInfo(source): ConnectInfo<IpAddr>,
    request: Request,
) -> Response {
    match reviewer.answer(request, source).await {
        Ok(review) => {
            let mut response = ([(CONTENT_TYPE, "application/json")], review).into_response();
            response.extensions_mut().insert(AnswersReview);
            response
        }
        Err(refused) => {
            reviewer.report.refused(refused.status().as_u16());
            refused.into_response()
        }
    }
}

// === impl Reviewer ===

impl Reviewer {
    async fn answer(&self, request: Request, source: IpAddr) -> Result<Vec<u8>, Refused> {
        if !is_json(request.headers()) {
            return Err(Refused::ContentType);
        }
        let body = request.into_body();
        // The API server always sends one: client-go makes a reader of the review's bytes, whose length
        // net/http takes. A body of one-byte chunks would cost half a core to read, so that it is not
        // even discarded.
        // <https://github.com/kubernetes/client-go/blob/master/rest/request.go>
        let length = body.size_hint().exact().ok_or(Refused::NoLength)?;
        let _in_flight = self.report.in_flight();
        let body = self.bodies.receive(body, length).await?;
        let turn = timeout_at(body.deadline, self.scheduler.turn(source));
        let turn = turn.await.map_err(|_| NoBody::Busy)?;
        let started = Instant::now();
        let answer = (self.admit)(&body.bytes);
        let took = started.elapsed();
        drop(body);
        turn.end(took).await;
        let answer = answer?;
        self.report.admitted(&answer, took);
        if let Some(undrained) = answer.undrained {
            self.tell(undrained);
        }
        Ok(answer.body)
    }

    /// Has it told if anyone does so, and has the time.
    fn tell(&self, undrained: Undrained) {
        let queue = self.undrained.as_ref();
        if queue.is_some_and(|queue| queue.try_send(undrained).is_err()) {
            self.report.event_dropped();
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

// === impl Refused ===

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NoLength => StatusCode::LENGTH_REQUIRED,
            Self::Body(NoBody::TooLarge(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(NoBody::TooSlow(_)) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(NoBody::Busy) => StatusCode::TOO_MANY_REQUESTS,
            Self::Body(NoBody::Broken) | Self::Review(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.status(), format!("{self}\n")).into_response();
        if matches!(self, Self::Body(NoBody::Busy)) {
            // The API server's client tries again by itself, within its time-out, if it is told when.
            // <https://github.com/kubernetes/client-go/blob/master/rest/with_retry.go>
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(RETRY_AFTER, soon);
        }
        response
    }
}
