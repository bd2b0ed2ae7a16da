//! Clients of the API server: for the Secret and the caBundles of `certificates`, for the drainer API and the reports,
//! and for Events. None of them is on the path of an admission.

mod certificate_store;
mod drainer_api_client;
mod event_writer;

pub use certificate_store::CertificateStore;
pub use drainer_api_client::DrainerApiClient;
pub use event_writer::EventWriter;
