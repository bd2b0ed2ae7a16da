//! What ends: the pod, Envoy alone, or the drainer alone. Told by who came.
//!
//! Kubernetes runs a container's preStop hook when the pod ends, and also when it restarts this
//! container alone, after a failed liveness probe or for a new image. Envoy's hook proves that this
//! Envoy ends; the drainer's hook proves that the drainer ends. Only both together prove that the
//! pod does, since the kubelet starts all hooks of an ending pod at once.
//! <https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/>

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Who has come, and when. SIGTERM may stand for the drainer's hook, which can fail to start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TerminationSignals {
    /// Envoy's hook.
    pub envoy_hook: Option<Instant>,
    /// The last call of it.
    pub last_envoy_hook: Option<Instant>,
    /// The drainer's own hook.
    pub drainer_hook: Option<Instant>,
    /// SIGTERM to the drainer.
    pub sigterm: Option<Instant>,
    /// When the port last may have failed a connection: flooded, or not bound. Envoy's hook may have
    /// been called then although it is not here.
    pub port_unavailable: Option<Instant>,
}

/// Whether Envoy has answered since the first of them came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AdminState {
    /// It was asked, and there is no answer yet.
    #[default]
    Pending,
    /// It answered.
    Responding,
    /// It cannot be reached, or answers nonsense.
    Unresponsive,
}

/// What that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminationPlan {
    /// Nobody came.
    None,
    /// Somebody else may be late: decide again then, or when somebody comes.
    Undecided {
        /// When it is no longer just that.
        until: Instant,
    },
    /// Something ends.
    Decided(Scope),
}

/// What ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The pod.
    Pod {
        /// When the first sign of it came.
        since: Instant,
    },
    /// The pod, or the drainer alone: Envoy's hook may have been called without reaching the port.
    PodUnconfirmed {
        /// When the first sign of it came.
        since: Instant,
    },
    /// The pod, as the marker of an earlier process says whose drain did not end Envoy.
    PodResumed,
    /// Envoy, which is restarted alone.
    EnvoyOnly {
        /// When its hook came.
        since: Instant,
        /// Whether it answers, so that its health can be failed.
        is_responding: bool,
    },
    /// The drainer, which is restarted alone; or the pod of an Envoy that does not run.
    DrainerOnly,
}

/// How much later than Envoy's hook the drainer's may come: an exec on a busy node takes a second.
pub(crate) const ENVOY_ONLY_GRACE: Duration = Duration::from_secs(3);

/// How long every call of a hook waits for the other signal at least: where Envoy does not answer,
/// and where the call comes shortly before the end of a round that an earlier call began. A little
/// less than [`LONE_ENVOY`], so that a hung Envoy's hook returns within three seconds, and the kubelet
/// can restart it.
pub(crate) const MIN_HOOK_GRACE: Duration = Duration::from_millis(2500);

/// How much later than the drainer's hook Envoy's may come. Longer, since waiting costs nothing.
pub(crate) const DRAINER_ONLY_GRACE: Duration = Duration::from_secs(10);

/// The same after SIGTERM, while Envoy does not answer, or when its hook was waited for already.
pub(crate) const SIGTERM_ONLY_GRACE: Duration = Duration::from_secs(1);

/// How much later than the drainer's hook Envoy's may come where the port may have failed it. Short,
/// since clients of an Envoy that ends are being lost meanwhile; the kernel tries a connection again
/// after a second.
pub(crate) const UNCONFIRMED_GRACE: Duration = Duration::from_millis(500);

/// The kubelet calls both hooks of a pod that ends within this, unless the node is very busy.
const SIMULTANEOUS_WINDOW: Duration = Duration::from_secs(1);

/// A connection that the port failed so shortly before the drainer's hook came may have been that of
/// Envoy's hook.
const PORT_FAILURE_WINDOW: Duration = Duration::from_millis(250);

// === impl TerminationSignals ===

impl TerminationSignals {
    /// Notes that the port may have failed a connection just now. Wakes no task: a flood gives
    /// thousands of occasions, and is not to disturb calls to Envoy.
    pub(crate) fn record_port_unavailable(signals: &watch::Sender<Self>) {
        let now = Instant::now();
        signals.send_if_modified(|came| {
            came.port_unavailable = Some(now);
            false
        });
    }

    /// Notes a call of Envoy's hook.
    pub(crate) fn record_envoy_hook(&mut self, now: Instant) {
        self.envoy_hook.get_or_insert(now);
        self.last_envoy_hook = Some(now);
    }

    /// Forgets the hooks, but for calls of the last [`LEAST_WAIT`]. Returns since when calls are kept;
    /// `None` if there are none.
    pub(crate) fn prune_hooks(&mut self, now: Instant) -> Option<Instant> {
        let kept_since = now.checked_sub(MIN_HOOK_GRACE);
        let recent = |at: &Instant| kept_since.is_some_and(|since| *at > since);
        self.envoy_hook = self.last_envoy_hook.filter(recent);
        self.drainer_hook = self.drainer_hook.filter(recent);
        let is_kept = self.envoy_hook.or(self.drainer_hook).is_some();
        kept_since.filter(|_| is_kept)
    }

