//! The cluster's API server: the two objects that certificates need, Events, and nothing else of it.

mod bell;
mod events;
mod objects;

pub use events::Events;
pub use objects::{NoCluster, Objects};
