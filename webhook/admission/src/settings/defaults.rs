//! The defaults of an installation, which hold for every pod.

use std::net::IpAddr;
use std::time::Duration;

use tracing::Level;

use super::Settings;

/// The chart's values for the drainers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// The drainer's image, preferably with a digest.
    pub image: String,
    /// The defaults of the settings that a pod's annotations can change, and the poll interval.
    pub settings: Settings,
    /// Whether the drainers' user is left to OpenShift's security context constraints.
    pub openshift: bool,
    /// Part of a pod's termination grace period that is kept for Envoy's own shutdown after the drain.
    pub grace_margin: Duration,
    pub log_level: Level,
    /// What to do with a pod whose annotations are invalid.
    pub on_invalid: OnInvalid,
    /// The namespace of envoy-drainer itself, whose pods are never changed.
    pub release_namespace: String,
    /// How drainers call this webhook; `None` if they cannot.
    pub drainer_api: Option<DrainerApiDefaults>,
}

/// How drainers call this webhook, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainerApiDefaults {
    /// `HOST:PORT`; the webhook's certificate is valid for HOST.
    pub address: String,
    /// An address that needs no DNS.
    pub ip: Option<IpAddr>,
    /// The CAs of the webhook's certificate: DER in base64, comma-separated.
    pub ca: String,
    /// Whether the webhook answers which Services of a pod have another ready endpoint.
    pub replacement: bool,
    /// Whether the webhook takes reports, for which every drainer calls it.
    pub reports: bool,
}

/// What to do with a pod whose annotations are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnInvalid {
    #[default]
    Deny,
    /// Use the setting's default with a warning; where there is none, skip the pod.
    Warn,
}

// === impl Defaults ===

impl Defaults {
    /// The built-in defaults with this image of the drainer.
    #[must_use]
    pub fn new(image: impl Into<String>, release_namespace: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            settings: Settings::default(),
            openshift: false,
            grace_margin: Duration::from_secs(15),
            log_level: Level::INFO,
            on_invalid: OnInvalid::Deny,
            release_namespace: release_namespace.into(),
            drainer_api: None,
        }
    }
}
