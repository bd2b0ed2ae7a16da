//! Clients of the API server: of the Secret and the webhook configuration of `certificates`, of the drainer API, and of
//! Events.
//! None of it is on the admission path.

mod certificate_store;
mod drainer_api_client;
mod event_writer;

pub use certificate_store::CertificateStore;
pub use drainer_api_client::DrainerApiClient;
pub use event_writer::EventWriter;
