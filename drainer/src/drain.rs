//! The drain: started once, awaited by many. Strings the decisions together, one call at a time.

mod backoff;
mod complaints;
mod end;
mod idle;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, error, info, warn};

use crate::address::AdminAddress;
use crate::config::Config;
use crate::delay::drain_delay;
use crate::ending::{Came, End};
use crate::envoy::{CallFailed, Envoy, Seen, Setup};
use crate::marker::{Marker, Reason};
use crate::progress::{Phase, Progress};
use crate::quiet::{Quiet, ReadinessProbe};
use crate::stats::Count;
use crate::summary::{Left, Summary};
use crate::timing::Timing;
use crate::verdict::{Outcome, Record, Rules, Verdict};

use backoff::Backoff;
use complaints::Complaints;
use end::ENVOY_ALONE;

/// Everything that ends in a pod, from the drainer's start to the end of the drain.
pub(crate) struct Drain<E> {
    envoy: E,
    /// Where it is, for logs.
    admin: AdminAddress,
    marker: Marker,
    /// What the marker says, or would if it could be written.
    marked: Option<Reason>,
    timing: Timing,
    exit_at_connections: u64,
    readiness_probes: Vec<ReadinessProbe>,
    termination_log: PathBuf,
    came: watch::Sender<Came>,
    progress: watch::Sender<Progress>,
    /// What Envoy last told of its setup; `None` until it answered in this process's life.
    setup: Option<Setup>,
    has_answered: bool,
    /// When Envoy's health, if the marker says that it was failed, is to be restored; `None` at once,
    /// unless the pod ends.
    restore_at: Option<Instant>,
    /// How often a hook of Envoy's that comes alone may have health failed.
    backoff: Backoff,
    /// Whether this goes on with a drain that an earlier process began.
    is_resumed: bool,
    /// Whether Envoy's hook proves nothing in this drain.
    is_doubted: bool,
    /// When the drainer's own hook returned without a drain.
    waited: Option<Instant>,
    /// When to log that Envoy's health is not restored, and that its setup is not known. Kept here, so
    /// that a hook does not have the same logged again.
    restoring: Complaints,
    learning: Complaints,
}

/// Between two questions to Envoy while nothing drains.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// A look walks over all of Envoy's statistics on its main thread, which must have time for other
/// things: no more than a tenth goes into looks, unless they would be further apart than the cap.
const LOOK_SHARE: u32 = 10;
const MAX_LOOK_PAUSE: Duration = Duration::from_secs(5);

