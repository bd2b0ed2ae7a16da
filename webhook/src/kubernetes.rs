//! The cluster's API server: what certificates need of it, Events, and what `check` looks at. Nothing of it is
//! on the admission path.

mod bell;
mod client;
mod events;
mod objects;
mod survey;
mod tunnel;
mod unseen;

pub use client::{ClientConfig, ClientConfigError};
pub use events::EventWriter;
pub use objects::CertificateStore;
pub use survey::{ClusterReader, DryRunResult};
pub use tunnel::Shown;
pub use unseen::{ApiCall, ReadError};
