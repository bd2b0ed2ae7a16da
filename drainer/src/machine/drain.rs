//! One drain of Envoy: from its start, soft or full, to a summary.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{error, info, warn};

use super::monitor::Monitor;
use super::termination::{ENVOY_ALONE, PodEnd};
use crate::drain::calls::EnvoyCalls;
use crate::drain::exit_rules::DrainOutcome::{self, Deadline};
use crate::drain::exit_rules::{DrainHistory, ExitDecision};
use crate::drain::progress::DrainPhase;
use crate::drain::replacement;
use crate::drain::summary::{DrainSummary, Remaining, ReplacementWait};
use crate::envoy::admin_call::AdminCall;
use crate::log_limiter::LogLimiter;
use crate::settings::duration::{format, seconds};
use crate::settings::health_failure_delay::HealthFailureDelay::{Auto, End};

/// A drain, soft or full.
pub(crate) struct Drain {
    /// From when its durations count: the call of Envoy's hook, or the proof that the pod ends.
    since: Instant,
    /// When it ends at the latest.
    time_limit: Instant,
    /// When it ends once its minimum is over, before the end of the pod's grace period.
    grace_limit: Instant,
    history: DrainHistory,
    /// The wait for a replacement, once it has ended.
    replacement: Option<ReplacementWait>,
    /// Limits interim messages; `None` for a soft drain, which has none, as it can be undone.
    interim_message: Option<LogLimiter>,
    /// What was open when that was last logged.
    logged: Option<Remaining>,
    count_log: LogLimiter,
    log_limiter: LogLimiter,
}

/// The longest soft drain. With the time before it, an Envoy that hangs is restarted within 25 s.
const MAX_SOFT_DRAIN: Duration = Duration::from_secs(15);

/// How often to log that a draining Envoy does not respond.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How often to log what is open, if it has changed.
const COUNT_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// How often to write an interim message, for the pod may be killed at any time: a grace period may be shortened.
const INTERIM_INTERVAL: Duration = Duration::from_secs(1);

/// How long before the end of the grace period hooks return, so that Envoy ends before it is killed.
const GRACE_MARGIN: Duration = Duration::from_secs(5);

/// How long the calls of a drain may take that are due at its deadline.
const LAST_CALL_TIMEOUT: Duration = Duration::from_secs(1);

// === impl Drain ===

impl Drain {
    /// A soft drain, for which Envoy's hook was called at `since`.
    pub(crate) fn soft(since: Instant, monitor: &mut Monitor) -> Self {
        monitor.calls.begin_drain();
        let timing = &monitor.config.settings.timing;
        let limit = timing.drain_timeout.min(MAX_SOFT_DRAIN);
        Self::new(since, ENVOY_ALONE + limit)
    }

    /// The full drain of a pod whose `end` is proven. After a soft one all is anew but for the call that failed health, since
    /// what called Envoy's hook then may not have been the kubelet.
    pub(crate) fn full(end: PodEnd, monitor: &mut Monitor) -> Self {
        if monitor.progress.borrow().phase != DrainPhase::SoftDraining {
            monitor.calls.begin_drain();
        }
        let grace_period = monitor.config.grace_period;
        let limit = monitor.config.settings.timing.time_limit();
        info!(time_limit = %format(limit), "Pod is terminating");
        let mut drain = Self::new(end.proven_at, limit);
        drain.interim_message = Some(LogLimiter::default());
        if !grace_period.is_zero() {
            drain.grace_limit = end.envoy_hook_since + grace_period.saturating_sub(GRACE_MARGIN);
        }
        drain
    }

    pub(super) fn new(since: Instant, limit: Duration) -> Self {
        Self {
            since,
            time_limit: since + limit,
            grace_limit: since + limit,
            history: DrainHistory::default(),
            replacement: None,
            interim_message: None,
            logged: None,
            count_log: LogLimiter::default(),
            log_limiter: LogLimiter::default(),
        }
    }

