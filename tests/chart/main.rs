//! The chart: what Helm makes of it is what the program expects, and what Kubernetes knows.

#![expect(clippy::unwrap_used, reason = "a test's helpers may, as its tests do")]

mod cabundle_policy;
mod check;
mod flags;
mod names;
mod objects;
mod schema;
mod secret_policy;
mod sets;
mod values;
