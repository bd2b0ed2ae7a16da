//! The state machine of the drainer, drawn in `docs/architecture.md`: one task that decides what is ending and makes all
//! calls to Envoy, from the drainer's start to its exit.

mod drain;
mod monitor;
mod standby;
pub(crate) mod termination;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{info, warn};

use self::drain::Drain;
use self::monitor::Monitor;
use self::standby::{STANDBY_INTERVAL, Standby};
use self::termination::{AdminState, Decision, ENVOY_ALONE, TerminationSignals};
use crate::drain::calls::DrainStage;
use crate::drain::exit_rules::{DrainOutcome, MAX_REFUSALS, REFUSAL_POLL_PAUSE};
use crate::drain::progress::{DrainPhase, Progress};
use crate::drain::report::Report;
use crate::settings::config::Config;

/// Decides what is ending, and drains Envoy for it.
pub(crate) struct Machine {
    monitor: Monitor,
    standby: Standby,
    signals: watch::Sender<TerminationSignals>,
    /// When a soft drain last ended. An Envoy that was running then and still runs has survived it.
    soft_drain_ended_at: Option<Instant>,
}

/// What the machine does.
enum State {
    /// Nothing is ending.
    Standby,
    /// A signal has arrived that proves nothing alone.
    Asking,
    /// Only Envoy's hook is open: health is failed, which can be undone.
    DrainingSoftly(Drain),
    /// The pod ends.
    Draining(Drain),
    /// The pod is drained: hooks return at once, until Envoy is live or it is time to restore its health.
    Releasing { restore_at: Instant },
    /// The drainer ends.
    Exiting,
}

/// The longest soft drain. With the time before it, an Envoy that hangs is restarted within 25 s.
const MAX_SOFT_DRAIN: Duration = Duration::from_secs(15);

/// How long after the release of its hook an Envoy that restarts may still run.
const ENVOY_EXIT_TIME: Duration = Duration::from_secs(10);

/// How long after its grace period a pod that ends is gone, whatever the kubelet had to wait for.
const POD_EXIT_MARGIN: Duration = Duration::from_secs(30);

// === impl Machine ===

impl Machine {
    /// A machine that acts on `signals` and publishes its `progress`.
    pub(crate) fn new(
        config: &Config,
        signals: watch::Sender<TerminationSignals>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        Self {
            monitor: Monitor::new(config, progress),
            standby: Standby::new(),
            signals,
            soft_drain_ended_at: None,
        }
    }

    /// Runs until the drainer ends, when every hook has been released.
    pub(crate) async fn run(mut self) {
        let mut state = State::Standby;
        loop {
            state = match state {
                State::Standby => self.stand_by().await,
                State::Asking => self.ask().await,
                State::DrainingSoftly(drain) => self.drain_softly(drain).await,
                State::Draining(drain) => self.drain(drain).await,
                State::Releasing { restore_at } => self.release(restore_at).await,
                State::Exiting => break,
            };
        }
        self.answer_hooks();
    }

    async fn stand_by(&mut self) -> State {
        self.monitor.set_phase(DrainPhase::Standby);
        let mut signals = self.signals.subscribe();
        let has_signal = |signals: &TerminationSignals| {
            signals.decide(Instant::now(), AdminState::Silent) != Decision::StandBy
        };
        tokio::select! {
            biased;
            _ = signals.wait_for(has_signal) => State::Asking,
            never = self.standby.run(&mut self.monitor) => never,
        }
    }

    /// Waits until it is clear what is ending, or until no signal is left.
    async fn ask(&mut self) -> State {
        self.monitor.set_phase(DrainPhase::Waiting);
        let mut signals = self.signals.subscribe();
        let (admin, states) = watch::channel(AdminState::Silent);
        let decision = tokio::select! {
            biased;
            decision = until_decided(&mut signals, states) => decision,
            never = self.watch_admin(&admin) => never,
        };
        let is_health_failed = self.standby.is_health_failed();
        match decision {
            Decision::StandBy | Decision::Wait { .. } => State::Standby,
            Decision::Drain { since } => State::Draining(Drain::new(since, is_health_failed)),
            Decision::DrainSoftly { since } => {
                let is_pod_ending = signals.wait_for(TerminationSignals::prove_pod_end);
                let may_drain = tokio::select! {
                    biased;
                    _ = is_pod_ending => true,
                    may_drain = self.may_drain_softly(since) => may_drain,
                };
                if may_drain {
                    State::DrainingSoftly(Drain::new(since, is_health_failed))
                } else {
                    info!(
                        "Not draining Envoy: it has restarted since the call, or survived a soft drain"
                    );
                    self.answer_hooks()
                }
            }
            Decision::Release => {
                info!("Not draining Envoy: the pod is not terminating, or Envoy does not respond");
                self.answer_hooks()
            }
            Decision::Exit => {
                info!("Only the drainer is stopping: not draining Envoy");
                State::Exiting
            }
        }
    }