    /// Runs the full drain, which fails Envoy's health and drains its listeners, until an exit rule holds or its deadline
    /// is reached.
    pub(crate) async fn run(mut self, monitor: &mut Monitor) -> DrainSummary {
        self.leave_trace(monitor);
        let outcome = match self.delay(monitor).await {
            Some(outcome) => outcome,
            None => {
                monitor.set_phase(DrainPhase::Draining);
                // Both calls precede any deadline.
                let called_by = Instant::now() + LAST_CALL_TIMEOUT;
                let called_by = self.deadline(monitor).max(called_by);
                let _ = timeout_at(called_by, self.make_due_calls(monitor)).await;
                self.poll(monitor).await
            }
        };
        if monitor.calls.is_health_kept() && outcome != DrainOutcome::Gone {
            // Envoy may run on, as a native sidecar does until the pod's other containers have stopped.
            let call = self.make_call(AdminCall::FailHealth, monitor);
            let _ = timeout(LAST_CALL_TIMEOUT, call).await;
        }
        let rejected = (monitor.calls.is_rejected()).then_some(DrainOutcome::CallsForbidden);
        let summary = self.summary(rejected.or(Some(outcome)), monitor);
        summary.log("Drain ended");
        summary.shortened()
    }

    /// The summary of a drain with this outcome; an interim one without.
    pub(super) fn summary(&self, outcome: Option<DrainOutcome>, monitor: &Monitor) -> DrainSummary {
        let history = &self.history;
        let seconds_to = |at| history.time_to(at).map(seconds);
        DrainSummary {
            outcome: outcome.unwrap_or(DrainOutcome::Deadline),
            is_final: outcome.is_some(),
            seconds: seconds(self.since.elapsed()),
            seconds_to_failed_health: seconds_to(monitor.calls.late_failure_at()),
            seconds_to_zero: seconds_to(history.below_threshold_since),
            seconds_to_last_new_connection: seconds_to(history.arrivals.last()),
            peak: history.peak,
            remaining: history.last_open.as_ref().and_then(Remaining::new),
            disagreement: history.disagreement,
            witness: history.witness,
            replacement: self.replacement.clone(),
        }
    }

    /// Logs what is open if that has changed, and leaves an interim message in case the pod is killed.
    fn leave_trace(&mut self, monitor: &Monitor) {
        let summary = self.summary(None, monitor);
        if summary.remaining != self.logged && self.count_log.should_log(COUNT_LOG_INTERVAL) {
            self.logged.clone_from(&summary.remaining);
            summary.log("Drain continues");
        }
        let interim = self.interim_message.as_mut();
        if interim.is_some_and(|limiter| limiter.should_log(INTERIM_INTERVAL)) {
            summary.shortened().write(&monitor.config.termination_log);
        }
    }

    /// Returns when the drain ends at the latest: at its time limit, or before the end of the pod's grace period, but not
    /// before its minimum is over.
    fn deadline(&self, monitor: &Monitor) -> Instant {
        let minimum_end = self.history.minimum_end(&monitor.rules);
        let limit = minimum_end.map_or(self.grace_limit, |end| end.max(self.grace_limit));
        self.time_limit.min(limit)
    }

    /// Keeps Envoy serving as a healthy endpoint, unless its health has failed: for `drain-delay` after the proof of the
    /// pod's end, since some load balancers send new connections to a removed endpoint for a long time, and then until there
    /// is a replacement. Returns the outcome if the drain ends before that.
    async fn delay(&mut self, monitor: &mut Monitor) -> Option<DrainOutcome> {
        let config = &monitor.config;
        let delayed_until = self.since + config.settings.timing.drain_delay;
        let limit = config.settings.timing.wait_for_replacement;
        if monitor.calls.is_health_failed {
            if !limit.is_zero() {
                warn!("Envoy's health has already failed: not waiting for a replacement");
            }
            return None;
        }
        let (access, progress) = (config.webhook.clone(), monitor.progress.clone());
        let wait = async {
            sleep_until(delayed_until).await;
            if limit.is_zero() {
                return None;
            }
            let ask = || replacement::fetch(&access);
            Some(replacement::wait(delayed_until, limit, ask, &progress).await)
        };
        monitor.set_phase(DrainPhase::Delaying);
        tokio::select! {
            biased;
            waited = wait => self.replacement = waited,
            outcome = self.poll_until_ended(monitor) => return Some(outcome),
        }
        if monitor.config.is_of_server() {
            return None;
        }
        let delay = match monitor.config.settings.health_failure_delay {
            Auto if replacement::is_alone(&monitor.config.webhook).await => End,
            delay => delay,
        };
        monitor.decide_health_failure(delay, self.deadline(monitor));
        None
    }

