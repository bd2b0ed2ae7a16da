//! The cluster's API server: what certificates need of it, Events, and what `check` looks at. Nothing of it is
//! on the admission path.

mod bell;
mod client;
mod events;
mod objects;
mod survey;
mod tunnel;

pub use client::{Access, NoCluster};
pub use events::Events;
pub use objects::Objects;
pub use survey::Survey;