    /// Polls the admin interface, and restores the health that an earlier process has failed.
    async fn watch_admin<T>(&mut self, admin: &watch::Sender<AdminState>) -> T {
        let mut refusals = 0;
        loop {
            let pinged = self.monitor.ping().await;
            let delay = self.monitor.config.timing.min_drain_duration;
            let state = match &pinged {
                Ok(_) => AdminState::Responding,
                Err(error) if error.is_refusal() => AdminState::Refusing,
                Err(error) if error.is_absence() => AdminState::Absent { delay },
                Err(_) => AdminState::Silent,
            };
            let is_refusing = state == AdminState::Refusing;
            refusals = if is_refusing { refusals + 1 } else { 0 };
            if state != AdminState::Silent && !(1..MAX_REFUSALS).contains(&refusals) {
                admin.send_replace(state);
            }
            let Ok(live) = pinged else {
                sleep(REFUSAL_POLL_PAUSE).await;
                continue;
            };
            let standby = &mut self.standby;
            standby.restore_health_if_due(live, &mut self.monitor).await;
            sleep(STANDBY_INTERVAL).await;
        }
    }

    /// Returns true if Envoy is the one whose hook was called at `since`, and was not running when the last soft drain
    /// ended: what called its hook then was not a kubelet that restarts it. An Envoy of unknown uptime counts as the same.
    async fn may_drain_softly(&mut self, since: Instant) -> bool {
        let info = self.monitor.envoy.server_info().await;
        // In whole seconds.
        let uptime = info.ok().and_then(|info| info.uptime());
        let is_older_than = |at: Instant| uptime.is_none_or(|uptime| uptime > at.elapsed());
        let has_survived = self.soft_drain_ended_at.is_some_and(is_older_than);
        let is_successor =
            uptime.is_some_and(|uptime| uptime + Duration::from_secs(1) < since.elapsed());
        !has_survived && !is_successor
    }

    /// Fails Envoy's health, and waits as for a pod that ends: it may, where the drainer's hook cannot be called.
    async fn drain_softly(&mut self, mut drain: Drain) -> State {
        info!("Only Envoy's preStop hook is open: starting a soft drain, which can be undone");
        self.monitor.set_phase(DrainPhase::DrainingSoftly);
        let limit = self.monitor.config.timing.drain_timeout.min(MAX_SOFT_DRAIN);
        let deadline = drain.since + ENVOY_ALONE + limit;
        let mut signals = self.signals.subscribe();
        let outcome = tokio::select! {
            biased;
            _ = signals.wait_for(TerminationSignals::prove_pod_end) => {
                return State::Draining(drain);
            }
            outcome = timeout_at(deadline, drain.poll_until_ended(&mut self.monitor, DrainStage::Soft)) => outcome,
        };
        let outcome = outcome.unwrap_or(DrainOutcome::Deadline);
        info!(%outcome, "Soft drain ended: releasing Envoy's hook");
        let now = Instant::now();
        self.soft_drain_ended_at = Some(now);
        self.standby.begin(now + ENVOY_EXIT_TIME);
        self.answer_hooks()
    }

    /// Drains Envoy, since the pod ends.
    async fn drain(&mut self, mut drain: Drain) -> State {
        let since = drain.since;
        let config = &self.monitor.config;
        let pod_limit = config.grace_period.max(config.timing.time_limit());
        let summary = drain.run(&mut self.monitor).await;
        self.monitor
            .set_phase(DrainPhase::Released(summary.outcome));
        self.signals.send_modify(TerminationSignals::release_hooks);
        summary.write(&self.monitor.config.termination_log);
        let report = Report::Drain(summary);
        report.send(&self.monitor.config.webhook).await;
        let restore_at = since + pod_limit + POD_EXIT_MARGIN;
        State::Releasing { restore_at }
    }

    /// Lets the hooks that are open return, and stands by.
    fn answer_hooks(&self) -> State {
        self.signals
            .send_modify(TerminationSignals::answer_open_hooks);
        State::Standby
    }

    /// Answers hooks at once until it is clear whether the drainer or its Envoy ends. If Envoy is still draining at
    /// `restore_at`, neither does: its health is restored.
    async fn release(&mut self, restore_at: Instant) -> State {
        let mut signals = self.signals.subscribe();
        tokio::select! {
            biased;
            _ = signals.wait_for(TerminationSignals::has_sigterm) => return State::Exiting,
            () = self.until_live() => {}
            () = sleep_until(restore_at) => {
                warn!("Envoy is not live, and no SIGTERM has arrived: restoring Envoy's health when it responds");
            }
        }
        self.standby.begin(Instant::now());
        self.answer_hooks()
    }

    async fn until_live(&mut self) {
        while self.monitor.ping().await != Ok(Some(true)) {
            // Short, since a pod that ends meanwhile is not drained.
            sleep(REFUSAL_POLL_PAUSE).await;
        }
    }
}

/// Waits for a decision other than to wait. No call to Envoy is cancelled by a change of the signals before that.
async fn until_decided(
    signals: &mut watch::Receiver<TerminationSignals>,
    mut admin: watch::Receiver<AdminState>,
) -> Decision {
    loop {
        let state = *admin.borrow_and_update();
        let decision = signals.borrow_and_update().decide(Instant::now(), state);
        let Decision::Wait { until } = decision else {
            return decision;
        };
        tokio::select! {
            biased;
            _ = signals.changed() => {}
            _ = admin.changed() => {}
            () = sleep_until(until) => {}
        }
    }
}
