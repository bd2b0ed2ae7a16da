//! The timeline of a pod's termination, as planned: what its own parts do, and what others see of it.

use std::time::Duration;

use admission::{Code, DrainPlan};
use drainer::duration::format;
use drainer::{Config, HealthFailureDelay, MAX_QUIET_WAIT};

use crate::offline::WorkloadResult;

/// What is known of the drain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prospect {
    /// Nothing speaks against it.
    Drain,
    /// The kubelet's call of Envoy's hook may not reach the drainer.
    Redirection,
    /// The drainer cannot call Envoy.
    NoAdmin,
}

/// What others see of the pod once it is deleted.
/// <https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-to-terminating-endpoints>
const TERMINATING: &str = "the endpoint is terminating and not ready, but serving: kube-proxy and Envoy Gateway use it \
    only if no other is ready, Istio not at all";

const REDIRECTED: &str = "if the call of Envoy's hook is redirected, its proxy answers: SIGTERM to Envoy at once, without \
    a drain. Otherwise:";

const KEPT_HEALTH: &str = "; but if the webhook finds no other ready endpoint in any Service of the pod, Envoy stays \
    healthy to the end";

/// An event in a pod's termination.
pub(super) struct TimelineEvent {
    /// The time after the pod's deletion.
    pub(super) at: Duration,
    /// `endpoint`, `redirected`, `sigterm`, `hooks`, `drain`, `unready`, `earliest`, `idle`, `quiet`, `deadline`,
    /// `unreachable` or `kill`.
    pub(super) name: &'static str,
    /// A description for people.
    pub(super) text: String,
}

// === impl Prospect ===

impl Prospect {
    /// What is known of a pod that gets a drainer.
    pub(super) fn of(pod: &WorkloadResult) -> Self {
        match pod.warning(Code::HookRedirected) {
            _ if pod.obstacle().is_some() => Self::NoAdmin,
            Some(_) => Self::Redirection,
            None => Self::Drain,
        }
    }
}

/// The events after the deletion of a pod with this drainer and this grace period in seconds, in the order of time; some
/// containers get SIGTERM at once. `readiness_failure` is how long Envoy's readiness probe takes to fail, if that is known.
pub(super) fn timeline(
    drainer: &Config,
    grace: i64,
    ended_at_once: &[String],
    readiness_failure: Option<Duration>,
    prospect: Prospect,
) -> Vec<TimelineEvent> {
    let mut events = vec![event(Duration::ZERO, "endpoint", TERMINATING)];
    if prospect == Prospect::Redirection {
        events.push(event(Duration::ZERO, "redirected", REDIRECTED));
    }
    if !ended_at_once.is_empty() {
        let names = ended_at_once.join("`, `");
        let text = format!(
            "SIGTERM to `{names}`: from then on, what Envoy sends it may fail; see `extra-lifecycle-hooks`"
        );
        events.push(event(Duration::ZERO, "sigterm", text));
    }
    if prospect == Prospect::NoAdmin {
        events.extend(delay(drainer));
    } else {
        events.extend(drain(drainer, readiness_failure));
    }
    let grace = Duration::from_secs(grace.try_into().unwrap_or(0));
    let is_server = drainer.is_of_server();
    let drained = if is_server { "the server" } else { "Envoy" };
    let text = format!("the grace period ends: SIGKILL if {drained} has not exited");
    events.push(event(grace, "kill", text));
    events
}

/// The events of a pod that gets a drainer.
pub(super) fn planned(plan: &DrainPlan, prospect: Prospect) -> Vec<TimelineEvent> {
    let (grace, failure) = (plan.grace.to, plan.readiness_failure);
    let ended_at_once = &plan.ended_at_once;
    timeline(&plan.drainer, grace, ended_at_once, failure, prospect)
}

fn event(at: Duration, name: &'static str, text: impl Into<String>) -> TimelineEvent {
    let text = text.into();
    TimelineEvent { at, name, text }
}

/// The events where the drainer cannot call Envoy: a plain delay.
fn delay(drainer: &Config) -> [TimelineEvent; 2] {
    let timing = drainer.settings.timing;
    let latest = timing.drain_delay + timing.wait_for_replacement + timing.min_drain_duration;
    let hooks = "the preStop hooks start; Envoy stays healthy, and no client is told to reconnect";
    let exit = "the hooks end without a drain (`unreachable`): SIGTERM, and Envoy cuts all connections, requests included";
    [
        event(Duration::ZERO, "hooks", hooks),
        event(latest.min(timing.time_limit()), "unreachable", exit),
    ]
}

