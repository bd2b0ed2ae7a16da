//! The registry of metrics, and its text format. Each module declares the metrics that it counts.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::info::Info;

pub use prometheus_client::registry::Registry;

/// The media type of [`encode`]'s text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label of operations that can fail: `ok`, `failed`, or a failure that is counted apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabels {
    result: &'static str,
}

/// Creates an empty registry; the modules that count add their metrics to it.
pub fn registry() -> Registry {
    Registry::with_prefix("envoy_drainer")
}

/// Adds `build_info`.
pub fn register_build(registry: &mut Registry) {
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The version of this replica", build);
}

/// Formats the metrics as OpenMetrics text.
pub fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    text::encode(&mut text, registry).expect("a String can always be written to");
    text
}

// === impl ResultLabels ===

impl ResultLabels {
    /// Both labels, to export a family at zero, so that the first failure is an increase.
    pub(crate) const ALL: [Self; 2] = [Self::new(true), Self::new(false)];

    /// What was asked for is larger than the webhook reads.
    pub(crate) const TOO_LARGE: Self = Self {
        result: "too_large",
    };

    pub(crate) const fn new(is_ok: bool) -> Self {
        Self {
            result: if is_ok { "ok" } else { "failed" },
        }
    }
}
