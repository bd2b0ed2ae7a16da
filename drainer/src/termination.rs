//! What is terminating (the pod, Envoy alone or the drainer alone), decided from hooks and SIGTERM.
//!
//! Kubernetes runs a container's preStop hook when the pod terminates, and also when it restarts
//! that container alone, after a failed liveness probe or for a new image. Envoy's hook proves that
//! Envoy terminates; the drainer's hook proves that the drainer terminates. Only both prove that the
//! pod does, since the kubelet starts all hooks of a terminating pod at once.
//! <https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/>

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// When each termination signal arrived. SIGTERM counts as the drainer's hook too, which can fail to
/// start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TerminationSignals {
    /// The first call of Envoy's hook in this round.
    pub envoy_hook: Option<Instant>,
    /// The last call of Envoy's hook.
    pub last_envoy_hook: Option<Instant>,
    /// The first call of the drainer's own hook.
    pub drainer_hook: Option<Instant>,
    /// When the drainer's own hook last returned without a drain, after a wait for Envoy's.
    pub drainer_hook_released: Option<Instant>,
    /// SIGTERM to the drainer.
    pub sigterm: Option<Instant>,
    /// When the port last may have failed a connection, because it was flooded or not bound: a call of
    /// Envoy's hook may have been lost.
    pub port_unavailable: Option<Instant>,
}

/// Whether Envoy's admin interface has responded since the first signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdminState {
    /// No response yet.
    Pending,
    /// It has responded.
    Responding,
    /// It cannot be reached, or returns server errors.
    Unresponsive,
}

/// What is terminating, as far as the signals tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminationVerdict {
    /// What is terminating, if no other signal arrives before `clear_at`.
    pub scope: TerminationScope,
    /// When the grace for the other signal is over; not later than the signals if both have arrived.
    pub clear_at: Instant,
}

/// What is terminating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminationScope {
    /// The pod.
    Pod {
        /// When the first signal arrived.
        since: Instant,
    },
    /// The pod, or the drainer alone: a call of Envoy's hook may not have reached the port.
    PodUnconfirmed {
        /// When the first signal arrived.
        since: Instant,
    },
    /// The pod, according to the marker of an earlier process whose drain is not finished.
    PodResumed,
    /// Envoy alone, which is restarting.
    EnvoyOnly {
        /// When its hook was called.
        since: Instant,
        /// Whether it responds, so that its health can be failed.
        is_responding: bool,
    },
    /// The drainer alone, which is restarting; or the pod of an Envoy that is not running.
    DrainerOnly,
}

/// How much later than Envoy's hook the drainer's may be called: an exec on a busy node takes a second.
const ENVOY_ONLY_GRACE: Duration = Duration::from_secs(3);

/// The same in a pod that waits for a replacement: failed health would end that wait before it began.
const ENVOY_ONLY_GRACE_BEFORE_WAIT: Duration = Duration::from_secs(10);

/// How much later than the hook of another container Envoy's or the drainer's may be called. If neither is, only that
/// container is restarting, which waits no longer.
pub(crate) const CONTAINER_ONLY_GRACE: Duration = Duration::from_secs(3);

/// Minimum time for which a call of a hook waits for the other signal, also if Envoy does not
/// respond, or if the call is shortly before the end of a round that an earlier call began. A little
/// less than [`ENVOY_ONLY_GRACE`], so that a hung Envoy's hook returns within three seconds, and the
/// kubelet can restart it.
pub(crate) const MIN_HOOK_GRACE: Duration = Duration::from_millis(2500);

/// How much later than the drainer's hook Envoy's may be called. Longer, since the wait costs nothing.
pub(crate) const DRAINER_ONLY_GRACE: Duration = Duration::from_secs(10);

/// The same after SIGTERM if Envoy does not respond, or if the wait for its hook is over already.
pub(crate) const SIGTERM_ONLY_GRACE: Duration = Duration::from_secs(1);

/// How much later than the drainer's hook Envoy's may be called if the port may have failed it. Short,
/// since a terminating Envoy loses requests meanwhile; the kernel retries a connection after a second.
pub(crate) const UNCONFIRMED_GRACE: Duration = Duration::from_millis(500);

/// The kubelet calls both hooks of a terminating pod within this time, unless the node is very busy.
const SIMULTANEOUS_WINDOW: Duration = Duration::from_secs(1);

/// A connection that the port failed at most this long before the drainer's hook may have been that of
/// Envoy's hook.
const PORT_FAILURE_WINDOW: Duration = Duration::from_millis(250);

/// Returns how much later than the hook of an Envoy that responds the drainer's may be called, until Envoy counts as
/// restarting alone.
pub(crate) fn envoy_only_grace(wait_for_replacement: Duration) -> Duration {
    match wait_for_replacement.is_zero() {
        true => ENVOY_ONLY_GRACE,
        false => ENVOY_ONLY_GRACE_BEFORE_WAIT,
    }
}

