//! AdmissionReviews: the request that an API server sends, and the response.

pub(crate) mod request;
pub(crate) mod response;
