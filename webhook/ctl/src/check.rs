//! The checks of `envoy-drainer check`. Pure: each topic turns the objects that were read from a
//! cluster into results.
//!
//! ```text
//! kubernetes::ClusterReader ──► objects and dry runs, or the error of reading them
//!     └ one file per topic ──► Section of CheckResults: ok, warning, error or unknown, with a remedy
//!         └ Section::to_text, or JSON
//! ```
//!
//! An object that cannot be read is a result of its own (unknown) and stops no other check.

pub mod certificates;
pub mod cluster;
pub mod deployment;
pub mod dry_run;
pub mod installation;
pub mod namespaces;
pub mod pods;
pub mod replica_sets;
mod report;
pub mod webhook_configuration;

pub(crate) use report::summary;
pub use report::{CheckResult, Section, Severity, is_healthy};
