//! Settings that cannot act as they are.

use crate::diagnostics::{Code, Diagnostic};
use crate::settings::{SettingSource, Settings};

const HEALTH_FAILURE_DELAY: &str = "health-failure-delay";

/// Returns a warning about each annotated setting that has no effect with the others. `is_immediate` says whether Envoy's drain
/// makes clients reconnect from the beginning.
pub(super) fn find(settings: &Settings, is_immediate: bool) -> Vec<Diagnostic> {
    let delay = settings.drain.health_failure_delay;
    let mut found = settings.durations.settings_without_effect(delay);
    let is_found = found.iter().any(|(name, _)| *name == HEALTH_FAILURE_DELAY);
    if !delay.duration().is_zero() && !is_immediate && !is_found {
        let reason = "needs Envoy's drain strategy `immediate`: otherwise, few clients are told to reconnect during the delay";
        found.push((HEALTH_FAILURE_DELAY, format!("{delay} {reason}")));
    }
    let is_annotated = |(name, _): &(&str, _)| settings.source(name) == SettingSource::Annotation;
    let found = found.into_iter().filter(is_annotated);
    let warnings = found.map(|(name, reason)| {
        let warning = Code::SettingWithoutEffect.diagnostic(format!("`{name}` {reason}"));
        warning.for_annotations([name])
    });
    warnings.collect()
}
