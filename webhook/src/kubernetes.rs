//! Clients of the API server: of the Secret and the webhook configuration of `certificates`, and of the drainer API.
//! None of it is on the admission path.

mod certificate_store;
mod drainer_api_client;
mod watch;

pub use certificate_store::CertificateStore;
pub use drainer_api_client::DrainerApiClient;
