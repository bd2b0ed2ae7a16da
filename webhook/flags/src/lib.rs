//! The flags of `envoy-drainer serve`, which `check` and `explain` read in the cluster, and those that `inject` shares.

pub mod logs;
pub mod pod_defaults;
pub mod serve;
