//! Property tests, each with an independent oracle.

#![expect(
    clippy::unwrap_used,
    reason = "tests may panic, and so may their helpers"
)]

// Patches against pods with unknown fields, nulls and missing parents.
mod patch;
// Edits of hand-written YAML.
mod yaml;
