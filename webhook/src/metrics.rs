//! The registry of metrics, and its text formats. Each module declares the metrics that it counts.

mod process;

use std::fmt::Write;

use prometheus_client::encoding::text;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::info::Info;

pub use prometheus_client::registry::Registry;

/// Names and values of labels. The values are names of enums and constants, so the number of series is bounded.
pub(crate) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The values of the label of [`result`].
pub(crate) const RESULTS: [&str; 2] = ["ok", "failed"];

/// The table of a module's metrics: field, type, value unless it is the type's default, name and help. `registered`
/// creates them and adds them to a registry.
macro_rules! metrics {
    (@new) => { Default::default() };
    (@new $metric:expr) => { $metric };
    ($(#[$attribute:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty $(= $metric:expr)?,
            $id:literal, $help:literal;)*
    }) => {
        $(#[$attribute])*
        $vis struct $name { $($(#[$doc])* $field_vis $field: $type,)* }
        impl $name {
            fn registered(registry: &mut $crate::metrics::Registry) -> Self {
                $(let $field: $type = $crate::metrics::metrics!(@new $($metric)?);
                registry.register($id, $help, $field.clone());)*
                Self { $($field),* }
            }
        }
    };
}
pub(crate) use metrics;

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

/// Formats the metrics, and those of the process, as OpenMetrics text.
pub(crate) fn encode_all(registry: &Registry) -> String {
    let mut text = String::new();
    let written = text::encode_registry(&mut text, &process::read());
    written.expect("a String can always be written to");
    text + &encode(registry)
}

/// Converts OpenMetrics text without exemplars to Prometheus' text format 0.0.4, in which counters and infos are
/// described by the names of their samples, and units and the end are not marked.
/// <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>
pub(crate) fn to_prometheus_text(open_metrics: &str) -> String {
    let mut text = String::new();
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described;
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap_or((typed, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            let help = help.strip_prefix(name).unwrap_or_default();
            let described = format!("{name}{suffix}");
            let _ = writeln!(text, "# HELP {described}{help}\n# TYPE {described} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::Unit;

    use super::*;

    #[test]
    fn counters_and_infos_are_described_by_their_samples() {
        let mut registry = registry();
        registry.register("build", "The version", Info::new([("version", "1")]));
        registry.register("requests", "Requests", <Counter>::default());
        let family = Family::<Labels<1>, Counter>::default();
        registry.register("calls", "Calls", family.clone());
        family.get_or_create(&result(true)).inc();
        registry.register_with_unit("wait", "A wait", Unit::Seconds, Gauge::<i64>::default());
        registry.register("took", "A time", Histogram::new([0.5]));
        let wanted = "\
# HELP envoy_drainer_build_info The version.
# TYPE envoy_drainer_build_info gauge
envoy_drainer_build_info{version=\"1\"} 1
# HELP envoy_drainer_requests_total Requests.
# TYPE envoy_drainer_requests_total counter
envoy_drainer_requests_total 0
# HELP envoy_drainer_calls_total Calls.
# TYPE envoy_drainer_calls_total counter
envoy_drainer_calls_total{result=\"ok\"} 1
# HELP envoy_drainer_wait_seconds A wait.
# TYPE envoy_drainer_wait_seconds gauge
envoy_drainer_wait_seconds 0
# HELP envoy_drainer_took A time.
# TYPE envoy_drainer_took histogram
envoy_drainer_took_sum 0.0
envoy_drainer_took_count 0
envoy_drainer_took_bucket{le=\"0.5\"} 0
envoy_drainer_took_bucket{le=\"+Inf\"} 0
";
        assert_eq!(to_prometheus_text(&encode(&registry)), wanted);
    }
}
