//! What a drill does to the pods, and the rights that it needs.

use kubernetes::Right;
use serde::{Deserialize, Serialize};

use crate::workload::{WorkloadKind, WorkloadName};

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
    /// It is scaled to this number of replicas, and back after the drill.
    #[strum(to_string = "scaling to {0} and back")]
    Scale(u32),
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

// === impl Disruption ===

impl Disruption {
    /// The rights of a drill in the namespace of the workload.
    pub(super) fn rights(self, workload: &WorkloadName, origin: LoadOrigin) -> Vec<Right> {
        let resource = workload.kind.resource();
        let mut rights = vec![
            Right("get", "apps", resource),
            Right("list", "", "pods"),
            Right("watch", "", "pods"),
            match self {
                Self::Rollout => Right("patch", "apps", resource),
                Self::Evict => Right("create", "", "pods/eviction"),
                Self::Delete => Right("delete", "", "pods"),
                Self::Scale(_) => Right("patch", "apps", scale(workload.kind)),
            },
        ];
        if origin == LoadOrigin::Cluster {
            rights.extend([
                Right("create", "batch", "jobs"),
                Right("delete", "batch", "jobs"),
                Right("get", "", "pods/log"),
            ]);
        }
        rights
    }
}

fn scale(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::Deployment => "deployments/scale",
        WorkloadKind::StatefulSet => "statefulsets/scale",
        WorkloadKind::DaemonSet => "daemonsets/scale",
    }
}
