//! A pod's end, second by second, as its plan foresees it.

use std::time::Duration;

use drainer::MAX_QUIET_WAIT;
use drainer::duration::format;
use serde::Serialize;

use crate::admission::DrainPlan;

/// A moment in a pod's end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineEvent {
    /// Seconds since the pod was deleted.
    pub seconds: f64,
    /// What happens then, in one word: `hooks`, `drain`, `earliest`, `idle`, `quiet`, `deadline`,
    /// `kill`.
    pub event: &'static str,
    /// The same for a person.
    pub text: String,
    #[serde(skip)]
    pub(super) at: Duration,
}

/// What happens when the pod is deleted, in the order of time.
pub(super) fn timeline(plan: &DrainPlan) -> Vec<TimelineEvent> {
    let timing = plan.drainer.timing;
    let drain = timing.drain_delay;
    let earliest = drain + timing.min_drain_duration;
    let unquiet = earliest + MAX_QUIET_WAIT;
    let deadline = timing.deadline();
    let asked = "readiness fails, and each response tells its client to reconnect";
    let mut moments = Vec::new();
    if drain.is_zero() {
        let text = format!("both preStop hooks start, and with them the drain: {asked}");
        moments.push(timeline_event(Duration::ZERO, "drain", text));
    } else {
        let text = "both preStop hooks start; Envoy serves on, healthy";
        moments.push(timeline_event(Duration::ZERO, "hooks", text));
        moments.push(timeline_event(
            drain,
            "drain",
            format!("the drain starts: {asked}"),
        ));
    }
    let few = match plan.drainer.exit_at_connections {
        0 => "no connection is left".to_owned(),
        1 => "no more than 1 connection is left".to_owned(),
        many => format!("no more than {many} connections are left"),
    };
    // Envoy is looked at from the first hook on: what there was before counts for nothing.
    let quiet = timing.quiet_period;
    let end = earliest.max(quiet.min(unquiet)).min(deadline);
    let aside = match plan.drainer.readiness_probes.is_empty() {
        true => "",
        false => ", readiness probes aside",
    };
    let no_newcomer = match quiet {
        Duration::ZERO => String::new(),
        quiet if quiet > unquiet => String::new(),
        quiet => format!(", and no new one came in the last {}{aside}", format(quiet)),
    };
    let text = format!("the earliest end, if {few}{no_newcomer}");
    moments.push(timeline_event(end, "earliest", text));
    if let Some(idle_exit) = timing.idle_exit {
        let text = format!(
            "the earliest end with idle HTTP connections left, if no request ran in the last {}",
            format(idle_exit)
        );
        moments.push(timeline_event(end.max(idle_exit), "idle", text));
    }
    if !quiet.is_zero() {
        let text = "from here on, clients that come and go do not put the end off any more";
        moments.push(timeline_event(unquiet, "quiet", text));
    }
    // What would come at the deadline or later never happens.
    moments.retain(|moment| moment.at < deadline || moment.event == "earliest");
    moments.sort_by_key(|moment| moment.at);
    let text = "the latest end: what is still open is cut";
    moments.push(timeline_event(deadline, "deadline", text));
    let grace = Duration::from_secs(plan.grace.to.try_into().unwrap_or(0));
    let text = "the grace period is over: SIGKILL, if Envoy itself does not end";
    moments.push(timeline_event(grace, "kill", text));
    moments
}

fn timeline_event(at: Duration, event: &'static str, text: impl Into<String>) -> TimelineEvent {
    TimelineEvent {
        seconds: at.as_secs_f64(),
        event,
        text: text.into(),
        at,
    }
}