// === impl TerminationSignals ===

impl TerminationSignals {
    /// Records that the port may have failed a connection just now. Wakes no task, since a flood causes
    /// thousands of these, which must not cancel calls to Envoy.
    pub(crate) fn record_port_unavailable(signals: &watch::Sender<Self>) {
        let now = Instant::now();
        signals.send_if_modified(|signals| {
            signals.port_unavailable = Some(now);
            false
        });
    }

    /// Records a call of Envoy's hook.
    pub(crate) fn record_envoy_hook(&mut self, now: Instant) {
        self.envoy_hook.get_or_insert(now);
        self.last_envoy_hook = Some(now);
    }

    /// Records a call of the drainer's own hook.
    pub(crate) fn record_drainer_hook(&mut self, now: Instant) {
        self.drainer_hook.get_or_insert(now);
    }

    /// Removes the calls of hooks, except those of the last [`MIN_HOOK_GRACE`]. Returns since when
    /// calls are kept; `None` if there are none.
    pub(crate) fn prune_hooks(&mut self, now: Instant) -> Option<Instant> {
        let kept_since = now.checked_sub(MIN_HOOK_GRACE);
        let is_recent = |at: &Instant| kept_since.is_some_and(|since| *at > since);
        self.envoy_hook = self.last_envoy_hook.filter(is_recent);
        self.drainer_hook = self.drainer_hook.filter(is_recent);
        let is_kept = self.envoy_hook.or(self.drainer_hook).is_some();
        kept_since.filter(|_| is_kept)
    }

    fn was_port_unavailable_after(&self, since: Instant) -> bool {
        self.port_unavailable
            .is_some_and(|at| at + PORT_FAILURE_WINDOW > since)
    }

    /// Returns true if both termination signals have arrived: Envoy's hook, and the drainer's hook or
    /// SIGTERM.
    pub(crate) fn proves_pod_termination(&self) -> bool {
        self.envoy_hook.is_some() && self.drainer_signal_at().is_some()
    }

    /// Returns true if both termination signals arrived within [`SIMULTANEOUS_WINDOW`].
    pub(crate) fn are_simultaneous(&self) -> bool {
        let both = self.envoy_hook.zip(self.drainer_signal_at());
        both.is_some_and(|(a, b)| a.max(b) - a.min(b) <= SIMULTANEOUS_WINDOW)
    }

    /// Returns when the drainer's hook or SIGTERM arrived, whichever was first.
    pub(crate) fn drainer_signal_at(&self) -> Option<Instant> {
        [self.drainer_hook, self.sigterm]
            .into_iter()
            .flatten()
            .min()
    }

