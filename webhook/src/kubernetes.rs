//! The cluster's API server: what certificates need of it, Events, and what `check` looks at. Nothing of it is
//! on the admission path.

mod bell;
mod client;
mod events;
mod objects;
mod survey;
mod tunnel;
mod unseen;

pub use client::{Access, NoCluster};
pub use events::Events;
pub use objects::Objects;
pub use survey::{Answer, Survey};
pub use tunnel::Shown;
pub use unseen::{Call, Unseen};
