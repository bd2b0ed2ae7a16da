//! The drain: one task that makes all calls to Envoy, from the drainer's start to the end of the drain.

mod backoff;
mod calls;
mod log_limiter;
mod make_calls;
mod standby;
#[cfg(test)]
mod tests;
mod wait;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, error, info, warn};

use crate::config::{Config, WebhookAccess};
use crate::duration;
use crate::envoy::snapshot::Snapshot;
use crate::envoy::{AdminError, Envoy, Setup};
use crate::exit_rules::{DrainHistory, DrainOutcome, ExitDecision, ExitRules};
use crate::marker::{Marker, MarkerReason};
use crate::progress::{DrainPhase, Progress};
use crate::quiet::{QuietWindow, ReadinessProbe};
use crate::replacement::{self, ReplacementWait};
use crate::report::Report;
use crate::summary::{DrainSummary, Remaining};
use crate::termination::{TerminationScope, TerminationSignals};
use crate::webhook_client::WebhookClient;

use backoff::Backoff;
use calls::{CallState, DrainCalls};
use log_limiter::LogLimiter;

/// Waits for a termination and drains Envoy for it.
pub(crate) struct Drain<E> {
    envoy: E,
    config: Config,
    marker: Marker,
    /// The content of the marker, or what it would be if it could be written.
    marker_reason: Option<MarkerReason>,
    signals: watch::Sender<TerminationSignals>,
    progress: watch::Sender<Progress>,
    /// Envoy's setup as last read; `None` until it was read by this process.
    setup: Option<Setup>,
    /// How long the endpoint must be without new connections, those of readiness probes aside; depends on
    /// `setup`.
    quiet: QuietWindow,
    /// Whether Envoy has responded to this process.
    has_responded: bool,
    /// When to restore Envoy's health, if the marker says that it was failed. With `None`, that is at once for
    /// [`MarkerReason::Provisional`], and never for [`MarkerReason::PodTerminating`].
    restore_at: Option<Instant>,
    /// Limits how often Envoy's hook alone may fail Envoy's health.
    backoff: Backoff,
    /// The wait for a replacement in this drain, once it has ended.
    replacement: Option<ReplacementWait>,
    /// The drain of this round, once it has ended.
    summary: Option<DrainSummary>,
    /// Whether this is a drain that an earlier process began.
    is_resumed: bool,
    /// Whether Envoy's hook is no evidence of the pod's termination in this drain.
    is_envoy_hook_ignored: bool,
    /// Limits the logs that Envoy's health is not restored. Kept across [rounds](Progress::round), so that
    /// a hook does not log them again.
    restore_log: LogLimiter,
    /// Limits the logs that Envoy's setup is unknown, as `restore_log` does.
    setup_log: LogLimiter,
    /// When to report that Envoy's admin interface cannot be read; `None` once reported.
    admin_report_at: Option<Instant>,
}

/// Pause between two calls to Envoy while nothing terminates.
const STANDBY_INTERVAL: Duration = Duration::from_secs(1);

/// How long after the drainer Envoy may start: it may have to wait for its image, or for init containers.
const MAX_ENVOY_START: Duration = Duration::from_secs(60);

/// How long Envoy's hook waits, with Envoy's health failed, after it turned out to be alone.
const ENVOY_ONLY_DRAIN_TIME: Duration = Duration::from_secs(10);

/// The pause after a poll, in multiples of the time it took, up to [`MAX_POLL_PAUSE`]; also that after an
/// inspection. A poll walks all statistics on Envoy's main thread, which has other work.
const POLL_PAUSE_FACTOR: u32 = 10;

const MAX_POLL_PAUSE: Duration = Duration::from_secs(5);

/// How often to log that a draining Envoy does not respond.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout for reading Envoy's setup during a drain, which continues without it.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for reading whether HTTP/3 clients are a reason to keep Envoy's health. Short, since the drain begins after
/// that.
const HTTP3_TIMEOUT: Duration = Duration::from_millis(500);