/// The events of a drain, from the hooks' start to the deadline.
fn drain(drainer: &Config, readiness_failure: Option<Duration>) -> Vec<TimelineEvent> {
    let timing = drainer.settings.timing;
    let drain_start = timing.drain_delay;
    let earliest = drain_start + timing.min_drain_duration;
    let wait = timing.wait_for_replacement;
    let quiet_limit = earliest + wait + MAX_QUIET_WAIT;
    let deadline = timing.time_limit();
    let is_server = drainer.is_of_server();
    let mut events = start(drainer, readiness_failure);
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
    events.push(event(exit, "earliest", text));
    let is_never_idle = is_server && drainer.never_idle_ports == drainer.server_ports;
    let can_idle = !keeps_health && !is_never_idle;
    if let Some(idle_exit) = timing.idle_exit.filter(|_| can_idle) {
        let last = format(idle_exit);
        let text = if is_server {
            format!("the earliest exit with silent connections left: no byte in the last {last}")
        } else {
            format!(
                "the earliest exit with idle HTTP connections left, if no request was active in the last {last}"
            )
        };
        events.push(event(exit.max(idle_exit), "idle", text));
    }
    if !quiet_period.is_zero() {
        let latest = if wait.is_zero() { "" } else { " at the latest" };
        let text = format!("from here on{latest}, new connections no longer postpone the exit");
        events.push(event(quiet_limit, "quiet", text));
    }
    // The deadline comes before all that would happen at or after it.
    events.retain(|event| event.at < deadline || event.name == "earliest");
    events.sort_by_key(|event| event.at);
    let text = if is_server {
        "the latest exit: SIGTERM to the server, whatever is in flight"
    } else {
        "the latest exit: Envoy closes the remaining connections"
    };
    events.push(event(deadline, "deadline", text));
    events
}

/// The start of the hooks and of the drain, and what health checks see of it.
fn start(drainer: &Config, readiness_failure: Option<Duration>) -> Vec<TimelineEvent> {
    if drainer.is_of_server() {
        let text =
            "the preStop hooks start: the server serves on, and nothing tells its clients to leave";
        return vec![event(Duration::ZERO, "hooks", text)];
    }
    let settings = &drainer.settings;
    let drain_start = settings.timing.drain_delay;
    let wait = settings.timing.wait_for_replacement;
    let (effect, health_failure) = match settings.health_failure_delay {
        HealthFailureDelay::After(delay) if !delay.is_zero() => {
            let after = format(delay);
            let effect = format!(
                "responses make clients reconnect, and Envoy fails checks of its health, load balancers' own included, after {after}"
            );
            (effect, Some(drain_start + delay))
        }
        HealthFailureDelay::End => {
            let effect =
                "responses make clients reconnect, and Envoy stays healthy to the end".to_owned();
            (effect, None)
        }
        delay => {
            let effect = "Envoy fails checks of its health, load balancers' own included, and responses make clients reconnect";
            let asks = delay == HealthFailureDelay::Auto && drainer.webhook.is_enabled();
            let exception = if asks { KEPT_HEALTH } else { "" };
            (format!("{effect}{exception}"), Some(drain_start))
        }
    };
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
    let mut events = Vec::new();
    if !wait.is_zero() || !drain_start.is_zero() {
        let text = "the preStop hooks start; Envoy keeps serving, healthy";
        events.push(event(Duration::ZERO, "hooks", text));
    }
    events.push(event(drain_start, "drain", format!("{start}: {effect}")));
    if let (Some(after), Some(failure)) = (readiness_failure, health_failure) {
        let text = "the readiness probe has failed, if it follows Envoy's health: the endpoint is not serving, and \
            kube-proxy and Envoy Gateway no longer use it";
        events.push(event(failure + wait + after, "unready", text));
    }
    events
}

#[cfg(test)]
mod tests {
    use drainer::Token;

    use super::*;

    #[test]
    fn sole_pod_that_can_ask_the_webhook_may_stay_healthy() {
        use HealthFailureDelay::{After, Auto, End};
        let starts = |delay, address: &str| {
            let mut drainer = Config::new(Token(0));
            drainer.settings.health_failure_delay = delay;
            drainer.webhook.address = address.to_owned();
            let mut events = timeline(&drainer, 75, &[], None, Prospect::Drain).into_iter();
            events.find(|event| event.name == "drain").unwrap().text
        };
        const API: &str = "webhook.infra.svc:8443";
        for (delay, address, want) in [
            (Auto, API, true),
            (Auto, "", false),
            (End, API, false),
            (After(Duration::ZERO), API, false),
            (After(Duration::from_secs(5)), API, false),
        ] {
            let text = starts(delay, address);
            assert_eq!(
                text.contains(KEPT_HEALTH),
                want,
                "{delay} {address}: {text}"
            );
        }
    }
}
