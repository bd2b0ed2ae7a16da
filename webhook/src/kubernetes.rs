//! The cluster's API server: the two objects that certificates need, and nothing else of it.

mod bell;
mod objects;

pub use objects::{NoCluster, Objects};
