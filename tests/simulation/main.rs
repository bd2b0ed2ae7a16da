//! Simulations of the certificates of several replicas on a virtual clock, with an API server in memory.

#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::time::Duration;

// The API server in memory.
mod memory_cluster;
// One replica: each step of a reconcile.
mod reconcile;
// Several replicas and many rotations under faults, lost Secrets and clock jumps.
mod rotation;

/// The DNS name under which API servers call the webhook.
pub(crate) const SERVER_NAME: &str = "envoy-drainer.envoy-drainer.svc";

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
