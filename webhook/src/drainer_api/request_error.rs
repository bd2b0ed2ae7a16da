//! Errors of requests to the drainer API.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// Why a request is answered with an HTTP error. The drainer logs the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Its token is missing, or not valid.
    #[error("no valid token of a pod for the audience envoy-drainer")]
    Unauthenticated,
    /// The pod, or all pods together, have sent too many.
    #[error("too many requests")]
    TooManyRequests,
    /// Its body could not be read.
    #[error("the report is larger than 16 KiB, or did not arrive in time")]
    Body,
    /// Its body is not a report.
    #[error("invalid report: {0}")]
    InvalidReport(String),
    /// What the request waits for has failed, or is not there yet.
    #[error("no answer: {0}")]
    Unavailable(Arc<str>),
}

// === impl RequestError ===

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::InvalidReport(_) => StatusCode::BAD_REQUEST,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, self.to_string()).into_response()
    }
}
