//! Certificates of several replicas on a virtual clock, with an API server in memory that fails.

#![expect(
    clippy::unwrap_used,
    reason = "tests may panic, and so may their helpers"
)]

// One replica: each step of a reconcile.
mod reconcile;
// Many replicas and many rotations under faults, lost Secrets and clock jumps.
mod rotation;
