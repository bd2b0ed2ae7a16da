//! Why a request of a drainer is not answered.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// Why a report is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// It is not a report.
    #[error("invalid report: {0}")]
    Invalid(String),
    /// The pod, or all pods together, have sent too many.
    #[error("too many reports")]
    TooMany,
}

/// Why a request is answered with an HTTP error. The drainer logs the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("no valid token of a pod for the audience envoy-drainer")]
    Unauthenticated,
    #[error("too many requests")]
    TooManyRequests,
    #[error("the report is larger than 16 KiB, or did not arrive in time")]
    Body,
    #[error(transparent)]
    Report(#[from] ReportError),
    /// What the request waits for has failed, or is not there yet.
    #[error("no answer: {0}")]
    Unavailable(Arc<str>),
}

// === impl RequestError ===

impl RequestError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::TooManyRequests | Self::Report(ReportError::TooMany) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Report(ReportError::Invalid(_)) => StatusCode::BAD_REQUEST,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        (self.status(), self.to_string()).into_response()
    }
}
