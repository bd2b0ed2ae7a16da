//! What Helm renders from the chart: it fits the program, and Kubernetes knows every field.

#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

mod artifact_hub;
mod cabundle_policy;
mod check;
mod flags;
mod names;
mod objects;
mod schema;
mod secret_policy;
mod sets;
mod values;
mod versions;

/// The words of a list.
fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_whitespace()
}
