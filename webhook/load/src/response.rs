//! Reads and verifies the responses to requests.

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;

use crate::failure::{Failure, FailureKind, error_chain};
use crate::request::RequestTemplate;

/// Reads a response to its end and verifies it.
pub(super) async fn verify_response(
    response: Response<Incoming>,
    template: &RequestTemplate,
) -> Result<(), Failure> {
    let (head, body) = response.into_parts();
    let body = body.collect().await;
    let body = body.map_err(|error| Failure::new(FailureKind::CutInFlight, error_chain(&error)))?;
    let trailers = body.trailers().cloned();
    template.verify(&head, &body.to_bytes(), trailers.as_ref())
}