    /// Decides at `now` what is terminating, given the state of Envoy's `admin` interface and the
    /// [`envoy_only_grace`]; `None` if no signal has arrived.
    pub(crate) fn decide(
        &self,
        now: Instant,
        admin: AdminState,
        envoy_only_grace: Duration,
    ) -> Option<TerminationVerdict> {
        let is_released = |at: Instant| now < at + DRAINER_ONLY_GRACE;
        let is_hook_released = self.drainer_hook_released.is_some_and(is_released);
        let is_responding = admin == AdminState::Responding;
        let (scope, clear_at) = match (self.envoy_hook, self.drainer_signal_at(), self.sigterm) {
            (None, None, _) => return None,
            (Some(envoy), Some(drainer), _) => {
                let since = envoy.min(drainer);
                (TerminationScope::Pod { since }, since)
            }
            (Some(since), None, _) => {
                let grace = match is_responding {
                    true => envoy_only_grace,
                    false => MIN_HOOK_GRACE,
                };
                let scope = TerminationScope::EnvoyOnly {
                    since,
                    is_responding,
                };
                (scope, since + grace)
            }
            (None, Some(_), Some(sigterm))
                if is_hook_released || admin == AdminState::Unresponsive =>
            {
                (TerminationScope::DrainerOnly, sigterm + SIGTERM_ONLY_GRACE)
            }
            // An Envoy that does not respond has nothing to drain.
            (None, Some(since), _) if is_responding && self.was_port_unavailable_after(since) => (
                TerminationScope::PodUnconfirmed { since },
                since + UNCONFIRMED_GRACE,
            ),
            (None, Some(drainer), _) => {
                (TerminationScope::DrainerOnly, drainer + DRAINER_ONLY_GRACE)
            }
        };
        Some(TerminationVerdict { scope, clear_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is clear at `now`: nothing, what is terminating, or when that will be clear.
    fn decide(
        signals: &TerminationSignals,
        now: Instant,
        admin: AdminState,
        drainer_hook_released: bool,
    ) -> Option<Result<TerminationScope, Instant>> {
        let signals = TerminationSignals {
            drainer_hook_released: drainer_hook_released.then_some(now),
            ..*signals
        };
        let verdict = signals.decide(now, admin, ENVOY_ONLY_GRACE)?;
        Some(match now < verdict.clear_at {
            true => Err(verdict.clear_at),
            false => Ok(verdict.scope),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn signals_decide_what_is_terminating() {
        use AdminState::{Pending, Responding, Unresponsive as No};

        let t0 = Instant::now();
        let at = |seconds: f64| t0 + Duration::from_secs_f64(seconds);
        let pod = |seconds| Some(Ok(TerminationScope::Pod { since: at(seconds) }));
        let envoy = |seconds, is_responding| {
            Some(Ok(TerminationScope::EnvoyOnly {
                since: at(seconds),
                is_responding,
            }))
        };
        let until = |seconds| Some(Err(at(seconds)));
        let drainer = Some(Ok(TerminationScope::DrainerOnly));
        // Envoy's hook, the drainer's hook, SIGTERM, now, admin state, drainer's hook released, verdict
        let table = [
            (None, None, None, 99.0, Responding, false, None),
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
        for (envoy_hook, drainer_hook, sigterm, now, admin, released, want) in table {
            let signals = TerminationSignals {
                envoy_hook: envoy_hook.map(at),
                last_envoy_hook: envoy_hook.map(at),
                drainer_hook: drainer_hook.map(at),
                drainer_hook_released: None,
                sigterm: sigterm.map(at),
                port_unavailable: None,
            };
            let got = decide(&signals, at(now), admin, released);
            assert_eq!(got, want, "{signals:?} at {now}, {admin:?}, {released}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn drainer_hook_is_awaited_for_longer_where_the_pod_waits_for_a_replacement() {
        let envoy_hook = Instant::now();
        let mut signals = TerminationSignals::default();
        signals.record_envoy_hook(envoy_hook);
        let clear_after = |admin, wait_for_replacement| {
            let grace = envoy_only_grace(wait_for_replacement);
            let verdict = signals.decide(envoy_hook, admin, grace);
            verdict.map(|verdict| verdict.clear_at - envoy_hook)
        };
        let wait = Duration::from_secs(60);
        let table = [
            (AdminState::Responding, Duration::ZERO, ENVOY_ONLY_GRACE),
            (AdminState::Responding, wait, DRAINER_ONLY_GRACE),
            (AdminState::Pending, wait, MIN_HOOK_GRACE),
            (AdminState::Unresponsive, wait, MIN_HOOK_GRACE),
        ];
        for (admin, wait, want) in table {
            assert_eq!(clear_after(admin, wait), Some(want), "{admin:?}, {wait:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn signals_within_a_second_are_simultaneous() {
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
            let signals = TerminationSignals {
                envoy_hook: envoy_hook.map(at),
                drainer_hook: drainer_hook.map(at),
                sigterm: sigterm.map(at),
                ..TerminationSignals::default()
            };
            assert_eq!(signals.are_simultaneous(), want, "{signals:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unavailable_port_leaves_pod_termination_unconfirmed() {
        let t0 = Instant::now();
        let at = |seconds: f64| t0 + Duration::from_secs_f64(seconds);
        let unconfirmed = |since| Some(Ok(TerminationScope::PodUnconfirmed { since: at(since) }));
        let until = |seconds| Some(Err(at(seconds)));
        let pod = Some(Ok(TerminationScope::Pod { since: at(2.0) }));
        let drainer = Some(Ok(TerminationScope::DrainerOnly));
        use AdminState::{Pending, Responding, Unresponsive as No};
        // Envoy's hook, the drainer's hook, SIGTERM, port unavailable, now, admin state, drainer's hook
        // released, verdict
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
                unconfirmed(2.0),
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
                unconfirmed(2.0),
            ),
            (
                None,
                Some(2.0),
                None,
                9.0,
                9.0,
                Responding,
                false,
                unconfirmed(2.0),
            ),
            (
                None,
                None,
                Some(2.0),
                2.1,
                2.5,
                Responding,
                false,
                unconfirmed(2.0),
            ),
            (None, Some(2.0), None, 2.1, 3.0, Pending, false, until(12.0)),
            (None, Some(2.0), None, 2.1, 12.0, No, false, drainer),
            (None, None, Some(2.0), 2.1, 3.0, No, false, drainer),
            (None, None, Some(2.0), 2.1, 3.0, Responding, true, drainer),
            (Some(2.3), Some(2.0), None, 2.1, 2.3, Responding, false, pod),
        ];
        for (envoy_hook, drainer_hook, sigterm, unavailable, now, admin, released, want) in table {
            let signals = TerminationSignals {
                envoy_hook: envoy_hook.map(at),
                last_envoy_hook: envoy_hook.map(at),
                drainer_hook: drainer_hook.map(at),
                drainer_hook_released: None,
                sigterm: sigterm.map(at),
                port_unavailable: Some(at(unavailable)),
            };
            let got = decide(&signals, at(now), admin, released);
            assert_eq!(got, want, "{signals:?} at {now}, {admin:?}, {released}");
        }
    }
}
