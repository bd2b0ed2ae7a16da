//! The timeline of a pod's termination, as planned.

use std::time::Duration;

use drainer::duration::format;
use drainer::{Config, HealthFailureDelay, MAX_QUIET_WAIT};

/// An event in a pod's termination.
pub(super) struct TimelineEvent {
    /// The time after the pod's deletion.
    pub(super) at: Duration,
    /// `sigterm`, `hooks`, `drain`, `earliest`, `idle`, `quiet`, `deadline` or `kill`.
    pub(super) name: &'static str,
    /// A description for people.
    pub(super) text: String,
}

/// The events after the deletion of a pod with this drainer and this grace period in seconds, in the order of time;
/// some containers get SIGTERM at once.
pub(super) fn timeline(
    drainer: &Config,
    grace: i64,
    ended_at_once: &[String],
) -> Vec<TimelineEvent> {
    let timing = drainer.settings.timing;
    let drain_start = timing.drain_delay;
    let earliest = drain_start + timing.min_drain_duration;
    let wait = timing.wait_for_replacement;
    let quiet_limit = earliest + wait + MAX_QUIET_WAIT;
    let deadline = timing.time_limit();
    let effect = match drainer.settings.health_failure_delay {
        HealthFailureDelay::After(delay) if !delay.is_zero() => format!(
            "responses make clients reconnect, and Envoy fails health checks after {}",
            format(delay)
        ),
        HealthFailureDelay::End => {
            "responses make clients reconnect, and Envoy stays healthy to the end".to_owned()
        }
        HealthFailureDelay::Auto | HealthFailureDelay::After(_) => {
            "Envoy fails health checks, and responses make clients reconnect".to_owned()
        }
    };
    let event = |at, name, text: &str| TimelineEvent {
        at,
        name,
        text: text.to_owned(),
    };
    let mut events = Vec::new();
    let start = if !wait.is_zero() {
        let wait = format(wait);
        format!(
            "the drain starts once each Service of the pod has another ready endpoint, up to {wait} later"
        )
    } else if drain_start.is_zero() {
        "the preStop hooks start, and with them the drain".to_owned()
    } else {
        "the drain starts".to_owned()
    };
    if !ended_at_once.is_empty() {
        let text = format!("SIGTERM to `{}`", ended_at_once.join("`, `"));
        events.push(event(Duration::ZERO, "sigterm", &text));
    }
    if !wait.is_zero() || !drain_start.is_zero() {
        let text = "the preStop hooks start; Envoy keeps serving, healthy";
        events.push(event(Duration::ZERO, "hooks", text));
    }
    events.push(event(drain_start, "drain", &format!("{start}: {effect}")));
    let keeps_health = drainer.settings.health_failure_delay == HealthFailureDelay::End;
    let few = match drainer.settings.exit_at_connections {
        _ if keeps_health => "nothing is in flight".to_owned(),
        0 => "no connection is left".to_owned(),
        1 => "at most 1 connection is left".to_owned(),
        many => format!("at most {many} connections are left"),
    };
    // The quiet period is measured from the first hook on.
    let quiet_period = (!keeps_health).then_some(timing.quiet_period);
    let quiet_period = quiet_period.unwrap_or_default();
    let exit = earliest.max(quiet_period.min(quiet_limit)).min(deadline);
    let mut text = format!("the earliest exit, if {few}");
    if !quiet_period.is_zero() && quiet_period <= quiet_limit {
        text += &format!(", and none opened in the last {}", format(quiet_period));
        if !drainer.readiness_probes.is_empty() {
            text += ", apart from readiness probes";
        }
    }
    events.push(event(exit, "earliest", &text));
    if let Some(idle_exit) = timing.idle_exit.filter(|_| !keeps_health) {
        let text = format!(
            "the earliest exit with idle HTTP connections left, if no request was active in the last {}",
            format(idle_exit)
        );
        events.push(event(exit.max(idle_exit), "idle", &text));
    }
    if !quiet_period.is_zero() {
        let latest = if wait.is_zero() { "" } else { " at the latest" };
        let text = format!("from here on{latest}, new connections no longer postpone the exit");
        events.push(event(quiet_limit, "quiet", &text));
    }
    // The deadline comes before all that would happen at or after it.
    events.retain(|event| event.at < deadline || event.name == "earliest");
    events.sort_by_key(|event| event.at);
    let text = "the latest exit: Envoy closes the remaining connections";
    events.push(event(deadline, "deadline", text));
    let grace = Duration::from_secs(grace.try_into().unwrap_or(0));
    let text = "the grace period ends: SIGKILL if Envoy has not exited";
    events.push(event(grace, "kill", text));
    events
}
