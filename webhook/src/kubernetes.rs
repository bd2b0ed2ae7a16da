//! The cluster's API server: what certificates need of it, Events, and what `check` looks at. Nothing of it is
//! on the admission path.

mod certificate_store;
mod client;
mod cluster_reader;
mod event_writer;
mod read_error;
mod tunnel;
mod watch;

pub use certificate_store::CertificateStore;
pub use client::{ClientConfig, ClientConfigError};
pub use cluster_reader::{ClusterReader, DryRunResult};
pub use event_writer::EventWriter;
pub use read_error::{ApiCall, ReadError};
pub use tunnel::Shown;
