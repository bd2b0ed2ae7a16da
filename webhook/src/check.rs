//! Whether an installation works: what was seen of a cluster, judged. Pure: values in, points out.
//!
//! ```text
//! kubernetes::Survey ──► objects, certificates that replicas show, answers to trial pods; or why not
//!     └ one file a topic ──► Section of Points: ok, warning, error, unknown; each with its remedy
//!         └ commands::check ──► a page for a person, or JSON
//! ```
//!
//! What cannot be seen is a point of its own, and keeps nothing else from being judged.

pub mod certificates;
pub mod cluster;
pub mod deployment;
pub mod dry_run;
mod health;
pub mod installation;
pub mod namespaces;
mod owner;
mod pod_status;
pub mod pods;
pub mod replica_sets;
mod report;
pub mod rollout;
pub mod selector;
mod text;
mod waiting;
pub mod webhook_configuration;

pub use health::Health;
pub use report::{CheckResult, Section, Severity, Subject};
