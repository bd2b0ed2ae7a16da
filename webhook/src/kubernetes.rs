//! Clients of the API server: the Secret and webhook configuration of `certificates`, Events, and what the channel asks.
//! None of it is on the admission path.

mod certificate_store;
mod channel_client;
mod event_writer;
mod watch;

pub use certificate_store::CertificateStore;
pub use channel_client::ChannelClient;
pub use event_writer::EventWriter;
