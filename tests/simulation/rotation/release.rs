//! The chart values of a release, which a simulation changes.

use webhook::certificates::testing_api::Lifetimes;

use crate::memory_cluster::ReplicaMode;

/// The chart values of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) mode: ReplicaMode,
    pub(crate) lifetimes: Lifetimes,
}

// === impl Release ===

impl Default for Release {
    fn default() -> Self {
        Self {
            mode: ReplicaMode::SelfManaged,
            lifetimes: Lifetimes::default(),
        }
    }
}

impl Release {
    /// The same release in the other mode.
    pub(crate) fn with_other_mode(self) -> Self {
        let mode = match self.mode {
            ReplicaMode::SelfManaged => ReplicaMode::Secret,
            ReplicaMode::Secret => ReplicaMode::SelfManaged,
        };
        Self { mode, ..self }
    }

    /// The same release with the default lifetimes, or with half of them.
    pub(crate) fn with_other_lifetimes(self) -> Self {
        let default = Lifetimes::default();
        let half = Lifetimes::try_new(
            default.ca() / 2,
            default.leaf() / 2,
            default.activation_delay(),
        );
        let half = half.unwrap();
        let lifetimes = if self.lifetimes == default {
            half
        } else {
            default
        };
        Self { lifetimes, ..self }
    }
}
