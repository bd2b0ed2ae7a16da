//! One drain of Envoy: from its start, soft or full, to a summary.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{error, info, warn};

use super::monitor::{INSPECT_TIMEOUT, Monitor};
use crate::drain::calls::{CallState, DrainCalls, DrainStage};
use crate::drain::exit_rules::{DrainHistory, DrainOutcome, ExitDecision};
use crate::drain::health_failure::FailHealthWhen;
use crate::drain::progress::DrainPhase;
use crate::drain::replacement;
use crate::drain::summary::{DrainSummary, ReplacementWait};
use crate::envoy::admin_call::AdminCall;
use crate::log_limiter::LogLimiter;
use crate::settings::config::Config;
use crate::settings::duration::format;

/// A drain, which may be soft at first and then full.
pub(crate) struct Drain {
    /// When the first signal arrived, from which the deadline counts.
    pub(crate) since: Instant,
    calls: DrainCalls,
    history: DrainHistory,
    /// Envoy's health may be failed, so that it cannot serve on as a healthy endpoint.
    is_health_failed: bool,
    /// The wait for a replacement, once it has ended.
    replacement: Option<ReplacementWait>,
    /// When a full drain ends at the latest; `None` in a soft one.
    deadline: Option<Instant>,
    log_limiter: LogLimiter,
}

/// How often to log that a draining Envoy does not respond.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How long before the end of the grace period hooks return, so that Envoy ends before it is killed.
const GRACE_MARGIN: Duration = Duration::from_secs(5);

/// Timeout of the call that fails health at the end of a drain, which may be the drain's deadline.
const LAST_CALL_TIMEOUT: Duration = Duration::from_secs(1);

// === impl Drain ===

impl Drain {
    /// A drain for which the first signal arrived at `since`. `is_health_failed` says whether an earlier drain has
    /// failed Envoy's health.
    pub(crate) fn new(since: Instant, is_health_failed: bool) -> Self {
        Self {
            since,
            calls: DrainCalls::default(),
            history: DrainHistory::default(),
            is_health_failed,
            replacement: None,
            deadline: None,
            log_limiter: LogLimiter::new(LOG_INTERVAL),
        }
    }

    /// Runs the full drain, which fails Envoy's health and drains its listeners, until an exit rule holds or its deadline
    /// is reached.
    pub(crate) async fn run(&mut self, monitor: &mut Monitor) -> DrainSummary {
        let time_limit = format(monitor.config.timing.time_limit());
        info!(%time_limit, "Pod is terminating");
        let deadline = self.decide_deadline(&monitor.config);
        self.deadline = Some(deadline);
        let outcome = timeout_at(deadline, self.run_until_ended(monitor)).await;
        let outcome = outcome.unwrap_or_else(|_| self.history.outcome_at_deadline(&monitor.rules));
        if self.calls.is_health_kept() && outcome != DrainOutcome::Gone {
            // Envoy may run on, as a native sidecar does until the pod's other containers have stopped.
            let call = self.make_call(AdminCall::FailHealth, monitor);
            let _ = timeout(LAST_CALL_TIMEOUT, call).await;
        }
        let mut summary = DrainSummary::new(outcome, self.since, &self.history);
        summary.replacement = self.replacement.take();
        summary.log();
        summary.shortened()
    }

    /// Returns when the full drain ends at the latest: its time limit after the first signal. If the second one came
    /// later, the limit starts anew as far as the pod's grace period allows that.
    fn decide_deadline(&self, config: &Config) -> Instant {
        let limit = config.timing.time_limit();
        let grace_end = self.since + config.grace_period.saturating_sub(GRACE_MARGIN);
        (self.since + limit).max(grace_end.min(Instant::now() + limit))
    }

    async fn run_until_ended(&mut self, monitor: &mut Monitor) -> DrainOutcome {
        if self.is_health_failed {
            // What called Envoy's hook for the soft drain may not have been the kubelet.
            self.history.restart(Instant::now());
            if !monitor.config.timing.wait_for_replacement.is_zero() {
                warn!("Envoy's health has already failed: not waiting for a replacement");
            }
        } else if let Some(outcome) = self.serve_on(monitor).await {
            return outcome;
        }
        monitor.set_phase(DrainPhase::Draining);
        if !self.is_health_failed {
            self.decide_when_to_fail_health(monitor);
        }
        self.poll_until_ended(monitor, DrainStage::Full).await
    }

