//! The drain: started once, awaited by many. Strings the decisions together, one call at a time.

mod backoff;
mod log_limiter;
mod standby;
#[cfg(test)]
mod tests;
mod wait;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, error, info, warn};

use crate::admin_address::AdminAddress;
use crate::config::Config;
use crate::delay::wait_for_drain_delay;
use crate::envoy::stats::Count;
use crate::envoy::{AdminError, Envoy, Setup, Snapshot};
use crate::exit_rules::{DrainHistory, DrainOutcome, ExitDecision, ExitRules};
use crate::marker::{Marker, MarkerReason};
use crate::progress::{DrainPhase, Progress};
use crate::quiet::{QuietWindow, ReadinessProbe};
use crate::summary::{Remaining, Summary};
use crate::termination::{Scope, TerminationSignals};
use crate::timing::Timing;

use backoff::Backoff;
use log_limiter::LogLimiter;
use wait::ENVOY_ONLY_DRAIN_TIME;

/// Everything that ends in a pod, from the drainer's start to the end of the drain.
pub(crate) struct Drain<E> {
    envoy: E,
    /// Where it is, for logs.
    admin_address: AdminAddress,
    marker: Marker,
    /// What the marker says, or would if it could be written.
    marker_reason: Option<MarkerReason>,
    timing: Timing,
    exit_at_connections: u64,
    readiness_probes: Vec<ReadinessProbe>,
    termination_log: PathBuf,
    signals: watch::Sender<TerminationSignals>,
    progress: watch::Sender<Progress>,
    /// What Envoy last told of its setup; `None` until it answered in this process's life.
    setup: Option<Setup>,
    has_responded: bool,
    /// When Envoy's health, if the marker says that it was failed, is to be restored; `None` at once,
    /// unless the pod ends.
    restore_at: Option<Instant>,
    /// How often a hook of Envoy's that comes alone may have health failed.
    backoff: Backoff,
    /// Whether this goes on with a drain that an earlier process began.
    is_resumed: bool,
    /// Whether Envoy's hook proves nothing in this drain.
    is_envoy_hook_ignored: bool,
    /// When the drainer's own hook returned without a drain.
    drainer_hook_released_at: Option<Instant>,
    /// When to log that Envoy's health is not restored, and that its setup is not known. Kept here, so
    /// that a hook does not have the same logged again.
    restore_log: LogLimiter,
    setup_log: LogLimiter,
}

/// Between two questions to Envoy while nothing drains.
const STANDBY_INTERVAL: Duration = Duration::from_secs(1);

/// A look walks over all of Envoy's statistics on its main thread, which must have time for other
/// things: no more than a tenth goes into looks, unless they would be further apart than the cap.
const POLL_SHARE: u32 = 10;
const MAX_POLL_PAUSE: Duration = Duration::from_secs(5);

