//! Clients of the API server: the Secret and webhook configuration of `certificates`, Events, what the channel asks, and
//! what `check`, `drains` and `explain` read. None of it is on the admission path.

mod certificate_store;
mod channel_client;
mod client;
mod cluster_reader;
mod event_writer;
mod read_error;
mod watch;

pub use certificate_store::CertificateStore;
pub use channel_client::ChannelClient;
pub use client::load_config;
pub use cluster_reader::{ClusterReader, DryRunResult, ObjectKind, ObjectSelector};
pub use event_writer::{EventWriter, REPORTING_CONTROLLER};
pub use read_error::{ApiCall, ReadError};
