//! What `check`, `drains` and `explain` read of a cluster.

mod client;
mod cluster_reader;
mod read_error;

pub use client::{connect, load_config};
pub use cluster_reader::{ClusterReader, DryRunResult, ObjectSelector};
pub use read_error::{ApiCall, ReadError};
