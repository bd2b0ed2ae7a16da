//! What a drill does to the pods, and where its load runs.

use serde::{Deserialize, Serialize};

/// What is done to the pods of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub(super) enum Disruption {
    /// The workload is restarted, as by `kubectl rollout restart`.
    #[strum(to_string = "rollout")]
    Rollout,
    /// Its pods are evicted, as by `kubectl drain`: each when the one before has been replaced.
    #[strum(to_string = "evictions")]
    Evict,
    /// Its pods are deleted: each when the one before has been replaced.
    #[strum(to_string = "deletions")]
    Delete,
}

/// Where a load runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum LoadOrigin {
    /// In a Job, in the namespace of the workload.
    Cluster,
    /// In this process.
    Here,
}