    /// Makes the calls of the current phase, and polls until an exit rule holds or the deadline is reached.
    pub(crate) async fn poll(&mut self, monitor: &mut Monitor) -> DrainOutcome {
        loop {
            let deadline = self.deadline(monitor);
            let ended = timeout_at(deadline, self.poll_until_ended(monitor)).await;
            match ended {
                Ok(outcome) => return outcome,
                // The minimum has started meanwhile.
                Err(_) if self.deadline(monitor) > deadline => {}
                Err(_) => {
                    let outcome = self.history.outcome_at(deadline, &monitor.rules);
                    let is_true = monitor.confirms(outcome, &mut self.history);
                    return if is_true { outcome } else { Deadline };
                }
            }
        }
    }

    async fn poll_until_ended(&mut self, monitor: &mut Monitor) -> DrainOutcome {
        monitor.request_inspection();
        loop {
            let are_made = self.make_due_calls(monitor).await;
            let left = (self.deadline(monitor)).saturating_duration_since(Instant::now());
            monitor.progress.send_modify(|progress| {
                let is_soft = progress.phase == DrainPhase::SoftDraining;
                progress.health_kept = monitor.calls.is_health_kept();
                progress.deadline_in = (!is_soft).then_some(left.as_secs());
            });
            if are_made {
                monitor.inspect_if_due().await;
            }
            let epoch = self.history.epoch;
            let decision = monitor.poll(&mut self.history).await;
            self.leave_trace(monitor);
            let is_new_epoch = epoch.is_some() && epoch != self.history.epoch;
            if is_new_epoch || self.history.is_live() && monitor.calls.note_live() {
                monitor.calls.make_again();
                monitor.request_inspection();
                self.history.restart(Instant::now());
            }
            match decision {
                ExitDecision::Exit(outcome) => return outcome,
                ExitDecision::PollAt(at) => sleep_until(at).await,
            }
        }
    }

    /// Makes the calls that are due, until Envoy does not respond. Returns false if it has not responded to one.
    async fn make_due_calls(&mut self, monitor: &mut Monitor) -> bool {
        let phase = monitor.progress.borrow().phase;
        if monitor.config.is_of_server() {
            if phase == DrainPhase::Draining {
                self.history.start(Instant::now(), false);
            }
            return true;
        }
        let no_http3_since = self.history.no_http3_since;
        let is_quiet = self.history.is_quiet(&monitor.rules, Instant::now());
        let next = |calls: &EnvoyCalls| calls.next(Instant::now(), no_http3_since, is_quiet, phase);
        while let Some(call) = next(&monitor.calls) {
            if !self.make_call(call, monitor).await {
                return false;
            }
            let counts_later = monitor.calls.is_kept_until_quiet();
            self.history.start(Instant::now(), counts_later);
        }
        true
    }

    /// Makes a call. Returns true if Envoy responded.
    async fn make_call(&mut self, call: AdminCall, monitor: &mut Monitor) -> bool {
        let result = monitor.make_call(call).await;
        let path = <&str>::from(call).split('?').next();
        let Err(error) = result else {
            info!(call = path, "Envoy accepted the call");
            return true;
        };
        if error.is_rejection() {
            error!(call = path, %error, "Envoy rejected the call: draining without it");
            return true;
        }
        let should_log = self.log_limiter.should_log(LOG_INTERVAL);
        if error.is_absence() {
            self.history.start(Instant::now(), false);
            if should_log {
                warn!(absence = %error, "Envoy cannot be drained: waiting for min-drain-duration");
            }
        } else if should_log {
            let admin = monitor.client.address().map(tracing::field::display);
            warn!(call = path, admin, %error, "Envoy did not respond: retrying until the deadline");
        }
        false
    }
}
