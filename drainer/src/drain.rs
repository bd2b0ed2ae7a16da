//! The drain: started once, awaited by many. Strings the decisions together, one call at a time.

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
use crate::marker::Marker;
use crate::progress::{Phase, Progress};
use crate::quiet::{Quiet, ReadinessProbe};
use crate::stats::Count;
use crate::summary::{Left, Summary};
use crate::timing::Timing;
use crate::verdict::{Outcome, Record, Rules, Verdict};

use complaints::Complaints;

/// Everything that ends in a pod, from the drainer's start to the end of the drain.
pub(crate) struct Drain<E> {
    envoy: E,
    /// Where it is, for logs.
    admin: AdminAddress,
    marker: Marker,
    timing: Timing,
    exit_at_connections: u64,
    readiness_probes: Vec<ReadinessProbe>,
    termination_log: PathBuf,
    came: watch::Sender<Came>,
    progress: watch::Sender<Progress>,
    /// What Envoy last told of its setup; `None` until it answered in this process's life.
    setup: Option<Setup>,
    has_answered: bool,
    /// When Envoy's hook returned without a drain.
    let_go: Option<Instant>,
    /// When the drainer's own hook returned without a drain.
    waited: Option<Instant>,
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

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// A drain of `envoy`, as `config` has it. It acts on who `came`, and tells its `progress`.
    pub(crate) fn new(
        envoy: E,
        config: &Config,
        came: watch::Sender<Came>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        Self {
            envoy,
            admin: config.admin_address.clone(),
            marker: Marker::new(&config.run_dir),
            timing: config.timing,
            exit_at_connections: config.exit_at_connections,
            readiness_probes: config.readiness_probes.clone(),
            termination_log: config.termination_log.clone(),
            came,
            progress,
            setup: None,
            has_answered: false,
            let_go: None,
            waited: None,
        }
    }

    /// Runs until the pod's drain has ended, or until SIGTERM came and there is nothing to drain.
    pub(crate) async fn run(mut self) {
        loop {
            match self.next_end().await {
                End::Pod { since } => return self.drain(since, None).await,
                End::Envoy { since, answers } => {
                    if answers && let Some(failed_at) = self.envoy_alone().await {
                        return self.drain(since, failed_at).await;
                    }
                    info!("Envoy is restarted alone, or does not answer: its hook returns");
                    self.let_go = Some(Instant::now());
                    self.end_round(|came| came.envoy_hook = None);
                }
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
                    self.end_round(|came| came.drainer_hook = None);
                }
            }
        }
    }

    /// Lets the hooks of this round return, and forgets who came, for the next round.
    fn end_round(&mut self, forget: impl FnOnce(&mut Came)) {
        self.came.send_modify(forget);
        self.progress.send_modify(|progress| {
            progress.phase = Phase::Idle;
            progress.round += 1;
        });
    }

    /// The pod ends, since `since`: drains until an exit rule holds. Health may have been failed
    /// already, at `failed_at`.
    async fn drain(&mut self, since: Instant, failed_at: Option<Instant>) {
        info!("The pod ends");
        let mut record = Record::default();
        let deadline = since + self.timing.deadline();
        let drain = self.drain_until_a_rule_holds(since, failed_at, &mut record);
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
        failed_at: Option<Instant>,
        record: &mut Record,
    ) -> Outcome {
        let mut health = Told::NotYet;
        match failed_at {
            Some(failed_at) => {
                record.start(failed_at);
                health = Told::Heard;
            }
            None => {
                self.set_phase(Phase::Delaying);
                let delay = drain_delay(self.timing, since);
                tokio::select! {
                    biased;
                    () = delay => {}
                    outcome = self.watch(record) => return outcome,
                }
                self.mark();
            }
        }
        self.set_phase(Phase::Draining);
        let mut listeners = Told::NotYet;
        let mut unheard = Complaints::new(Instant::now(), REMINDER);
        let mut inspected = false;
        let mut rules = self.rules();
        loop {
            if health == Told::NotYet {
                let answer = self.envoy.fail_health().await;
                health = self.told("/healthcheck/fail", answer, &mut unheard);
                if health != Told::NotYet {
                    record.start(Instant::now());
                }
            }
            if health != Told::NotYet && listeners == Told::NotYet {
                let answer = self.envoy.drain_listeners().await;
                listeners = self.told("/drain_listeners", answer, &mut unheard);
            }
            if health != Told::NotYet && !inspected {
                // Once: listeners may have come and gone since the start.
                inspected = true;
                if let Ok(Ok(setup)) = timeout(INSPECT_TIMEOUT, self.envoy.inspect()).await {
                    self.setup = Some(setup);
                    rules = self.rules();
                }
            }
            let verdict = self.look(record, &mut rules).await;
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
        let flush_interval = self.setup.as_ref().map(|setup| setup.flush_interval);
        Rules {
            timing: self.timing,
            exit_at_connections: self.exit_at_connections,
            quiet: Quiet::new(self.timing.quiet_period, probes),
            flush_interval: flush_interval.unwrap_or_default(),
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

    fn mark(&self) {
        if let Err(error) = self.marker.write() {
            error!(%error, "Cannot leave the marker: a restart of the drainer would not restore Envoy's health");
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
