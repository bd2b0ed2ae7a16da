//! The state machine of the drainer, drawn in `docs/dev/architecture.md`: one task that decides what is ending and makes
//! all calls to Envoy, from the drainer's start to its exit.

mod drain;
#[cfg(test)]
mod exploration;
mod monitor;
mod server;
mod standby;
pub(crate) mod termination;
#[cfg(test)]
mod tests;

use std::future::pending;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use self::drain::Drain;
use self::monitor::Monitor;
use self::standby::{STANDBY_INTERVAL, Standby};
use self::termination::{AdminState, Decision, PodEnd, TerminationSignals, WITHOUT_ENVOY};
use crate::drain::exit_rules::{DrainOutcome, MAX_REFUSALS, REFUSAL_POLL_PAUSE};
use crate::drain::progress::{DrainPhase, Progress};
use crate::drain::report::Report;
use crate::envoy::admin_call::CallError;
use crate::envoy::admin_probe::PROBE_TIMEOUT;
use crate::http_client::HttpError;
use crate::settings::config::Config;

/// Decides what is ending, and drains Envoy for it.
pub(crate) struct Machine {
    monitor: Monitor,
    standby: Standby,
    signals: watch::Sender<TerminationSignals>,
    /// When a soft drain last ended. An Envoy that was running then and still runs has survived it.
    soft_drain_ended_at: Option<Instant>,
}

/// How long after the release of its hook an Envoy that restarts may still run.
const ENVOY_EXIT_TIME: Duration = Duration::from_secs(10);

/// An Envoy that was live this long before the drainer's hook, and does not run then, was ended together with the drainer.
const ENVOY_EXIT_BEFORE_HOOK: Duration = Duration::from_secs(5);

