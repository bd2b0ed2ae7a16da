//! Clients of the API server: the Secret and webhook configuration of `certificates`, Events, and what the drainer API asks.
//! None of it is on the admission path.

mod certificate_store;
mod drainer_api_client;
mod event_writer;
mod watch;

pub use certificate_store::CertificateStore;
pub use drainer_api_client::DrainerApiClient;
pub use event_writer::EventWriter;
