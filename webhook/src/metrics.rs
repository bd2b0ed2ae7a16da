//! The registry of metrics, and its text format. Each module declares the metrics that it counts.

use prometheus_client::encoding::text;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::info::Info;

pub use prometheus_client::registry::Registry;

/// The media type of [`encode`]'s text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Names and values of labels. The values are names of enums and constants, so the number of series is bounded.
pub(crate) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The values of the label of [`result`].
pub(crate) const RESULTS: [&str; 2] = ["ok", "failed"];

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

/// The label of an operation that can fail.
pub(crate) fn result(is_ok: bool) -> Labels<1> {
    let [ok, failed] = RESULTS;
    [("result", if is_ok { ok } else { failed })]
}

/// Exports the metrics of these values of a label at zero, so that the first failure is an increase.
pub(crate) fn export_zeros<M: Clone>(
    family: &Family<Labels<1>, M>,
    label: &'static str,
    values: &[&'static str],
) where
    fn() -> M: MetricConstructor<M>,
{
    for value in values {
        drop(family.get_or_create(&[(label, value)]));
    }
}
