//! What is ending (the pod, Envoy alone or the drainer alone), decided from the hooks that are open and from SIGTERM.
//!
//! Kubernetes runs a container's preStop hook when the pod ends, and also when it restarts that container alone. When a
//! pod ends, the kubelet kills all containers at once (`killContainersWithSyncResult`); for a restart it kills one
//! container after another (`SyncPod`). So two hooks that are open at the same moment prove that the pod ends, and no
//! hook that was open before proves anything.
//! <https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/kuberuntime/kuberuntime_container.go>

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The hooks that are open, and SIGTERM to the drainer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TerminationSignals {
    /// When each open call of a [`Hook`] came, the oldest first. The server limits their number.
    hooks: [Vec<Instant>; 2],
    /// SIGTERM, which is never taken back.
    pub(crate) sigterm: Option<Instant>,
    /// All hooks return at once, those that are open and new ones, until [`TerminationSignals::answer_hooks`].
    pub(super) is_releasing: bool,
    /// The flags of the drainer's hook, that of a shutdown manager.
    pub(crate) flags: Vec<String>,
}

/// The proof that the pod ends: Envoy's hook, and the drainer's or SIGTERM, open at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodEnd {
    /// When they first were: the durations of the drain count from then.
    pub(crate) proven_at: Instant,
    /// When the oldest open call of Envoy's hook came. The pod's grace period has not begun before.
    pub(crate) envoy_hook_since: Instant,
}

/// A hook that is evidence of a termination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Envoy's, an HTTP request on the port.
    Envoy,
    /// The drainer's own, the command `drainer drain`.
    Drainer,
}

/// A call of a hook, open until this is dropped.
struct HookCall<'a> {
    signals: &'a watch::Sender<TerminationSignals>,
    hook: Hook,
    called_at: Instant,
}

/// What Envoy's admin interface has shown since the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdminState {
    /// Nothing yet, or an Envoy that is not the only one, or whose socket is closed to the drainer.
    Unknown,
    /// A response.
    Responding,
    /// Three refused connections in a row where Envoy was, or is to be.
    Refusing,
    /// Nothing that may be an Envoy: what listens has answered otherwise, or not when it was first asked. SIGTERM waits for
    /// Envoy's hook no longer than a drain would hold that.
    NoEnvoy(Duration),
}

/// What the signals ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing is ending.
    StandBy,
    /// What is ending is open: decide again at this time, if no signal changes before.
    Wait(Instant),
    /// The pod ends: drain Envoy.
    Drain(PodEnd),
    /// Envoy's hook alone, which was called at this time: drain Envoy as far as that can be undone.
    DrainSoftly(Instant),
    /// The pod does not end, or there is nothing to drain: let the hooks return that were called by this time.
    Release(Instant),
    /// The same where the drainer's hook alone is open and no Envoy runs: exit at the SIGTERM that follows.
    ReleaseDrainer,
    /// The drainer alone ends.
    Exit,
}

/// How much later than Envoy's hook the drainer's may be called: an exec on a starved node takes seconds.
pub(crate) const ENVOY_ALONE: Duration = Duration::from_secs(10);

/// How long the drainer's hook waits for Envoy's. If the pod ends meanwhile, the kubelet cancels the restart of the
/// drainer, and with it this wait.
pub(crate) const DRAINER_ALONE: Duration = Duration::from_secs(30);

/// How long the drainer waits for Envoy's hook after SIGTERM.
const SIGTERM_ALONE: Duration = Duration::from_secs(10);

/// How long the drainer's hook or SIGTERM waits for Envoy's hook where Envoy does not run.
pub(crate) const WITHOUT_ENVOY: Duration = Duration::from_secs(1);

/// How much later than the hook of another container Envoy's or the drainer's may be called. If neither is, only that
/// container is restarting.
pub(crate) const CONTAINER_ALONE: Duration = Duration::from_secs(3);

