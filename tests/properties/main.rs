//! Property tests, each against an independent oracle.

#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

// Patches of pods with unknown fields, nulls and missing parents.
mod patch;
// Injection into hand-written YAML.
mod yaml;
