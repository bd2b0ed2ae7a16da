//! AdmissionReviews: the API server's request, and the response.

pub(crate) mod request;
pub(crate) mod response;