/// Holds a call of a hook open until hooks are released, or until this is dropped because the caller has gone.
pub(crate) async fn hold(signals: &watch::Sender<TerminationSignals>, hook: Hook) {
    let mut updates = signals.subscribe();
    let call = HookCall::open(signals, hook);
    let is_open = |now: &TerminationSignals| now.hooks[hook as usize].contains(&call.called_at);
    let may_return = |now: &TerminationSignals| now.is_releasing || !is_open(now);
    // `signals` keeps the channel open.
    let _ = updates.wait_for(may_return).await;
}

// === impl HookCall ===

impl<'a> HookCall<'a> {
    fn open(signals: &'a watch::Sender<TerminationSignals>, hook: Hook) -> Self {
        let called_at = Instant::now();
        signals.send_modify(|signals| signals.hooks[hook as usize].push(called_at));
        Self {
            signals,
            hook,
            called_at,
        }
    }
}

impl Drop for HookCall<'_> {
    fn drop(&mut self) {
        self.signals.send_if_modified(|signals| {
            let open = &mut signals.hooks[self.hook as usize];
            let closed = open.iter().position(|at| *at == self.called_at);
            closed.map(|index| open.remove(index)).is_some()
        });
    }
}

// === impl TerminationSignals ===

impl TerminationSignals {
    /// Lets the hooks return that were called by this time, and holds the others, and those that are called from now on.
    pub(crate) fn answer_hooks(&mut self, called_by: Instant) {
        self.is_releasing = false;
        for calls in &mut self.hooks {
            calls.retain(|called_at| *called_at > called_by);
        }
    }

    /// Returns true if SIGTERM has come or a hook is open.
    pub(crate) fn is_any(&self) -> bool {
        self.sigterm.is_some() || self.hooks.iter().any(|calls| !calls.is_empty())
    }

    /// Returns the proof that the pod ends, if it does.
    pub(crate) fn pod_end(&self) -> Option<PodEnd> {
        let [envoy, drainer] = &self.hooks;
        let envoy_hook_since = *envoy.first()?;
        let drainer_since = *drainer.first().into_iter().chain(&self.sigterm).min()?;
        Some(PodEnd {
            proven_at: envoy_hook_since.max(drainer_since),
            envoy_hook_since,
        })
    }

    /// Returns true if Envoy's hook is open, and proves nothing.
    pub(crate) fn is_envoy_alone(&self) -> bool {
        !self.hooks[Hook::Envoy as usize].is_empty() && self.pod_end().is_none()
    }

