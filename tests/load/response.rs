//! Verifies the responses to requests.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};

use crate::BODY;
use crate::failure::{Failure, FailureKind, error_chain};

/// Reads a response to its end and verifies it.
pub(super) async fn verify_response(response: Response<Incoming>) -> Result<(), Failure> {
    let status = response.status();
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| Failure::new(FailureKind::CutInFlight, error_chain(&error)))?;
    verify_content(status, &body.to_bytes())
}

/// Verifies the status and the body of a response.
pub(super) fn verify_content(status: StatusCode, body: &[u8]) -> Result<(), Failure> {
    if status == 200 && body == BODY {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&body[..body.len().min(80)]);
    let detail = format!("{status}, `{body}`");
    Err(Failure::new(FailureKind::BadResponse, detail))
}
