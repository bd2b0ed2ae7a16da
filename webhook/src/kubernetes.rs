//! The cluster's API server: what certificates need of it, and what `check` looks at. Nothing of it is
//! on the admission path.

mod bell;
mod client;
mod objects;
mod survey;
mod tunnel;

pub use client::{Access, NoCluster};
pub use objects::Objects;
pub use survey::Survey;
