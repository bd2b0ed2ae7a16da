//! AdmissionReviews: the API server's request, and the response.

pub(crate) mod owner_notification;
pub(crate) mod request;
pub(crate) mod response;