/// Calls that came so soon after one that is released are released with it, and logged with it.
const RELEASED_TOGETHER: Duration = Duration::from_secs(1);

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
        let mut machine = Self {
            monitor: Monitor::new(config, progress),
            standby: Standby::new(),
            signals,
            soft_drain_ended_at: None,
        };
        // An earlier process may have failed it.
        machine.restore_health_from(Instant::now());
        machine
    }

    /// Runs until the drainer ends, when every hook has been released.
    pub(crate) async fn run(mut self) {
        while self.run_once().await.is_continue() {}
        self.answer_hooks(Instant::now());
    }

    /// Stands by until a signal arrives, and does what it asks for. Breaks if the drainer ends.
    async fn run_once(&mut self) -> ControlFlow<()> {
        self.stand_by().await;
        match self.wait().await {
            Decision::StandBy | Decision::Wait(_) => return ControlFlow::Continue(()),
            Decision::Drain(end) => self.drain(end).await?,
            // Any client can call a hook without a token, and a server has no health to fail.
            Decision::DrainSoftly(since)
                if self.monitor.config.manager.is_none() && !self.monitor.config.is_of_server() =>
            {
                let Some(end) = self.drain_softly(since).await else {
                    self.answer_hooks(since);
                    return ControlFlow::Continue(());
                };
                self.drain(end).await?;
            }
            Decision::Release(called_by) | Decision::DrainSoftly(called_by) => {
                info!(
                    "Releasing a hook without a drain: the pod is not ending, or Envoy does not respond"
                );
                self.answer_hooks(called_by + RELEASED_TOGETHER);
                return ControlFlow::Continue(());
            }
            Decision::ReleaseDrainer => {
                info!("Not draining: no Envoy runs");
                self.answer_hooks(Instant::now());
                self.report_missed_hook().await;
                let mut signals = self.signals.subscribe();
                let next = signals.wait_for(TerminationSignals::is_any);
                return match timeout(WITHOUT_ENVOY, next).await {
                    Ok(Ok(now)) if now.pod_end().is_none() && now.sigterm.is_some() => {
                        ControlFlow::Break(())
                    }
                    _ => ControlFlow::Continue(()),
                };
            }
            Decision::Exit => {
                info!("Only the drainer is stopping: not draining Envoy");
                return ControlFlow::Break(());
            }
        }
        self.answer_hooks(Instant::now());
        ControlFlow::Continue(())
    }

    /// Waits for the first signal.
    async fn stand_by(&mut self) {
        self.monitor.set_phase(DrainPhase::Standby);
        let mut signals = self.signals.subscribe();
        tokio::select! {
            biased;
            _ = signals.wait_for(TerminationSignals::is_any) => {}
            never = self.standby.run(&mut self.monitor) => never,
        }
    }

    /// Waits until it is clear what is ending, or until no signal is left. No call to Envoy is cancelled by a change of the
    /// signals before that.
    async fn wait(&mut self) -> Decision {
        self.monitor.set_phase(DrainPhase::Waiting);
        let mut signals = self.signals.subscribe();
        let (admin, mut states) = watch::channel(AdminState::Unknown);
        let decide = async {
            loop {
                let state = *states.borrow_and_update();
                let decision = signals.borrow_and_update().decide(Instant::now(), state);
                let Decision::Wait(until) = decision else {
                    return decision;
                };
                tokio::select! {
                    biased;
                    _ = signals.changed() => {}
                    _ = states.changed() => {}
                    () = sleep_until(until) => {}
                }
            }
        };
        tokio::select! {
            biased;
            decision = decide => decision,
            never = self.watch_admin(&admin) => never,
        }
    }

    /// Polls the admin interface, and restores the health that an earlier process has failed.
    async fn watch_admin<T>(&mut self, admin: &watch::Sender<AdminState>) -> T {
        use AdminState::{NoEnvoy, Refusing, Responding, Unknown};
        let delay = self.monitor.config.settings.timing.min_drain_duration;
        let is_annotated = self.monitor.config.admin_address.is_some();
        let is_unproven = is_annotated && !self.monitor.rules.has_responded;
        let mut limit = is_unproven.then_some(PROBE_TIMEOUT);
        let mut refusals = 0;
        loop {
            let limit = limit.take().unwrap_or(Duration::MAX);
            let state = match timeout(limit, self.monitor.ping()).await {
                Ok(Ok(_)) => Responding,
                Ok(Err(CallError::Http(HttpError::ConnectionRefused))) => Refusing,
                Ok(Err(CallError::NothingListens | CallError::NotServing)) => {
                    NoEnvoy(WITHOUT_ENVOY)
                }
                Ok(Err(CallError::NotFound)) => NoEnvoy(delay),
                Ok(Err(CallError::Silent)) | Err(_) => NoEnvoy(Duration::MAX),
                Ok(Err(_)) => Unknown,
            };
            refusals = if state == Refusing { refusals + 1 } else { 0 };
            if state != Unknown && !(1..MAX_REFUSALS).contains(&refusals) {
                admin.send_replace(state);
            }
            sleep(match state {
                Responding => STANDBY_INTERVAL,
                _ => REFUSAL_POLL_PAUSE,
            })
            .await;
        }
    }

    /// Returns true if Envoy is the one whose hook was called at `since`, and was not running when the last soft drain
    /// ended: what called its hook then was not a kubelet that restarts it. An Envoy of unknown uptime counts as the same.
    async fn may_drain_softly(&mut self, since: Instant) -> bool {
        let info = self.monitor.client.server_info().await;
        // In whole seconds.
        let uptime = info.ok().and_then(|info| info.uptime());
        let is_older_than = |at: Instant| uptime.is_none_or(|uptime| uptime > at.elapsed());
        let has_survived = self.soft_drain_ended_at.is_some_and(is_older_than);
        let is_successor =
            uptime.is_some_and(|uptime| uptime + Duration::from_secs(1) < since.elapsed());
        !has_survived && !is_successor
    }

    /// Fails Envoy's health, and waits as for a pod that ends: it may, where the drainer's hook cannot be called. Returns the
    /// proof if the pod does end.
    async fn drain_softly(&mut self, since: Instant) -> Option<PodEnd> {
        let mut signals = self.signals.subscribe();
        let drain = async {
            if !self.may_drain_softly(since).await {
                return info!(
                    "Not draining Envoy: it has restarted since the call, or survived a soft drain"
                );
            }
            info!("Only Envoy's preStop hook is open: starting a soft drain, which can be undone");
            self.monitor.set_phase(DrainPhase::SoftDraining);
            let mut drain = Drain::soft(since, &mut self.monitor);
            let outcome = drain.poll(&mut self.monitor).await;
            info!(%outcome, "Soft drain ended: releasing Envoy's hook");
        };
        let end = tokio::select! {
            biased;
            now = signals.wait_for(|now| !now.is_envoy_alone()) => now.ok().and_then(|now| now.pod_end()),
            () = drain => None,
        };
        let phase = self.monitor.progress.borrow().phase;
        if end.is_none() && phase == DrainPhase::SoftDraining {
            let now = Instant::now();
            self.soft_drain_ended_at = Some(now);
            self.restore_health_from(now + ENVOY_EXIT_TIME);
        }
        end
    }

    /// Drains Envoy, since the pod ends. Then hooks are answered at once until it is clear whether the drainer or its Envoy
    /// ends. If Envoy is still draining when the pod would be gone, neither does: its health is restored.
    async fn drain(&mut self, end: PodEnd) -> ControlFlow<()> {
        let monitor = &mut self.monitor;
        monitor.apply_manager_flags(&self.signals.borrow().flags);
        let time_limit = monitor.config.settings.timing.time_limit();
        let pod_limit = monitor.config.grace_period.max(time_limit);
        let restore_at = end.envoy_hook_since + pod_limit + POD_EXIT_MARGIN;
        let summary = Drain::full(end, monitor).run(monitor).await;
        monitor.set_phase(DrainPhase::Released(summary.outcome));
        self.signals.send_modify(|it| it.is_releasing = true);
        let config = &monitor.config;
        summary.write(&config.termination_log);
        Report::Drain(summary).send(&config.webhook).await;
        let mut signals = self.signals.subscribe();
        tokio::select! {
            biased;
            _ = signals.wait_for(|now| now.sigterm.is_some()) => return ControlFlow::Break(()),
            () = self.until_live() => {}
            () = sleep_until(restore_at) => {
                warn!("Envoy is not live, and no SIGTERM has arrived: restoring Envoy's health when it responds");
            }
        }
        self.restore_health_from(Instant::now());
        ControlFlow::Continue(())
    }

    /// Reports an Envoy that was live just before the drainer's hook was called, and whose own hook was not. The kubelet takes
    /// any response for a hook's, as that of an Envoy to which the iptables rules of an init container redirect the call.
    async fn report_missed_hook(&mut self) {
        let config = &self.monitor.config;
        let live_at = self.monitor.live_at.take();
        // The hook has been waiting since. In a Job, whose minimum is zero, Envoy is told to exit first.
        let limit = ENVOY_EXIT_BEFORE_HOOK + WITHOUT_ENVOY;
        let is_recent = live_at.is_some_and(|at| at.elapsed() <= limit);
        if is_recent && !config.settings.timing.min_drain_duration.is_zero() {
            let nothing = Drain::new(Instant::now(), Duration::ZERO);
            let summary = nothing.summary(Some(DrainOutcome::HookMissed), &self.monitor);
            summary.log("Envoy was not drained");
            summary.write(&config.termination_log);
            Report::Drain(summary).send(&config.webhook).await;
        }
    }

    /// Makes standby restore Envoy's health from this time on, if it is failed then. It may be another Envoy.
    fn restore_health_from(&mut self, at: Instant) {
        self.monitor.calls.restore_at = Some(at);
        self.monitor.request_inspection();
    }

    /// Lets the hooks return that were called by this time.
    fn answer_hooks(&self, called_by: Instant) {
        self.signals.send_modify(|it| it.answer_hooks(called_by));
    }

    async fn until_live(&mut self) {
        if self.monitor.config.is_of_server() {
            return pending().await;
        }
        while self.monitor.ping().await != Ok(Some(true)) {
            // Short, since a pod that ends meanwhile is not drained.
            sleep(REFUSAL_POLL_PAUSE).await;
        }
    }
}