    fn was_port_unavailable_after(&self, since: Instant) -> bool {
        self.port_unavailable
            .is_some_and(|noted| noted + PORT_FAILURE_WINDOW > since)
    }

    /// Returns true if both termination signals have come: Envoy's hook, and the drainer's hook or
    /// SIGTERM.
    pub(crate) fn proves_pod_termination(&self) -> bool {
        self.envoy_hook.is_some() && self.drainer_hook.or(self.sigterm).is_some()
    }

    /// Returns true if both termination signals came at about the same time.
    pub(crate) fn are_simultaneous(&self) -> bool {
        let Some((envoy, drainer)) = self.envoy_hook.zip(self.drainer_signal_at()) else {
            return false;
        };
        envoy.max(drainer) - envoy.min(drainer) <= SIMULTANEOUS_WINDOW
    }

    /// When the drainer's hook or SIGTERM came.
    fn drainer_signal_at(&self) -> Option<Instant> {
        [self.drainer_hook, self.sigterm]
            .into_iter()
            .flatten()
            .min()
    }

    /// Tells what ends, as far as it can be known at `now`, with Envoy's `answer`.
    ///
    /// `waited` says that the drainer's own hook has just returned, Envoy's not having come.
    #[must_use]
    pub(crate) fn plan(
        &self,
        now: Instant,
        admin: AdminState,
        drainer_hook_released: bool,
    ) -> TerminationPlan {
        let unless = |until: Instant, end: Scope| match now < until {
            true => TerminationPlan::Undecided { until },
            false => TerminationPlan::Decided(end),
        };
        match (self.envoy_hook, self.drainer_signal_at(), self.sigterm) {
            (None, None, _) => TerminationPlan::None,
            (Some(envoy), Some(drainer), _) => TerminationPlan::Decided(Scope::Pod {
                since: envoy.min(drainer),
            }),
            (Some(since), None, _) => {
                let answers = admin == AdminState::Responding;
                let patience = if answers {
                    ENVOY_ONLY_GRACE
                } else {
                    MIN_HOOK_GRACE
                };
                unless(
                    since + patience,
                    Scope::EnvoyOnly {
                        since,
                        is_responding: answers,
                    },
                )
            }
            (None, Some(_), Some(sigterm))
                if drainer_hook_released || admin == AdminState::Unresponsive =>
            {
                unless(sigterm + SIGTERM_ONLY_GRACE, Scope::DrainerOnly)
            }
            // An Envoy that does not answer has nothing to drain.
            (None, Some(since), _)
                if admin == AdminState::Responding && self.was_port_unavailable_after(since) =>
            {
                unless(since + UNCONFIRMED_GRACE, Scope::PodUnconfirmed { since })
            }
            (None, Some(drainer), _) => unless(drainer + DRAINER_ONLY_GRACE, Scope::DrainerOnly),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_row_of_who_came_tells_what_ends() {
        use AdminState::{Pending, Responding, Unresponsive as No};

        let t0 = Instant::now();
        let at = |seconds: f64| t0 + Duration::from_secs_f64(seconds);
        let pod = |seconds| TerminationPlan::Decided(Scope::Pod { since: at(seconds) });
        let envoy = |seconds, is_responding| {
            TerminationPlan::Decided(Scope::EnvoyOnly {
                since: at(seconds),
                is_responding,
            })
        };
        let until = |seconds| TerminationPlan::Undecided { until: at(seconds) };
        let drainer = TerminationPlan::Decided(Scope::DrainerOnly);
        // Envoy's hook, the drainer's hook, SIGTERM, now, Envoy's answer, waited
        let table = [
            (
                None,
                None,
                None,
                99.0,
                Responding,
                false,
                TerminationPlan::None,
            ),
            // Both hooks, or Envoy's and SIGTERM, in every order.
            (Some(0.0), Some(0.0), None, 0.0, Pending, false, pod(0.0)),
            (Some(0.0), Some(2.0), None, 2.0, Responding, false, pod(0.0)),
            (Some(2.0), Some(0.0), None, 2.0, No, false, pod(0.0)),
            (Some(0.0), Some(8.0), None, 8.0, Responding, false, pod(0.0)),
            (Some(5.0), None, Some(4.0), 5.0, Responding, false, pod(4.0)),
            (Some(5.0), None, Some(5.5), 5.5, Responding, true, pod(5.0)),
            (
                Some(3.0),
                Some(2.0),
                Some(1.0),
                3.0,
                Responding,
                false,
                pod(1.0),
            ),
            // Envoy's hook alone.
            (Some(1.0), None, None, 1.0, Pending, false, until(3.5)),
            (Some(1.0), None, None, 1.0, Responding, false, until(4.0)),
            (Some(1.0), None, None, 3.499, No, false, until(3.5)),
            (
                Some(1.0),
                None,
                None,
                3.5,
                Pending,
                false,
                envoy(1.0, false),
            ),
            (Some(1.0), None, None, 3.999, Responding, false, until(4.0)),
            (
                Some(1.0),
                None,
                None,
                4.0,
                Responding,
                false,
                envoy(1.0, true),
            ),
            // The drainer's hook alone.
            (None, Some(1.0), None, 1.0, Responding, false, until(11.0)),
            (None, Some(1.0), None, 10.9, No, true, until(11.0)),
            (None, Some(1.0), None, 11.0, Responding, false, drainer),
            // SIGTERM without Envoy's hook.
            (None, None, Some(1.0), 10.9, Responding, false, until(11.0)),
            (None, None, Some(1.0), 11.0, Responding, false, drainer),
            (None, None, Some(1.0), 1.5, No, false, until(2.0)),
            (None, None, Some(1.0), 2.0, No, false, drainer),
            (None, None, Some(1.0), 2.0, Pending, false, until(11.0)),
            (None, None, Some(1.0), 2.0, Responding, true, drainer),
            (
                None,
                Some(1.0),
                Some(11.0),
                11.0,
                Responding,
                false,
                drainer,
            ),
        ];
        for (envoy_hook, drainer_hook, sigterm, now, answer, waited, want) in table {
            let came = TerminationSignals {
                envoy_hook: envoy_hook.map(at),
                last_envoy_hook: envoy_hook.map(at),
                drainer_hook: drainer_hook.map(at),
                sigterm: sigterm.map(at),
                port_unavailable: None,
            };
            let got = came.plan(at(now), answer, waited);
            assert_eq!(got, want, "{came:?} at {now}, {answer:?}, {waited}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn signals_within_a_second_came_together() {
        let t0 = Instant::now();
        let at = |seconds: f64| t0 + Duration::from_secs_f64(seconds);
        let table = [
            (None, Some(1.0), None, false),
            (Some(1.0), None, None, false),
            (Some(1.0), Some(2.0), None, true),
            (Some(2.0), Some(1.0), Some(1.5), true),
            (Some(1.0), None, Some(0.5), true),
            (Some(1.0), Some(2.1), None, false),
            (Some(2.1), Some(1.0), Some(2.0), false),
        ];
        for (envoy_hook, drainer_hook, sigterm, want) in table {
            let came = TerminationSignals {
                envoy_hook: envoy_hook.map(at),
                drainer_hook: drainer_hook.map(at),
                sigterm: sigterm.map(at),
                ..TerminationSignals::default()
            };
            assert_eq!(came.are_simultaneous(), want, "{came:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_port_leaves_it_open_what_ends() {
        let t0 = Instant::now();
        let at = |seconds: f64| t0 + Duration::from_secs_f64(seconds);
        let unproven = |since| TerminationPlan::Decided(Scope::PodUnconfirmed { since: at(since) });
        let until = |seconds| TerminationPlan::Undecided { until: at(seconds) };
        let pod = TerminationPlan::Decided(Scope::Pod { since: at(2.0) });
        let drainer = TerminationPlan::Decided(Scope::DrainerOnly);
        use AdminState::{Pending, Responding, Unresponsive as No};
        // Envoy's hook, the drainer's hook, SIGTERM, unavailable, now, Envoy's answer, waited
        let table = [
            (
                None,
                Some(2.0),
                None,
                1.7,
                2.6,
                Responding,
                false,
                until(12.0),
            ),
            // Envoy's hook may have been called a moment before.
            (
                None,
                Some(2.0),
                None,
                1.8,
                2.5,
                Responding,
                false,
                unproven(2.0),
            ),
            (
                None,
                Some(2.0),
                None,
                2.0,
                2.4,
                Responding,
                false,
                until(2.5),
            ),
            (
                None,
                Some(2.0),
                None,
                2.1,
                2.5,
                Responding,
                false,
                unproven(2.0),
            ),
            (
                None,
                Some(2.0),
                None,
                9.0,
                9.0,
                Responding,
                false,
                unproven(2.0),
            ),
            (
                None,
                None,
                Some(2.0),
                2.1,
                2.5,
                Responding,
                false,
                unproven(2.0),
            ),
            (None, Some(2.0), None, 2.1, 3.0, Pending, false, until(12.0)),
            (None, Some(2.0), None, 2.1, 12.0, No, false, drainer),
            (None, None, Some(2.0), 2.1, 3.0, No, false, drainer),
            (None, None, Some(2.0), 2.1, 3.0, Responding, true, drainer),
            (Some(2.3), Some(2.0), None, 2.1, 2.3, Responding, false, pod),
        ];
        for (envoy_hook, drainer_hook, sigterm, unavailable, now, answer, waited, want) in table {
            let came = TerminationSignals {
                envoy_hook: envoy_hook.map(at),
                last_envoy_hook: envoy_hook.map(at),
                drainer_hook: drainer_hook.map(at),
                sigterm: sigterm.map(at),
                port_unavailable: Some(at(unavailable)),
            };
            let got = came.plan(at(now), answer, waited);
            assert_eq!(got, want, "{came:?} at {now}, {answer:?}, {waited}");
        }
    }
}
