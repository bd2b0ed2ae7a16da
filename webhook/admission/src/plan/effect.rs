//! Settings that cannot act as they are.

use std::time::Duration;

use drainer::{HealthFailureDelay, MAX_QUIET_WAIT};

use crate::diagnostics::{Code, Diagnostic};
use crate::settings::{SettingSource, Settings};

/// Returns a warning about each annotated setting that has no effect with the others. `is_immediate` says whether Envoy's drain
/// makes clients reconnect from the beginning.
pub(super) fn without_effect(settings: &Settings, is_immediate: bool) -> Vec<Diagnostic> {
    let timing = settings.timing();
    let earliest = timing.drain_delay + timing.min_drain_duration + timing.wait_for_replacement;
    let quiet_limit = timing.time_limit().min(earliest + MAX_QUIET_WAIT);
    let delay = match settings.drain.health_failure_delay {
        HealthFailureDelay::Auto => Duration::ZERO,
        HealthFailureDelay::After(delay) => delay,
    };
    let mut found = Vec::new();
    let mut warn = |name: &'static str, reason: &str| {
        if settings.source(name) == SettingSource::Annotation {
            let detail = format!("`{name}` {} {reason}", settings.describe(name));
            let warning = Code::SettingWithoutEffect.diagnostic(detail);
            found.push(warning.for_annotations([name]));
        }
    };
    if delay > Duration::ZERO && delay >= timing.drain_timeout {
        let reason = "is not less than `drain-timeout`: Envoy never fails health checks";
        warn("health-failure-delay", reason);
    } else if delay > Duration::ZERO && !is_immediate {
        let reason =
            "needs Envoy's strategy `immediate`: until then, few clients are told to reconnect";
        warn("health-failure-delay", reason);
    }
    if timing.idle_exit >= Some(timing.time_limit()) {
        warn(
            "idle-exit",
            "ends no drain: `drain-timeout` is over by then",
        );
    }
    if timing.quiet_period > quiet_limit {
        warn(
            "quiet-period",
            "cannot be reached: new connections postpone the end for less long",
        );
    }
    found
}