/// How often it is said that a draining Envoy does not answer.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A setup that is not read by then does not hold up the drain.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long after the deadline of a drain that was resumed a pod that ends has surely ended: twice
/// what the chart adds to the deadline for the grace period.
const RESUMED_MARGIN: Duration = Duration::from_secs(30);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// A drain of `envoy`, as `config` has it. It acts on who `came`, and tells its `progress`.
    pub(crate) fn new(
        envoy: E,
        config: &Config,
        signals: watch::Sender<TerminationSignals>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        let marker = Marker::new(&config.run_dir);
        Self {
            envoy,
            admin_address: config.admin_address.clone(),
            marker_reason: marker.read(),
            marker,
            timing: config.timing,
            exit_at_connections: config.exit_at_connections,
            readiness_probes: config.readiness_probes.clone(),
            termination_log: config.termination_log.clone(),
            signals,
            progress,
            setup: None,
            has_responded: false,
            restore_at: None,
            backoff: Backoff::default(),
            is_resumed: false,
            is_envoy_hook_ignored: false,
            drainer_hook_released_at: None,
            restore_log: LogLimiter::for_startup(),
            setup_log: LogLimiter::for_startup(),
        }
    }

    /// Runs until the pod's drain has ended, or until SIGTERM came and there is nothing to drain.
    pub(crate) async fn run(mut self) {
        loop {
            match self.wait_for_termination().await {
                Scope::Pod { since } => {
                    return self
                        .drain(self.termination_started_at(since), CallState::Pending)
                        .await;
                }
                Scope::EnvoyOnly {
                    since,
                    is_responding: answers,
                } => {
                    if answers && let Some(health) = self.drain_envoy_only().await {
                        return self.drain(self.termination_started_at(since), health).await;
                    }
                    info!("Envoy is restarted alone, or does not answer: its hook returns");
                    self.end_round();
                }
                Scope::PodUnconfirmed { since } => {
                    warn!(
                        "The drainer's hook came, and the port may have failed Envoy's: draining with \
                         what can be undone"
                    );
                    self.drain(since, CallState::Pending).await;
                    let mut signals = self.signals.subscribe();
                    let proof = signals.wait_for(|came| came.envoy_hook.or(came.sigterm).is_some());
                    if timeout(ENVOY_ONLY_DRAIN_TIME, proof).await.is_ok() {
                        return;
                    }
                    info!("Envoy's hook did not come: Envoy goes on");
                    self.end_round();
                }
                Scope::PodResumed => self.resume().await,
                Scope::DrainerOnly => {
                    if self.drainer_hook_released_at.is_none() {
                        info!(
                            "Envoy's hook did not come: the drainer ends alone and leaves it as it is"
                        );
                    }
                    if self.signals.borrow().sigterm.is_some() {
                        return;
                    }
                    self.drainer_hook_released_at = Some(Instant::now());
                    self.end_round();
                }
            }
        }
    }

    /// Returns when the pod's end began, of which the first sign came at `since`. Where hooks of Envoy's
    /// come that do not end it, such a hook may have been that sign, and is not to shorten the drain.
    fn termination_started_at(&self, since: Instant) -> Instant {
        let signals = *self.signals.borrow();
        let drainers = [signals.drainer_hook, signals.sigterm]
            .into_iter()
            .flatten();
        match self.backoff.has_failures(Instant::now()) {
            true => drainers.min().unwrap_or(since),
            false => since,
        }
    }

    /// Goes on with the drain of a pod that ended when an earlier process of the drainer died. No hook
    /// comes for that again. Envoy's health is restored when a pod that ends would be gone: never is a
    /// pod made healthy that ends, nor an Envoy left DRAINING whose pod does not.
    async fn resume(&mut self) {
        info!(
            "Envoy drains since the pod's end was seen by an earlier process: resuming the drain"
        );
        let now = Instant::now();
        self.restore_at = Some(now + self.resume_timeout());
        self.is_resumed = true;
        let mut signals = self.signals.subscribe();
        tokio::select! {
            biased;
            // The pod ends now: it has its whole drain.
            _ = signals.wait_for(TerminationSignals::proves_pod_termination) => {}
            () = self.drain(now, CallState::Accepted) => self.end_round(),
        }
        self.is_resumed = false;
    }

    /// How long a pod may still take to end whose drain an earlier process had begun.
    fn resume_timeout(&self) -> Duration {
        self.timing.deadline() + RESUMED_MARGIN
    }

    /// Lets the hooks of this round return, but those that were called only just now: they begin the
    /// next round, and wait for the other signal as long as any.
    fn end_round(&mut self) {
        let mut kept_since = None;
        self.signals
            .send_modify(|came| kept_since = came.prune_hooks(Instant::now()));
        self.progress.send_modify(|progress| {
            progress.phase = DrainPhase::Idle;
            progress.round += 1;
            progress.hooks_kept_since = kept_since;
        });
    }

    /// The pod ends, since `since`, or may: drains until an exit rule holds. Envoy may have been told
    /// already to fail its `health`.
    async fn drain(&mut self, since: Instant, health: CallState) {
        self.is_envoy_hook_ignored = self.is_envoy_hook_unreliable();
        if self.is_pod_terminating() {
            info!("The pod ends");
        }
        let mut record = DrainHistory::default();
        let deadline = since + self.timing.deadline();
        let drain = self.drain_until_exit(since, health, &mut record);
        let outcome = timeout_at(deadline, drain)
            .await
            .unwrap_or(DrainOutcome::Deadline);
        let summary = Summary::new(outcome, since, Instant::now(), &record);
        summary.log();
        if let Err(error) = summary.write(&self.termination_log) {
            warn!(%error, file = %self.termination_log.display(), "Cannot write the termination message");
        }
        self.set_phase(DrainPhase::Done(outcome));
    }

    async fn drain_until_exit(
        &mut self,
        since: Instant,
        mut health: CallState,
        record: &mut DrainHistory,
    ) -> DrainOutcome {
        match health {
            // The minimum counts from now: what came first may not have been the kubelet.
            CallState::Accepted | CallState::Rejected => record.start(Instant::now()),
            CallState::Pending => {
                self.set_phase(DrainPhase::Delaying);
                let delay = wait_for_drain_delay(self.timing, since);
                tokio::select! {
                    biased;
                    () = delay => {}
                    outcome = self.poll_until_exit(record) => return outcome,
                }
                self.write_marker(self.reason());
            }
        }
        self.set_phase(DrainPhase::Draining);
        let mut listeners = CallState::Pending;
        let mut log_limiter = LogLimiter::new(Instant::now(), LOG_INTERVAL);
        let mut inspected_at: Option<(Instant, Duration)> = None;
        let mut is_proven = self.is_pod_terminating();
        let mut rules = self.rules();
        loop {
            if health == CallState::Pending {
                let answer = self.envoy.fail_health().await;
                health = self.call_state("/healthcheck/fail", answer, &mut log_limiter);
                if health != CallState::Pending {
                    record.start(Instant::now());
                }
            }
            if !is_proven && self.is_pod_terminating() {
                is_proven = true;
                record.restart(Instant::now());
            }
            // Nothing undoes it.
            if health != CallState::Pending
                && listeners == CallState::Pending
                && self.is_pod_terminating()
            {
                self.write_marker(MarkerReason::PodTerminating);
                let answer = self.envoy.drain_listeners().await;
                listeners = self.call_state("/drain_listeners", answer, &mut log_limiter);
            }
            // Once, since listeners may have come and gone since the start; again where it is not known
            // yet what they hide, and statistics are shown.
            let is_due = inspected_at.is_none_or(|(at, took)| {
                let is_known = self
                    .setup
                    .as_ref()
                    .is_some_and(|setup| setup.hidden_stats.is_ok());
                !is_known
                    && record.are_listeners_hidden()
                    && Instant::now() >= at + took * POLL_SHARE
            });
            if health != CallState::Pending && is_due {
                let asked = Instant::now();
                if let Ok(Ok(setup)) = timeout(INSPECT_TIMEOUT, self.envoy.inspect()).await {
                    self.setup = Some(setup);
                    rules = self.rules();
                }
                let now = Instant::now();
                inspected_at = Some((now, now - asked));
            }
            let decision = self.poll(record, &mut rules).await;
            if record.is_live() && self.is_resumed {
                // Another one, whose pod does not end.
                return DrainOutcome::Gone;
            }
            if record.is_live() && health == CallState::Accepted {
                // Another Envoy since, or somebody has restored its health.
                (health, listeners) = (CallState::Pending, CallState::Pending);
            }
            match decision {
                ExitDecision::Exit(outcome) => return outcome,
                ExitDecision::PollAt(at) => sleep_until(at).await,
            }
        }
    }

    /// Watches an Envoy that does not drain yet, which may end all the same.
    async fn poll_until_exit(&mut self, record: &mut DrainHistory) -> DrainOutcome {
        let mut rules = self.rules();
        loop {
            match self.poll(record, &mut rules).await {
                ExitDecision::Exit(outcome) => return outcome,
                ExitDecision::PollAt(at) => sleep_until(at).await,
            }
        }
    }

    /// Looks once, records it and shows it.
    async fn poll(&mut self, record: &mut DrainHistory, rules: &mut ExitRules) -> ExitDecision {
        let asked = Instant::now();
        let seen = self.envoy.poll().await;
        let now = Instant::now();
        debug!(?seen, "Looked at Envoy");
        if matches!(&seen, Snapshot::Counted(_)) {
            self.has_responded = true;
            rules.has_responded = true;
        }
        self.publish(&seen);
        record.add(now, seen, rules);
        let fair = ((now - asked) * POLL_SHARE).min(MAX_POLL_PAUSE);
        record.decide(rules, now, self.timing.poll_interval.max(fair))
    }

    fn rules(&self) -> ExitRules {
        let listeners = self
            .setup
            .as_ref()
            .and_then(|setup| setup.listeners.as_ref().ok());
        let probed = |probe: &&ReadinessProbe| listeners.is_some_and(|l| l.counts_port(probe.port));
        let probes = self.readiness_probes.iter().filter(probed).copied();
        ExitRules {
            timing: self.timing,
            exit_at_connections: self.exit_at_connections,
            quiet: QuietWindow::new(self.timing.quiet_period, probes),
            has_responded: self.has_responded,
        }
    }

    fn call_state(
        &self,
        call: &str,
        answer: Result<(), AdminError>,
        log_limiter: &mut LogLimiter,
    ) -> CallState {
        match answer {
            Ok(()) => {
                info!(call, "Told Envoy");
                CallState::Accepted
            }
            Err(AdminError::Rejected(error)) => {
                error!(call, error, "Envoy refuses: draining without it");
                CallState::Rejected
            }
            Err(error) => {
                if log_limiter.should_log(Instant::now(), false) {
                    warn!(
                        call,
                        admin = %self.admin_address,
                        %error,
                        "Envoy did not answer: asking again until it does, or the drain's deadline"
                    );
                }
                CallState::Pending
            }
        }
    }

    /// Returns true if it is known that the pod ends.
    fn is_pod_terminating(&self) -> bool {
        self.is_resumed
            || !self.is_envoy_hook_ignored && self.signals.borrow().proves_pod_termination()
    }

    /// Returns true if Envoy's hook proves nothing, since calls of it came lately that did not end
    /// Envoy. The drainer may be restarted alone while such calls go on: then only what can be undone is
    /// done, which the next process undoes, and which tells the clients of all listeners but those with
    /// `drain_type: MODIFY_ONLY` to go. A pod that ends is drained by the same rules all the same.
    fn is_envoy_hook_unreliable(&self) -> bool {
        let now = Instant::now();
        let is_believable =
            self.backoff.has_no_recent_hook(now) && self.signals.borrow().are_simultaneous();
        self.backoff.has_failures(now) && !is_believable
    }

    fn reason(&self) -> MarkerReason {
        match self.is_pod_terminating() {
            true => MarkerReason::PodTerminating,
            false => MarkerReason::Provisional,
        }
    }

    fn write_marker(&mut self, reason: MarkerReason) {
        if self.marker_reason.replace(reason) == Some(reason) {
            return;
        }
        if let Err(error) = self.marker.write(reason) {
            error!(%error, "Cannot write the marker: a restart of the drainer would not restore Envoy's health");
        }
    }

    fn set_phase(&self, phase: DrainPhase) {
        self.progress.send_modify(|progress| progress.phase = phase);
    }

    fn publish(&self, snapshot: &Snapshot) {
        self.progress.send_modify(|progress| {
            progress.unknown = match snapshot {
                Snapshot::Counted(Count::Listeners(open)) => {
                    progress.open = Some(Remaining::from(open));
                    None
                }
                Snapshot::Counted(Count::Server { .. }) => Some("listener.* is hidden".to_owned()),
                Snapshot::Counted(Count::Hidden) => Some("all statistics are hidden".to_owned()),
                Snapshot::InvalidResponse(why) | Snapshot::NoResponse(why) => Some(why.clone()),
                Snapshot::ConnectionRefused => Some("connection refused".to_owned()),
            };
        });
    }
}

/// Whether Envoy was told something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallState {
    Pending,
    Accepted,
    /// It answered that it will not, which asking again does not change.
    Rejected,
}