    /// Decides at `now` what to do, given what the `admin` interface has shown since the first signal.
    pub(crate) fn decide(&self, now: Instant, admin: AdminState) -> Decision {
        use AdminState::{NoEnvoy, Refusing, Responding, Unknown};
        use Decision::{Drain, DrainSoftly, Exit, Release, ReleaseDrainer, StandBy, Wait};
        let wait = |until, end| if now < until { Wait(until) } else { end };
        let [envoy, drainer] = &self.hooks;
        match (envoy.first(), drainer.first(), self.sigterm, admin) {
            _ if let Some(end) = self.pod_end() => Drain(end),
            (None, None, None, _) => StandBy,
            (Some(_), .., Refusing) => Release(now),
            (Some(&since), .., Responding) => wait(since + ENVOY_ALONE, DrainSoftly(since)),
            // A later call may be the kubelet's, with the drainer's hook to follow.
            (Some(&since), ..) => wait(since + ENVOY_ALONE, Release(since)),
            (None, drainer, Some(sigterm), _) => {
                let limit = match admin {
                    Refusing => WITHOUT_ENVOY,
                    NoEnvoy(delay) => delay.min(SIGTERM_ALONE),
                    Unknown | Responding => SIGTERM_ALONE,
                };
                let until = sigterm + limit;
                let until = drainer.map_or(until, |&since| until.min(since + DRAINER_ALONE));
                wait(until, Exit)
            }
            (None, Some(&since), None, Unknown | Responding) => {
                wait(since + DRAINER_ALONE, Release(now))
            }
            // The hook of an Envoy that runs would have come.
            (None, Some(&since), None, _) => wait(since + WITHOUT_ENVOY, ReleaseDrainer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn open_hooks_decide_what_is_ending() {
        use AdminState::{Refusing, Responding, Unknown};
        use Decision::{Exit, ReleaseDrainer, StandBy};
        let no_envoy = |delay| AdminState::NoEnvoy(Duration::from_secs(delay));
        let t0 = Instant::now();
        let release = |second: f64| Decision::Release(t0 + Duration::from_secs_f64(second));
        let at = |second: f64| t0 + Duration::from_secs_f64(second);
        // When the pod's end is proven, and when Envoy's hook was called.
        let drain = |proven: f64, envoy: f64| {
            Decision::Drain(PodEnd {
                proven_at: at(proven),
                envoy_hook_since: at(envoy),
            })
        };
        let softly = |second| Decision::DrainSoftly(at(second));
        let until = |second| Decision::Wait(at(second));
        // Envoy's hook, the drainer's hook, SIGTERM, now, admin, decision
        let table = [
            (None, None, None, 99.0, Responding, StandBy),
            // Envoy's hook, and the drainer's or SIGTERM, in every order.
            (Some(0.0), Some(0.0), None, 0.0, Unknown, drain(0.0, 0.0)),
            (Some(0.0), Some(9.0), None, 9.0, Responding, drain(9.0, 0.0)),
            (
                Some(29.0),
                Some(0.0),
                None,
                29.0,
                Refusing,
                drain(29.0, 29.0),
            ),
            (Some(5.0), None, Some(4.0), 5.0, Responding, drain(5.0, 5.0)),
            (
                Some(3.0),
                Some(2.0),
                Some(1.0),
                3.0,
                Unknown,
                drain(3.0, 3.0),
            ),
            (
                Some(3.0),
                Some(5.0),
                Some(4.0),
                6.0,
                Unknown,
                drain(4.0, 3.0),
            ),
            // Envoy's hook alone.
            (Some(1.0), None, None, 1.0, Unknown, until(11.0)),
            (Some(1.0), None, None, 10.9, Responding, until(11.0)),
            (Some(1.0), None, None, 11.0, Responding, softly(1.0)),
            (Some(1.0), None, None, 11.0, Unknown, release(1.0)),
            (Some(1.0), None, None, 1.6, Refusing, release(1.6)),
            // Its Envoy runs, or its hook would not have come.
            (Some(1.0), None, None, 10.9, no_envoy(0), until(11.0)),
            (Some(1.0), None, None, 11.0, no_envoy(0), release(1.0)),
            // The drainer's hook alone.
            (None, Some(1.0), None, 30.9, Unknown, until(31.0)),
            (None, Some(1.0), None, 31.0, Responding, release(31.0)),
            (None, Some(1.0), None, 1.6, Refusing, until(2.0)),
            (None, Some(1.0), None, 2.0, Refusing, ReleaseDrainer),
            (None, Some(1.0), None, 1.9, no_envoy(60), until(2.0)),
            (None, Some(1.0), None, 9.0, no_envoy(60), ReleaseDrainer),
            // SIGTERM without Envoy's hook.
            (None, None, Some(1.0), 10.9, Responding, until(11.0)),
            (None, None, Some(1.0), 11.0, Unknown, Exit),
            (None, None, Some(1.0), 1.6, Refusing, until(2.0)),
            (None, None, Some(1.0), 2.0, Refusing, Exit),
            (None, Some(1.0), Some(5.0), 15.0, Responding, Exit),
            // The drainer's hook is held no longer for it.
            (None, Some(1.0), Some(25.0), 30.9, Responding, until(31.0)),
            (None, Some(1.0), Some(25.0), 31.0, Responding, Exit),
            // No longer than a drain would hold Envoy's hook.
            (None, None, Some(1.0), 1.0, no_envoy(0), Exit),
            (None, None, Some(1.0), 3.9, no_envoy(3), until(4.0)),
            (None, None, Some(1.0), 4.0, no_envoy(3), Exit),
            (None, None, Some(1.0), 10.9, no_envoy(60), until(11.0)),
            (None, Some(1.0), Some(5.0), 14.9, no_envoy(60), until(15.0)),
        ];
        for (envoy, drainer, sigterm, now, admin, want) in table {
            let open = |second: Option<f64>| second.map(at).into_iter().collect();
            let signals = TerminationSignals {
                hooks: [open(envoy), open(drainer)],
                sigterm: sigterm.map(at),
                ..TerminationSignals::default()
            };
            let got = signals.decide(at(now), admin);
            assert_eq!(got, want, "{signals:?} at {now}, {admin:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hook_counts_while_a_call_of_it_is_open() {
        let signals = watch::Sender::new(TerminationSignals::default());
        let decide = || signals.borrow().decide(Instant::now(), AdminState::Unknown);
        let first = HookCall::open(&signals, Hook::Envoy);
        let second = HookCall::open(&signals, Hook::Envoy);
        drop(first);
        assert!(matches!(decide(), Decision::Wait(_)));
        drop(second);
        assert_eq!(decide(), Decision::StandBy);
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_oldest_call_that_is_open() {
        let signals = watch::Sender::new(TerminationSignals::default());
        let second = Duration::from_secs(1);
        let t0 = Instant::now();
        let _drainer = HookCall::open(&signals, Hook::Drainer);
        advance(second).await;
        let first = HookCall::open(&signals, Hook::Envoy);
        advance(second).await;
        let _second = HookCall::open(&signals, Hook::Envoy);
        let end = |at| PodEnd {
            proven_at: at,
            envoy_hook_since: at,
        };
        assert_eq!(signals.borrow().pod_end(), Some(end(t0 + second)));
        drop(first);
        assert_eq!(signals.borrow().pod_end(), Some(end(t0 + 2 * second)));
    }

    #[tokio::test(start_paused = true)]
    async fn release_closes_every_hook_that_was_called_before_its_end() {
        let signals = watch::Sender::new(TerminationSignals::default());
        let decide = || signals.borrow().decide(Instant::now(), AdminState::Unknown);
        let held = hold(&signals, Hook::Envoy);
        let late = async {
            signals.send_modify(|it| it.is_releasing = true);
            hold(&signals, Hook::Drainer).await;
        };
        tokio::join!(held, late);
        let open = HookCall::open(&signals, Hook::Envoy);
        signals.send_modify(|it| it.answer_hooks(Instant::now()));
        assert_eq!(decide(), Decision::StandBy);
        advance(Duration::from_millis(1)).await;
        let next = HookCall::open(&signals, Hook::Envoy);
        // Its client goes only now: that closes no other call.
        drop(open);
        assert!(matches!(decide(), Decision::Wait(_)));
        drop(next);
        assert_eq!(decide(), Decision::StandBy);
    }

    #[tokio::test(start_paused = true)]
    async fn hook_that_was_called_later_is_held_longer() {
        let signals = watch::Sender::new(TerminationSignals::default());
        let t0 = Instant::now();
        let stranger = hold(&signals, Hook::Envoy);
        let mut stranger = pin!(stranger);
        assert!(timeout(Duration::ZERO, &mut stranger).await.is_err());
        advance(Duration::from_secs(9)).await;
        let _kubelet = HookCall::open(&signals, Hook::Envoy);
        signals.send_modify(|it| it.answer_hooks(t0));
        stranger.await;
        let _drainer = HookCall::open(&signals, Hook::Drainer);
        let end = signals.borrow().pod_end().unwrap();
        assert_eq!(end.envoy_hook_since, t0 + Duration::from_secs(9));
    }
}
