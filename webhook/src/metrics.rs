//! The registry of metrics, and its text format. Each module declares the metrics that it counts.

use prometheus_client::encoding::text;

pub use prometheus_client::registry::Registry;

/// The media type of [`encode`]'s text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Creates an empty registry; the modules that count add their metrics to it.
pub fn registry() -> Registry {
    Registry::with_prefix("envoy_drainer")
}

/// Formats the metrics as OpenMetrics text.
pub fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    text::encode(&mut text, registry).expect("a String can always be written to");
    text
}