    /// Makes the calls of a stage, and polls until an exit rule holds. The caller has the deadline.
    pub(crate) async fn poll_until_ended(
        &mut self,
        monitor: &mut Monitor,
        stage: DrainStage,
    ) -> DrainOutcome {
        monitor.request_inspection();
        // Mostly from memory: only servers that are new since standby are asked.
        let _ = timeout(INSPECT_TIMEOUT, monitor.envoy.find_again(true)).await;
        loop {
            self.make_due_calls(monitor, stage).await;
            let deadline_in =
                (self.deadline).map(|at| at.saturating_duration_since(Instant::now()));
            monitor.progress.send_modify(|progress| {
                progress.health_kept = self.calls.is_health_kept();
                progress.deadline_in = deadline_in.map(|left| left.as_secs());
            });
            if self.calls.have_begun() {
                monitor.inspect_if_due().await;
            }
            let decision = monitor.poll(&mut self.history).await;
            if self.history.is_live() && self.calls.health == CallState::Accepted {
                // Another Envoy, or its health was restored by another caller of the admin interface.
                self.calls = DrainCalls::default();
                self.history.restart(Instant::now());
            }
            match decision {
                ExitDecision::Exit(outcome) => return outcome,
                ExitDecision::PollAt(at) => sleep_until(at).await,
            }
        }
    }

    /// Keeps Envoy serving as a healthy endpoint: for `drain-delay` after the first signal, since some load
    /// balancers send new connections to a removed endpoint for a long time, and then until there is a replacement.
    /// Returns the outcome if Envoy exits.
    async fn serve_on(&mut self, monitor: &mut Monitor) -> Option<DrainOutcome> {
        monitor.set_phase(DrainPhase::Delaying);
        let delayed_until = self.since + monitor.config.timing.drain_delay;
        let limit = monitor.config.timing.wait_for_replacement;
        let (access, progress) = (monitor.config.webhook.clone(), monitor.progress.clone());
        let wait = async {
            sleep_until(delayed_until).await;
            if limit.is_zero() {
                return None;
            }
            let ask = || replacement::fetch(&access);
            Some(replacement::wait(delayed_until, limit, ask, &progress).await)
        };
        tokio::select! {
            waited = wait => {
                self.replacement = waited;
                None
            }
            outcome = self.poll_until_ended(monitor, DrainStage::Serving) => Some(outcome),
        }
    }

    /// Decides when the drain, which starts now, fails Envoy's health.
    fn decide_when_to_fail_health(&mut self, monitor: &Monitor) {
        let delay = monitor.config.settings.health_failure_delay;
        let drains_http3 = monitor.drains_http3();
        let quiet_period = monitor.config.timing.quiet_period;
        self.calls.fail_health_when =
            FailHealthWhen::decide(delay, Instant::now(), drains_http3, quiet_period);
        if self.calls.is_health_kept() {
            info!(health_failure_delay = %delay, "Envoy's health is not failed yet");
        }
    }

    /// Makes the calls that are due, until Envoy does not respond.
    async fn make_due_calls(&mut self, monitor: &mut Monitor, stage: DrainStage) {
        let no_http3_since = self.history.no_http3_since;
        while let Some(call) = self.calls.next(Instant::now(), no_http3_since, stage)
            && self.make_call(call, monitor).await
        {
            self.history.start(Instant::now());
        }
    }

    /// Makes a call. Returns true if Envoy responded.
    async fn make_call(&mut self, call: AdminCall, monitor: &mut Monitor) -> bool {
        let was_kept = self.calls.is_health_kept();
        self.is_health_failed |= call == AdminCall::FailHealth;
        let result = monitor.envoy.post(call).await;
        let path = <&str>::from(call).split('?').next();
        let state = match call {
            AdminCall::DrainListeners => &mut self.calls.listeners,
            AdminCall::FailHealth | AdminCall::RestoreHealth => &mut self.calls.health,
        };
        match result {
            Ok(()) => {
                info!(call = path, "Envoy accepted the call");
                *state = CallState::Accepted;
                if was_kept && call == AdminCall::FailHealth {
                    self.history.health_failed_at = Some(Instant::now());
                }
            }
            Err(error) if error.is_rejection() => {
                error!(call = path, %error, "Envoy rejected the call: draining without it");
                *state = CallState::Rejected;
            }
            Err(absence) if absence.is_absence() => {
                if self.log_limiter.should_log(Instant::now()) {
                    warn!(%absence, "Envoy cannot be drained: waiting for min-drain-duration");
                }
                self.history.start(Instant::now());
                return false;
            }
            Err(error) => {
                if self.log_limiter.should_log(Instant::now()) {
                    let admin = monitor.envoy.address().map(tracing::field::display);
                    warn!(call = path, admin, %error, "Envoy did not respond: retrying until the deadline");
                }
                return false;
            }
        }
        true
    }
}
