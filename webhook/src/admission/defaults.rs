//! What the installation decides, for every pod alike.

use std::time::Duration;

use drainer::{AdminAddress, Timing};
use tracing::Level;

use super::amounts::DrainerResources;

/// The chart's values, and the defaults of what annotations can set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// The drainer's image, best with a digest.
    pub image: String,
    /// Where the admin is if neither the annotations nor Envoy's container tell.
    pub admin_address: AdminAddress,
    /// What `native-sidecar: auto` means in this cluster.
    pub native_sidecar: bool,
    /// On OpenShift no user is set, since its security constraints choose one.
    pub open_shift: bool,
    /// The timings of a drain, and how often the drainer polls.
    pub timing: Timing,
    /// What the grace period has beyond the drain's deadline, for Envoy's own end.
    pub grace_margin: Duration,
    /// What the drainers log.
    pub log_level: Level,
    /// What a bad value does.
    pub on_invalid: OnInvalid,
    /// The namespace of envoy-drainer itself, whose pods are never changed.
    pub release_namespace: String,
    /// The resources of the drainer's container.
    pub resources: DrainerResources,
}

/// What happens to a pod that asks for what it cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnInvalid {
    /// It is refused.
    #[default]
    Deny,
    /// The setting's default is used with a warning; where there is none, the pod is skipped.
    Warn,
}

// === impl Defaults ===

impl Defaults {
    /// The product's defaults with this image of the drainer.
    #[must_use]
    pub fn new(image: impl Into<String>, release_namespace: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            admin_address: AdminAddress::Tcp(([127, 0, 0, 1], 9901).into()),
            native_sidecar: true,
            open_shift: false,
            timing: Timing::default(),
            grace_margin: Duration::from_secs(15),
            log_level: Level::INFO,
            on_invalid: OnInvalid::Deny,
            release_namespace: release_namespace.into(),
            resources: DrainerResources::default(),
        }
    }
}
