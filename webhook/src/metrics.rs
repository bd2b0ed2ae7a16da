//! The registry of metrics, and its text format. Each module declares the metrics that it counts.

mod process;

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