/// How long after the deadline of a resumed drain a terminating pod is taken to be gone: twice what the webhook adds to
/// the deadline for the grace period. An Envoy that outlives its drain, as a native sidecar does, may still run then.
const RESUMED_MARGIN: Duration = Duration::from_secs(30);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// A drain of `envoy` configured by `config`. It acts on `signals` and reports `progress`.
    pub(crate) fn new(
        envoy: E,
        config: &Config,
        signals: watch::Sender<TerminationSignals>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        let marker = Marker::new(&config.run_dir);
        Self {
            envoy,
            config: config.clone(),
            marker_reason: marker.read(),
            marker,
            signals,
            progress,
            setup: None,
            quiet: QuietWindow::new(config.timing.quiet_period, []),
            has_responded: false,
            restore_at: None,
            backoff: Backoff::default(),
            replacement: None,
            summary: None,
            is_resumed: false,
            is_envoy_hook_ignored: false,
            restore_log: LogLimiter::for_startup(),
            setup_log: LogLimiter::for_startup(),
            admin_report_at: Some(Instant::now() + MAX_ENVOY_START),
        }
    }

    /// Runs until the pod is drained, or until SIGTERM if there is nothing to drain.
    pub(crate) async fn run(mut self) {
        loop {
            let is_finished = match self.wait_for_termination().await {
                TerminationScope::Pod { since } => {
                    self.drain(self.termination_started_at(since), CallState::Pending)
                        .await;
                    true
                }
                TerminationScope::EnvoyOnly {
                    since,
                    is_responding,
                } => self.drain_restarting_envoy(since, is_responding).await,
                TerminationScope::PodUnconfirmed { since } => self.drain_unconfirmed(since).await,
                TerminationScope::PodResumed => {
                    self.resume().await;
                    continue;
                }
                TerminationScope::DrainerOnly => self.leave_envoy(),
            };
            if is_finished {
                self.report_drain().await;
                return;
            }
            self.end_round();
        }
    }

    /// Reports the drain of a pod that is terminating. No hook waits for that, but the drainer's exit does.
    async fn report_drain(&mut self) {
        // A resumed drain ends so where it turns out that the pod is not terminating.
        let is_of_another_envoy =
            |drain: &DrainSummary| self.is_resumed && drain.outcome == DrainOutcome::Gone;
        if !self.is_envoy_hook_ignored
            && let Some(summary) = self.summary.take()
            && !is_of_another_envoy(&summary)
        {
            send_report(&self.config.webhook, &Report::Drain(summary)).await;
        }
    }

    /// Drains an Envoy that seems to be restarting alone. Returns true if the pod turned out to be terminating,
    /// and is drained.
    async fn drain_restarting_envoy(&mut self, since: Instant, is_responding: bool) -> bool {
        if !is_responding {
            info!(
                "Only Envoy's preStop hook was called, and Envoy does not respond: releasing the hook"
            );
            return false;
        }
        let Some(health) = self.drain_provisionally().await else {
            info!(
                "Only Envoy's preStop hook was called, so the pod is not terminating: releasing the hook"
            );
            return false;
        };
        self.drain(self.termination_started_at(since), health).await;
        true
    }

    /// Drains an Envoy whose hook may have been lost. Returns true if the pod turned out to be terminating.
    async fn drain_unconfirmed(&mut self, since: Instant) -> bool {
        warn!(
            "Envoy's preStop hook has not arrived, but may have been lost, since the drainer's port could \
             not serve for a moment: draining without /drain_listeners, which cannot be undone"
        );
        self.drain(since, CallState::Pending).await;
        let mut signals = self.signals.subscribe();
        let proof = signals.wait_for(|signals| signals.envoy_hook.or(signals.sigterm).is_some());
        let is_proven = timeout(ENVOY_ONLY_DRAIN_TIME, proof).await.is_ok();
        if !is_proven {
            info!("Envoy's preStop hook has still not arrived: Envoy is not terminating");
        }
        is_proven
    }

    /// Leaves Envoy as it is, since only the drainer is terminating. Returns true after SIGTERM.
    fn leave_envoy(&self) -> bool {
        let signals = *self.signals.borrow();
        if signals.drainer_hook_released.is_none() {
            info!("Only the drainer is terminating: Envoy is not drained");
        }
        let is_finished = signals.sigterm.is_some();
        if !is_finished {
            let now = Instant::now();
            self.signals
                .send_modify(|signals| signals.drainer_hook_released = Some(now));
        }
        is_finished
    }

    /// Returns when the pod's termination began, of which the first signal was at `since`. While
    /// Envoy's hook is called without Envoy terminating, that signal may be such a call, which must
    /// not shorten the drain.
    fn termination_started_at(&self, since: Instant) -> Instant {
        let drainer_signal_at = self.signals.borrow().drainer_signal_at();
        match self.backoff.has_recent_attempts(Instant::now()) {
            true => drainer_signal_at.unwrap_or(since),
            false => since,
        }
    }

    /// Resumes the drain of a pod that was terminating when an earlier process of the drainer died. No
    /// hook is called for that again. Envoy's health is restored when a terminating pod would be gone, so that no
    /// other Envoy is left DRAINING. That is too early where Envoy outlives its drain: it becomes healthy again, in a
    /// pod whose endpoints are terminating all the same.
    async fn resume(&mut self) {
        info!("Resuming the drain that an earlier process began");
        let now = Instant::now();
        self.restore_at = Some(now + self.resume_timeout());
        self.is_resumed = true;
        let mut signals = self.signals.subscribe();
        tokio::select! {
            biased;
            // The pod terminates now: it gets its whole drain.
            _ = signals.wait_for(TerminationSignals::proves_pod_termination) => {}
            () = self.drain_resumed(now) => self.end_round(),
        }
        self.is_resumed = false;
    }

    async fn drain_resumed(&mut self, since: Instant) {
        self.drain(since, CallState::Accepted).await;
        self.report_drain().await;
    }

    /// Returns how long a pod whose drain an earlier process began may still take to terminate.
    fn resume_timeout(&self) -> Duration {
        self.config.timing.time_limit() + RESUMED_MARGIN
    }

    /// Ends the round: releases its hooks, except those called only just now. They begin the next round, and
    /// get the usual time to wait for the other signal.
    fn end_round(&mut self) {
        self.summary = None;
        let mut kept_since = None;
        self.signals
            .send_modify(|signals| kept_since = signals.prune_hooks(Instant::now()));
        self.progress.send_modify(|progress| {
            progress.phase = DrainPhase::Standby;
            progress.round += 1;
            progress.hooks_kept_since = kept_since;
        });
    }

    /// Drains until an exit rule holds. The pod has been terminating, or may have been, since `since`;
    /// `health` is the state of the call `/healthcheck/fail`, which [`Self::drain_provisionally`] may have made.
    async fn drain(&mut self, since: Instant, health: CallState) {
        self.is_envoy_hook_ignored = self.is_envoy_hook_unreliable();
        if self.is_envoy_hook_ignored {
            warn!(
                "Drain started, without /drain_listeners: Envoy kept running after recent calls of its \
                 preStop hook, which is therefore no evidence that the pod is terminating"
            );
        } else if self.is_pod_terminating() && !self.is_resumed {
            let timing = &self.config.timing;
            let [
                drain_delay,
                wait_for_replacement,
                min_drain_duration,
                drain_timeout,
            ] = [
                timing.drain_delay,
                timing.wait_for_replacement,
                timing.min_drain_duration,
                timing.drain_timeout,
            ]
            .map(duration::format);
            info!(
                %drain_delay,
                %wait_for_replacement,
                %min_drain_duration,
                %drain_timeout,
                "Pod is terminating: drain started"
            );
        }
        let mut history = DrainHistory::default();
        let mut calls = DrainCalls::new(health);
        let deadline = since + self.config.timing.time_limit();
        let drain = self.drain_until_exit(since, &mut calls, &mut history);
        let outcome = timeout_at(deadline, drain)
            .await
            .unwrap_or(DrainOutcome::Deadline);
        if calls.is_health_kept() && outcome != DrainOutcome::Gone {
            self.fail_kept_health(&mut calls, &mut history).await;
        }
        let summary = DrainSummary {
            replacement: self.replacement.take(),
            ..DrainSummary::new(outcome, since, Instant::now(), &history)
        };
        summary.log();
        let summary = summary.shortened();
        if let Err(error) = summary.write(&self.config.termination_log) {
            warn!(%error, file = %self.config.termination_log.display(), "Cannot write the termination message");
        }
        self.summary = Some(summary);
        self.progress.send_modify(|progress| {
            progress.phase = DrainPhase::Done(outcome);
            progress.health_kept = false;
        });
        if calls.is_health_kept() && outcome != DrainOutcome::Gone {
            self.retry_to_fail_health().await;
        }
    }

    async fn drain_until_exit(
        &mut self,
        since: Instant,
        calls: &mut DrainCalls,
        history: &mut DrainHistory,
    ) -> DrainOutcome {
        if calls.have_begun() {
            // `min-drain-duration` starts now: the first signal may not have come from the kubelet.
            history.start(Instant::now());
        }
        if calls.have_begun() || self.is_health_failed().await {
            self.warn_of_skipped_wait();
        } else if let Some(outcome) = self.serve_on(since, history).await {
            return outcome;
        }
        self.set_phase(DrainPhase::Draining);
        // Only a pod that is known to terminate is drained by `/drain_listeners`; and health that an earlier drain has
        // failed cannot be kept.
        if self.is_pod_terminating() && self.marker_reason.is_none() {
            self.decide_health_failure(calls).await;
        }
        let mut inspect_again_at = None;
        let mut log_limiter = LogLimiter::new(Instant::now(), LOG_INTERVAL);
        let mut is_proven = self.is_pod_terminating();
        loop {
            if !is_proven && self.is_pod_terminating() {
                is_proven = true;
                info!("Pod is terminating: min-drain-duration starts anew");
                history.restart(Instant::now());
            }
            self.make_due_calls(calls, history, &mut log_limiter).await;
            // Once in each drain, since listeners may have changed; again while it is unknown which statistics are
            // hidden, and polls do not return all listeners.
            let are_hidden_stats_known =
                matches!(&self.setup, Some(setup) if setup.hidden_stats.is_ok());
            let is_due = inspect_again_at.is_none_or(|at| {
                !are_hidden_stats_known && history.are_listeners_hidden() && Instant::now() >= at
            });
            if calls.have_begun() && is_due {
                let started = Instant::now();
                self.inspect().await;
                inspect_again_at = Some(Instant::now() + started.elapsed() * POLL_PAUSE_FACTOR);
            }
            let decision = self.poll(history).await;
            if history.is_live() && self.is_resumed {
                // Another Envoy, whose pod is not terminating.
                return DrainOutcome::Gone;
            }
            if history.is_live() && calls.health == CallState::Accepted {
                // Another Envoy, or its health was restored by another caller of the admin interface.
                *calls = DrainCalls::new(CallState::Pending);
            }
            match decision {
                ExitDecision::Exit(outcome) => return outcome,
                ExitDecision::PollAt(at) => sleep_until(at).await,
            }
        }
    }

    /// Returns true if an earlier drain has failed Envoy's health, so that Envoy cannot serve on as a healthy endpoint.
    /// An Envoy that was restarted since then is healthy, although the marker is still there.
    async fn is_health_failed(&mut self) -> bool {
        self.marker_reason.is_some()
            && timeout(INSPECT_TIMEOUT, self.poll_live()).await != Ok(Some(true))
    }

    /// Warns that the drain does not wait for a replacement, since Envoy's health is failed.
    fn warn_of_skipped_wait(&self) {
        // An earlier process has waited for the one of a resumed drain.
        if !self.config.timing.wait_for_replacement.is_zero() && !self.is_resumed {
            warn!(
                "Envoy's health was failed before the pod was known to terminate: draining without waiting for a \
                 replacement"
            );
        }
    }

    /// Keeps Envoy serving as a healthy endpoint: for `drain-delay` after the start of the termination, since some load
    /// balancers send new connections to a removed endpoint for a long time, and then until there is a replacement.
    /// Returns the outcome if Envoy exits.
    async fn serve_on(
        &mut self,
        since: Instant,
        history: &mut DrainHistory,
    ) -> Option<DrainOutcome> {
        self.set_phase(DrainPhase::Delaying);
        let delayed_until = since + self.config.timing.drain_delay;
        let delay = sleep_until(delayed_until);
        let delayed = tokio::select! {
            biased;
            () = delay => None,
            outcome = self.poll_until_exit(history) => Some(outcome),
        };
        match delayed {
            Some(outcome) => Some(outcome),
            None => self.wait_for_replacement(delayed_until, history).await,
        }
    }

    /// Waits until each Service that selects the pod has another ready endpoint, for up to `wait-for-replacement` after
    /// `since`. Returns the outcome if Envoy exits.
    async fn wait_for_replacement(
        &mut self,
        since: Instant,
        history: &mut DrainHistory,
    ) -> Option<DrainOutcome> {
        let limit = self.config.timing.wait_for_replacement;
        if limit.is_zero() {
            return None;
        }
        let mut client = WebhookClient::new(&self.config.webhook);
        let progress = self.progress.clone();
        let report = |waiting_for: &str| {
            let waiting_for = Some(waiting_for.to_owned());
            progress.send_modify(|progress| progress.waiting_for = waiting_for);
        };
        let ask = async || client.fetch_replacement().await;
        let wait = replacement::wait(since, since + limit, ask, report);
        let result = tokio::select! {
            biased;
            wait = wait => Ok(wait),
            outcome = self.poll_until_exit(history) => Err(outcome),
        };
        self.progress
            .send_modify(|progress| progress.waiting_for = None);
        match result {
            Ok(wait) => {
                self.replacement = Some(wait);
                None
            }
            Err(outcome) => Some(outcome),
        }
    }

    /// Polls until Envoy exits.
    async fn poll_until_exit(&mut self, history: &mut DrainHistory) -> DrainOutcome {
        loop {
            match self.poll(history).await {
                ExitDecision::Exit(outcome) => return outcome,
                ExitDecision::PollAt(at) => sleep_until(at).await,
            }
        }
    }

    /// Reads Envoy's setup during a drain.
    async fn inspect(&mut self) {
        if let Ok(Ok(setup)) = timeout(INSPECT_TIMEOUT, self.envoy.inspect()).await {
            self.set_setup(setup);
        }
    }

    /// Returns whether `/drain_listeners` alone makes HTTP/3 clients reconnect, as read now or else at the start.
    async fn drains_http3(&mut self) -> bool {
        match timeout(HTTP3_TIMEOUT, self.envoy.drains_http3()).await {
            Ok(Ok(drains_http3)) => drains_http3,
            Ok(Err(_)) | Err(_) => self.setup.as_ref().is_some_and(Setup::drains_http3),
        }
    }

    /// Polls once, adds the result to `history`, publishes it and decides what is next.
    async fn poll(&mut self, history: &mut DrainHistory) -> ExitDecision {
        let started = Instant::now();
        let polled = self.envoy.poll().await;
        let now = Instant::now();
        match &polled {
            Ok(snapshot) => debug!(?snapshot, "Polled Envoy"),
            Err(error) => debug!(%error, "Cannot poll Envoy"),
        }
        self.has_responded |= polled.is_ok();
        self.publish(&polled);
        let rules = ExitRules {
            timing: self.config.timing,
            exit_at_connections: self.config.settings.exit_at_connections,
            quiet: self.quiet,
            has_responded: self.has_responded,
        };
        history.add(now, polled, &rules);
        let pause = ((now - started) * POLL_PAUSE_FACTOR).min(MAX_POLL_PAUSE);
        history.decide(&rules, now, self.config.timing.poll_interval.max(pause))
    }

    /// Keeps Envoy's setup, and adapts the quiet window to its listeners.
    fn set_setup(&mut self, setup: Setup) {
        let listeners = setup.listeners.as_ref().ok();
        let is_counted =
            |probe: &&ReadinessProbe| listeners.is_some_and(|l| l.counts_port(probe.port));
        let probes = self
            .config
            .readiness_probes
            .iter()
            .filter(is_counted)
            .copied();
        self.quiet = QuietWindow::new(self.config.timing.quiet_period, probes);
        self.setup = Some(setup);
    }

    /// Returns true if the pod is known to be terminating.
    fn is_pod_terminating(&self) -> bool {
        self.is_resumed
            || (!self.is_envoy_hook_ignored && self.signals.borrow().proves_pod_termination())
    }

    /// Returns true if Envoy's hook is no evidence of the pod's termination, since recent calls of it did not
    /// terminate Envoy. The drainer may be restarted alone while such calls continue, so the drain is limited
    /// to what the next process can undo: failed health, which makes clients leave all listeners but
    /// those with `drain_type: MODIFY_ONLY`. A terminating pod is drained by the same exit rules.
    fn is_envoy_hook_unreliable(&self) -> bool {
        let now = Instant::now();
        let looks_like_termination =
            self.backoff.has_no_recent_hook(now) && self.signals.borrow().are_simultaneous();
        self.backoff.has_recent_attempts(now) && !looks_like_termination
    }

    fn write_marker(&mut self, reason: MarkerReason) {
        if self.marker_reason == Some(reason) {
            return;
        }
        self.marker_reason = Some(reason);
        if let Err(error) = self.marker.write(reason) {
            error!(%error, "Cannot write the marker: a restarted drainer would not restore Envoy's health");
        }
    }

    fn set_phase(&self, phase: DrainPhase) {
        self.progress.send_modify(|progress| progress.phase = phase);
    }

    fn publish(&self, polled: &Result<Snapshot, AdminError>) {
        self.progress.send_modify(|progress| {
            progress.unknown = match polled {
                Ok(Snapshot::Counted(open)) => {
                    progress.open = Some(Remaining::from(open));
                    None
                }
                Ok(Snapshot::ServerTotal { .. }) => Some("listener.* is hidden".to_owned()),
                Ok(Snapshot::Hidden) => Some("all statistics are hidden".to_owned()),
                Err(error) => Some(error.to_string()),
            };
        });
    }
}

/// Sends a report, if the webhook takes any, within a second.
async fn send_report(access: &WebhookAccess, report: &Report) {
    if !access.reports {
        return;
    }
    if let Err(error) = WebhookClient::new(access).send_report(report).await {
        info!(error, "The webhook did not take the report");
    }
}
