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
pub mod configuration;
pub mod installation;
pub mod namespaces;
mod owner;
pub mod pods;
mod point;
pub mod refused;
pub mod rollout;
pub mod running;
pub mod selector;
pub mod trial;
mod unready;
mod waiting;
mod words;
mod works;

pub use point::{CheckResult, Section, Severity, Subject};
pub use works::Health;
