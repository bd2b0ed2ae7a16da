//! Settings that cannot act as they are.

use std::time::Duration;

use drainer::duration::format;
use drainer::{HealthFailureDelay, MAX_QUIET_WAIT};

use crate::diagnostics::{Code, Diagnostic};
use crate::settings::{SettingSource, Settings};

/// Returns a warning about each annotated setting that has no effect with the others. `is_immediate` says whether Envoy's drain
/// makes clients reconnect from the beginning.
pub(super) fn without_effect(settings: &Settings, is_immediate: bool) -> Vec<Diagnostic> {
    let timing = settings.timing();
    let timeout = timing.drain_timeout;
    let limit = timing.time_limit();
    let quiet_limit = limit.min(
        timing.drain_delay
            + timing.min_drain_duration
            + timing.wait_for_replacement
            + MAX_QUIET_WAIT,
    );
    let mut found = Vec::new();
    let mut warn = |name: &'static str, value: Duration, reason: String| {
        if settings.source(name) == SettingSource::Annotation {
            let detail = format!("`{name}` {} {reason}", format(value));
            found.push(
                Code::SettingWithoutEffect
                    .diagnostic(detail)
                    .for_annotations([name]),
            );
        }
    };
    if let HealthFailureDelay::After(delay) = settings.drain.health_failure_delay {
        if delay >= timeout {
            let reason = format!(
                "is not less than `drain-timeout` {}: Envoy never fails health checks",
                format(timeout)
            );
            warn("health-failure-delay", delay, reason);
        } else if !delay.is_zero() && !is_immediate {
            let reason = "needs Envoy's strategy `immediate`: with the gradual one, few clients reconnect before Envoy fails health checks";
            warn("health-failure-delay", delay, reason.to_owned());
        }
    }
    if let Some(idle_exit) = timing.idle_exit.filter(|idle_exit| *idle_exit >= limit) {
        let reason = format!("ends no drain, which lasts {} at most", format(limit));
        warn("idle-exit", idle_exit, reason);
    }
    if timing.quiet_period > quiet_limit {
        let reason = format!(
            "cannot be reached: from {} on, new connections no longer postpone the end",
            format(quiet_limit)
        );
        warn("quiet-period", timing.quiet_period, reason);
    }
    found
}