/// How often it is said that a draining Envoy does not answer.
const REMINDER: Duration = Duration::from_secs(10);

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
        came: watch::Sender<Came>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        let marker = Marker::new(&config.run_dir);
        Self {
            envoy,
            admin: config.admin_address.clone(),
            marked: marker.read(),
            marker,
            timing: config.timing,
            exit_at_connections: config.exit_at_connections,
            readiness_probes: config.readiness_probes.clone(),
            termination_log: config.termination_log.clone(),
            came,
            progress,
            setup: None,
            has_answered: false,
            restore_at: None,
            backoff: Backoff::default(),
            is_resumed: false,
            is_doubted: false,
            waited: None,
            restoring: Complaints::at_start(),
            learning: Complaints::at_start(),
        }
    }

    /// Runs until the pod's drain has ended, or until SIGTERM came and there is nothing to drain.
    pub(crate) async fn run(mut self) {
        loop {
            match self.next_end().await {
                End::Pod { since } => return self.drain(self.began(since), Told::NotYet).await,
                End::Envoy { since, answers } => {
                    if answers && let Some(health) = self.envoy_alone().await {
                        return self.drain(self.began(since), health).await;
                    }
                    info!("Envoy is restarted alone, or does not answer: its hook returns");
                    self.end_round();
                }
                End::Unproven { since } => {
                    warn!(
                        "The drainer's hook came, and the port may have failed Envoy's: draining with \
                         what can be undone"
                    );
                    self.drain(since, Told::NotYet).await;
                    let mut came = self.came.subscribe();
                    let proof = came.wait_for(|came| came.envoy_hook.or(came.sigterm).is_some());
                    if timeout(ENVOY_ALONE, proof).await.is_ok() {
                        return;
                    }
                    info!("Envoy's hook did not come: Envoy goes on");
                    self.end_round();
                }
                End::Resumed => self.resume().await,
                End::Drainer => {
                    if self.waited.is_none() {
                        info!(
                            "Envoy's hook did not come: the drainer ends alone and leaves it as it is"
                        );
                    }
                    if self.came.borrow().sigterm.is_some() {
                        return;
                    }
                    self.waited = Some(Instant::now());
                    self.end_round();
                }
            }
        }
    }

    /// Returns when the pod's end began, of which the first sign came at `since`. Where hooks of Envoy's
    /// come that do not end it, such a hook may have been that sign, and is not to shorten the drain.
    fn began(&self, since: Instant) -> Instant {
        let came = *self.came.borrow();
        let drainers = [came.drainer_hook, came.sigterm].into_iter().flatten();
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
        self.restore_at = Some(now + self.resumed_for());
        self.is_resumed = true;
        let mut came = self.came.subscribe();
        tokio::select! {
            biased;
            // The pod ends now: it has its whole drain.
            _ = came.wait_for(Came::proves_pod_end) => {}
            () = self.drain(now, Told::Heard) => self.end_round(),
        }
        self.is_resumed = false;
    }

    /// How long a pod may still take to end whose drain an earlier process had begun.
    fn resumed_for(&self) -> Duration {
        self.timing.deadline() + RESUMED_MARGIN
    }

    /// Lets the hooks of this round return, but those that were called only just now: they begin the
    /// next round, and wait for the other signal as long as any.
    fn end_round(&mut self) {
        let mut kept_since = None;
        self.came
            .send_modify(|came| kept_since = came.forget_hooks(Instant::now()));
        self.progress.send_modify(|progress| {
            progress.phase = Phase::Idle;
            progress.round += 1;
            progress.kept_since = kept_since;
        });
    }

    /// The pod ends, since `since`, or may: drains until an exit rule holds. Envoy may have been told
    /// already to fail its `health`.
    async fn drain(&mut self, since: Instant, health: Told) {
        self.is_doubted = self.is_envoys_hook_doubtful();
        if self.is_pod_end() {
            info!("The pod ends");
        }
        let mut record = Record::default();
        let deadline = since + self.timing.deadline();
        let drain = self.drain_until_a_rule_holds(since, health, &mut record);
        let outcome = timeout_at(deadline, drain)
            .await
            .unwrap_or(Outcome::Deadline);
        let summary = Summary::new(outcome, since, Instant::now(), &record);
        summary.log();
        if let Err(error) = summary.write(&self.termination_log) {
            warn!(%error, file = %self.termination_log.display(), "Cannot write the termination message");
        }
        self.set_phase(Phase::Done(outcome));
    }

    async fn drain_until_a_rule_holds(
        &mut self,
        since: Instant,
        mut health: Told,
        record: &mut Record,
    ) -> Outcome {
        match health {
            // The minimum counts from now: what came first may not have been the kubelet.
            Told::Heard | Told::Declined => record.start(Instant::now()),
            Told::NotYet => {
                self.set_phase(Phase::Delaying);
                let delay = drain_delay(self.timing, since);
                tokio::select! {
                    biased;
                    () = delay => {}
                    outcome = self.watch(record) => return outcome,
                }
                self.mark(self.reason());
            }
        }
        self.set_phase(Phase::Draining);
        let mut listeners = Told::NotYet;
        let mut unheard = Complaints::new(Instant::now(), REMINDER);
        let mut inspected_at: Option<(Instant, Duration)> = None;
        let mut is_proven = self.is_pod_end();
        let mut rules = self.rules();
        loop {
            if health == Told::NotYet {
                let answer = self.envoy.fail_health().await;
                health = self.told("/healthcheck/fail", answer, &mut unheard);
                if health != Told::NotYet {
                    record.start(Instant::now());
                }
            }
            if !is_proven && self.is_pod_end() {
                is_proven = true;
                record.restart(Instant::now());
            }
            // Nothing undoes it.
            if health != Told::NotYet && listeners == Told::NotYet && self.is_pod_end() {
                self.mark(Reason::PodEnds);
                let answer = self.envoy.drain_listeners().await;
                listeners = self.told("/drain_listeners", answer, &mut unheard);
            }
            // Once, since listeners may have come and gone since the start; again where it is not known
            // yet what they hide, and statistics are shown.
            let is_due = inspected_at.is_none_or(|(at, took)| {
                let is_known = self
                    .setup
                    .as_ref()
                    .is_some_and(|setup| setup.hidden.is_ok());
                !is_known && record.is_hidden() && Instant::now() >= at + took * LOOK_SHARE
            });
            if health != Told::NotYet && is_due {
                let asked = Instant::now();
                if let Ok(Ok(setup)) = timeout(INSPECT_TIMEOUT, self.envoy.inspect()).await {
                    self.setup = Some(setup);
                    rules = self.rules();
                }
                let now = Instant::now();
                inspected_at = Some((now, now - asked));
            }
            let verdict = self.look(record, &mut rules).await;
            if record.is_live() && self.is_resumed {
                // Another one, whose pod does not end.
                return Outcome::Gone;
            }
            if record.is_live() && health == Told::Heard {
                // Another Envoy since, or somebody has restored its health.
                (health, listeners) = (Told::NotYet, Told::NotYet);
            }
            match verdict {
                Verdict::Leave(outcome) => return outcome,
                Verdict::LookAt(at) => sleep_until(at).await,
            }
        }
    }

    /// Watches an Envoy that does not drain yet, which may end all the same.
    async fn watch(&mut self, record: &mut Record) -> Outcome {
        let mut rules = self.rules();
        loop {
            match self.look(record, &mut rules).await {
                Verdict::Leave(outcome) => return outcome,
                Verdict::LookAt(at) => sleep_until(at).await,
            }
        }
    }

    /// Looks once, records it and shows it.
    async fn look(&mut self, record: &mut Record, rules: &mut Rules) -> Verdict {
        let asked = Instant::now();
        let seen = self.envoy.look().await;
        let now = Instant::now();
        debug!(?seen, "Looked at Envoy");
        if matches!(&seen, Seen::Counted(_)) {
            self.has_answered = true;
            rules.has_answered = true;
        }
        self.show(&seen);
        record.add(now, seen, rules);
        let fair = ((now - asked) * LOOK_SHARE).min(MAX_LOOK_PAUSE);
        record.verdict(rules, now, self.timing.poll_interval.max(fair))
    }

    fn rules(&self) -> Rules {
        let listeners = self
            .setup
            .as_ref()
            .and_then(|setup| setup.listeners.as_ref().ok());
        let probed = |probe: &&ReadinessProbe| listeners.is_some_and(|l| l.counts_port(probe.port));
        let probes = self.readiness_probes.iter().filter(probed).copied();
        Rules {
            timing: self.timing,
            exit_at_connections: self.exit_at_connections,
            quiet: Quiet::new(self.timing.quiet_period, probes),
            has_answered: self.has_answered,
        }
    }

    fn told(&self, call: &str, answer: Result<(), CallFailed>, unheard: &mut Complaints) -> Told {
        match answer {
            Ok(()) => {
                info!(call, "Told Envoy");
                Told::Heard
            }
            Err(CallFailed::Declined(error)) => {
                error!(call, error, "Envoy refuses: draining without it");
                Told::Declined
            }
            Err(error) => {
                if unheard.are_due(Instant::now(), false) {
                    warn!(
                        call,
                        admin = %self.admin,
                        %error,
                        "Envoy did not answer: asking again until it does, or the drain's deadline"
                    );
                }
                Told::NotYet
            }
        }
    }

    /// Returns true if it is known that the pod ends.
    fn is_pod_end(&self) -> bool {
        self.is_resumed || !self.is_doubted && self.came.borrow().proves_pod_end()
    }

    /// Returns true if Envoy's hook proves nothing, since calls of it came lately that did not end
    /// Envoy. The drainer may be restarted alone while such calls go on: then only what can be undone is
    /// done, which the next process undoes, and which tells the clients of all listeners but those with
    /// `drain_type: MODIFY_ONLY` to go. A pod that ends is drained by the same rules all the same.
    fn is_envoys_hook_doubtful(&self) -> bool {
        let now = Instant::now();
        let is_believable = self.backoff.is_calm(now) && self.came.borrow().came_together();
        self.backoff.has_failures(now) && !is_believable
    }

    fn reason(&self) -> Reason {
        match self.is_pod_end() {
            true => Reason::PodEnds,
            false => Reason::Provisional,
        }
    }

    fn mark(&mut self, reason: Reason) {
        if self.marked.replace(reason) == Some(reason) {
            return;
        }
        if let Err(error) = self.marker.write(reason) {
            error!(%error, "Cannot write the marker: a restart of the drainer would not restore Envoy's health");
        }
    }

    fn set_phase(&self, phase: Phase) {
        self.progress.send_modify(|progress| progress.phase = phase);
    }

    fn show(&self, seen: &Seen) {
        self.progress.send_modify(|progress| {
            progress.unknown = match seen {
                Seen::Counted(Count::Listeners(open)) => {
                    progress.open = Some(Left::from(open));
                    None
                }
                Seen::Counted(Count::Server { .. }) => Some("listener.* is hidden".to_owned()),
                Seen::Counted(Count::Hidden) => Some("all statistics are hidden".to_owned()),
                Seen::Unreadable(why) | Seen::Unknown(why) => Some(why.clone()),
                Seen::Refused => Some("connection refused".to_owned()),
            };
        });
    }
}

/// Whether Envoy was told something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    NotYet,
    Heard,
    /// It answered that it will not, which asking again does not change.
    Declined,
}
