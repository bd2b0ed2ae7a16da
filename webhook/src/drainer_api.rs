//! The drainer API: what drainers request and report, over HTTPS on a port of its own.
//!
//! Every request carries the pod's service account token for the audience `envoy-drainer`. The API server says which
//! pod that is ([`ApiServer::review_token`]), and nothing else that is sent about the pod is believed. Time, sizes, the
//! requests of a pod and calls to the API server are limited, since any pod of the cluster can connect.
//!
//! ```text
//! GET /replacement   ─► the Services of the pod, and those without another ready endpoint
//! POST /report       ─► 204
//! ```

mod api_server;
mod authenticator;
mod digest;
mod endpoint_lists;
mod metrics;
mod replacement;
mod request_error;
mod shared_call;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::rate_limit::{Rate, RateLimit};
use crate::server::Limits;

pub use api_server::{ApiServer, EndpointSlicePage, PodIdentity, TooLarge};
pub use metrics::Metrics;
pub use replacement::EndpointSlice;
pub use request_error::RequestError;

use authenticator::Authenticator;
use endpoint_lists::EndpointLists;

/// Takes a pod's report, of up to 16 KiB.
pub type ReportFn = dyn Fn(&PodIdentity, &[u8]) -> Result<(), RequestError> + Send + Sync;

/// The features of the drainer API.
pub struct Features {
    /// Whether `GET /replacement` is served.
    pub replacement: bool,
    /// Takes the reports of `POST /report`; `None` if it is not served.
    pub report: Option<Box<ReportFn>>,
}

struct DrainerApi<A> {
    authenticator: Arc<Authenticator<A>>,
    endpoint_lists: Arc<EndpointLists<A>>,
    report: Option<Box<ReportFn>>,
    by_pod: RateLimit<String>,
    metrics: Metrics,
}

/// For one request. Less than the second that the client waits. What the request waits for goes on, for the next one.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(800);

/// Maximum size of a report, in bytes: four termination messages.
const MAX_REPORT: usize = 16 << 10;

/// Requests of one pod. A drainer sends one a second.
const POD_RATE: Rate = Rate::new(20, Duration::from_millis(250));

/// Requests of all pods: those of a thousand that wait at the same time, twice over.
const TOTAL_RATE: Rate = Rate::new(2_000, Duration::from_micros(500));

/// The limits of the drainer API's port. A drainer that waits opens a connection a second, for one call.
pub fn limits(shutdown_delay: Duration) -> Limits {
    Limits {
        handshake_timeout: Duration::from_secs(2),
        head_timeout: Duration::from_secs(5),
        write_timeout: Duration::from_secs(1),
        max_connections: 128,
        max_connection_age: Duration::from_secs(60),
        shutdown_delay,
        ..Limits::default()
    }
}

/// The router of the drainer API's port.
pub fn router<A: ApiServer>(api: A, features: Features, metrics: &Metrics) -> Router {
    let (api, now) = (Arc::new(api), Instant::now());
    let mut router = Router::new();
    if features.replacement {
        router = router.route("/replacement", get(get_replacement::<A>));
    }
    if features.report.is_some() {
        router = router.route("/report", post(post_report::<A>));
    }
    router.with_state(Arc::new(DrainerApi {
        authenticator: Authenticator::new(Arc::clone(&api), metrics, now),
        endpoint_lists: EndpointLists::new(api, metrics, now),
        report: features.report,
        by_pod: RateLimit::new(POD_RATE, TOTAL_RATE, now),
        metrics: metrics.clone(),
    }))
}

async fn get_replacement<A: ApiServer>(
    State(drainer_api): State<Arc<DrainerApi<A>>>,
    ConnectInfo(source): ConnectInfo<IpAddr>,
    headers: HeaderMap,
) -> Response {
    let answer = async |pod: PodIdentity| {
        let list = drainer_api.endpoint_lists.get(&pod.namespace).await;
        let list = list.map_err(RequestError::Unavailable)?;
        let answer = list.endpoints.replacement_of(&pod.uid);
        debug!(?pod, ?answer, "Answered whether a pod has a replacement");
        let json = serde_json::to_string(&answer).expect("its keys are strings");
        Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
    };
    drainer_api
        .answer("replacement", source, &headers, answer)
        .await
}

async fn post_report<A: ApiServer>(
    State(drainer_api): State<Arc<DrainerApi<A>>>,
    ConnectInfo(source): ConnectInfo<IpAddr>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let answer = async |pod: PodIdentity| {
        let report = to_bytes(body, MAX_REPORT).await;
        let report = report.map_err(|_| RequestError::Body)?;
        debug!(?pod, bytes = report.len(), "Received a report");
        if let Some(take) = &drainer_api.report {
            take(&pod, &report)?;
        }
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    drainer_api
        .answer("report", source, &head.headers, answer)
        .await
}

/// The token of a request.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ")
}

// === impl DrainerApi ===

impl<A: ApiServer> DrainerApi<A> {
    /// Answers a request for a path within [`REQUEST_TIMEOUT`], if it is a pod's, and counts it.
    async fn answer(
        &self,
        path: &'static str,
        source: IpAddr,
        headers: &HeaderMap,
        answer: impl AsyncFnOnce(PodIdentity) -> Result<Response, RequestError>,
    ) -> Response {
        let answered = timeout(REQUEST_TIMEOUT, async {
            let token = bearer_token(headers).ok_or(RequestError::Unauthenticated)?;
            let pod = self.authenticator.authenticate(token, source).await?;
            if !self.by_pod.try_take(&pod.uid, Instant::now()) {
                return Err(RequestError::TooManyRequests);
            }
            answer(pod).await
        });
        let answered = answered.await;
        let answered = answered.unwrap_or(Err(RequestError::Unavailable("timeout".into())));
        let response = answered.into_response();
        let status = response.status().as_u16();
        self.metrics.count_request(path, status);
        response
    }
}
