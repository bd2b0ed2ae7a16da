//! The certificate of a webhook in a cluster, and the trust of the API servers in it: modes `self`
//! and `secret`.
//!
//! A tick reads both objects, decides, writes what is to be written and shows what is to be shown.
//! Ticks come at least every minute by the wall clock; a change of an object is only a reason to tick
//! at once. So nothing is lost with an event, and no state of a cache is acted upon.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::anchors::Anchors;
use super::backoff::pause;
use super::bundle::Bundle;
use super::ca::Ca;
use super::cluster::{Cluster, Secret, Webhooks};
use super::given::{BadSecret, Given};
use super::keyring::Keyring;
use super::lifetimes::Lifetimes;
use super::live::Live;
use super::readiness::{Readiness, Ready};
use super::rotation::{self, Reason, Situation, Step};
use super::serving::Serving;
use super::showing::{Now, Shown, is_worth_showing, may_show};
use super::tick::{Failure, Tick};
use super::trial;
use crate::clock::wall_clock;
use crate::report::{Kind, Report};

/// One long sleep would miss the hours in which the machine was suspended.
const LONGEST_TICK: Duration = Duration::from_secs(60);

/// The shortest pause after a failure that a change of an object may end.
const FLOOR: Duration = Duration::from_secs(1);

/// So many writes may follow each other without a pause: more than a change of authorities takes.
const MOST_WRITES: u32 = 16;

/// The longest pause between writes that others undo again and again, such as a replica of an earlier release that
/// adopts a CA that has leaked.
const LONGEST_CALM: Duration = Duration::from_secs(5);

/// How certificates come to be.
#[derive(Debug)]
pub enum Mode {
    /// This webhook's own authority signs them.
    Own {
        /// DNS names and IP addresses of the webhook.
        names: Vec<String>,
        /// The lifetimes.
        lifetimes: Lifetimes,
    },
    /// Somebody else puts them into the Secret.
    Given {
        /// Names that they are for.
        names: Vec<String>,
        /// How long an authority is trusted before its certificate is shown instead of another's.
        activation_delay: Duration,
    },
}

/// One replica's certificate, and its share in the trust of all.
#[derive(Debug)]
pub struct Authority<C> {
    cluster: C,
    mode: Mode,
    live: Live,
    read: Option<Read>,
    retirement: Option<Retirement>,
    shown: Option<Shown>,
    /// What a caBundle had beside what this webhook knows.
    foreign: Bundle,
    readiness: Readiness,
}

/// What was last read in the Secret, as long as that stays the same.
#[derive(Debug, Clone)]
struct Read {
    version: String,
    keyring: Keyring,
    spoilt: bool,
    obstacle: Option<String>,
}

/// The last retirement that this process found in the Secret.
#[derive(Debug, Clone, Copy)]
struct Retirement {
    at: Option<SystemTime>,
    found: Instant,
}

/// A tick under way.
struct Turn<'a> {
    now: Now,
    serving: &'a Serving,
    report: &'a Report,
    tick: Tick,
}

// === impl Authority ===

impl<C: Cluster> Authority<C> {
    /// Starts with nothing known and nothing shown.
    #[must_use]
    pub fn new(cluster: C, mode: Mode) -> Self {
        Self {
            cluster,
            mode,
            live: Live::default(),
            read: None,
            retirement: None,
            shown: None,
            foreign: Bundle::default(),
            readiness: Readiness::default(),
        }
    }

    /// The cluster that it keeps in step with.
    #[must_use]
    pub fn cluster(&self) -> &C {
        &self.cluster
    }

    /// Ticks for as long as it is polled.
    pub async fn run(mut self, serving: &Serving, report: &Report) -> Infallible {
        let longest = LONGEST_TICK.min(self.activation_delay() / 2);
        let mut restless = 0;
        // Since nothing changed for a whole tick.
        let mut writes: u32 = 0;
        loop {
            let tick = self.tick(wall_clock(), serving, report).await;
            let (changed, is_settled) = (tick.changed, tick.is_settled());
            tick.tell(report);
            writes = writes.saturating_add(changed.into());
            if is_settled {
                restless = 0;
                if let Some(over) = writes.checked_sub(MOST_WRITES) {
                    sleep(pause(over).min(LONGEST_CALM).min(longest)).await;
                }
                tokio::select! {
                    () = sleep(longest) => writes = 0,
                    () = self.cluster.changed() => {}
                }
            } else {
                let pause = pause(restless).min(longest);
                restless += 1;
                // What others change may mend what failed; what it has changed itself rings too.
                let mended = async {
                    sleep(FLOOR).await;
                    self.cluster.changed().await;
                };
                tokio::select! {
                    () = sleep(pause) => {}
                    () = mended, if !changed => {}
                }
            }
        }
    }

    /// Looks at both objects, and does what is due at `now`, each part as far as the others' failures
    /// allow. A panic is a failure like others: what comes next starts from what it reads.
    pub async fn tick(&mut self, now: SystemTime, serving: &Serving, report: &Report) -> Tick {
        let tick = AssertUnwindSafe(self.reconcile(now, serving, report));
        tick.catch_unwind().await.unwrap_or_else(|_| Tick {
            changed: false,
            failures: vec![Failure::Panic],
        })
    }

    async fn reconcile(&mut self, now: SystemTime, serving: &Serving, report: &Report) -> Tick {
        let mut turn = Turn {
            now: Now {
                wall: now,
                stopwatch: Instant::now(),
            },
            serving,
            report,
            tick: Tick::default(),
        };
        self.renew(&mut turn);
        // The Secret first: what the bundles have and an older Secret does not know may be new, and
        // that is found out when it is written; what a newer one does not know may be forgotten.
        let secret = turn.tick.note(self.cluster.secret().await);
        let looked = turn.tick.note(self.cluster.webhooks().await);
        match &looked {
            Some(webhooks) => self.look(webhooks.as_ref(), report),
            None => report.webhooks_found(false),
        }
        // Where there are none, nothing is decided: they go first when this webhook is removed.
        let webhooks = looked.as_ref().and_then(Option::as_ref);
        let called = webhooks.is_some();
        let anchors = match (&self.mode, secret) {
            (_, None) => Anchors::in_use(self.in_use(now)),
            (Mode::Own { lifetimes, .. }, Some(secret)) => {
                let lifetimes = *lifetimes;
                self.own(secret, called, lifetimes, &mut turn).await
            }
            (Mode::Given { names, .. }, Some(secret)) => {
                let given = secret.ok_or(BadSecret::Missing);
                let given = given.and_then(|secret| Given::read(&secret.data, names, now));
                self.given(given, &mut turn)
            }
        };
        self.count_foreign(&anchors, report);
        match webhooks {
            Some(webhooks) => self.trust(webhooks, &anchors, &mut turn).await,
            None => report.bundle_in_sync(false),
        }
        if looked.is_some() {
            self.announce(&turn);
        }
        turn.tick
    }

    fn look(&mut self, webhooks: Option<&Webhooks>, report: &Report) {
        let bundles: Vec<_> = webhooks
            .into_iter()
            .flat_map(|webhooks| webhooks.bundles.iter().map(|(_, bundle)| bundle.clone()))
            .collect();
        report.webhooks_found(!bundles.is_empty());
        let written = webhooks.and_then(|webhooks| webhooks.written);
        self.live.look(bundles, written, Instant::now());
        report.authorities(self.live.anywhere().own().iter().count());
    }

    /// Counts what API servers trust that is neither asked for nor removed: it may be of a replica of another mode,
    /// and may be a way to answer for this webhook.
    fn count_foreign(&mut self, anchors: &Anchors, report: &Report) {
        const LOGGED: usize = 4;
        let trusted = self.live.anywhere();
        let foreign =
            trusted.only(|der| !anchors.wanted.contains(der) && !anchors.gone.contains(der));
        let own = foreign.own();
        let foreign = foreign.only(|der| !own.contains(der));
        let many = foreign.iter().count();
        report.foreign(many);
        if foreign != self.foreign && many > 0 {
            let certificates = foreign.first(LOGGED);
            warn!(
                many,
                ?certificates,
                "caBundle trusts certificates of other issuers"
            );
        }
        self.foreign = foreign;
    }

    /// Takes a step of mode `self`, and shows a leaf of the authority that signs.
    async fn own(
        &mut self,
        secret: Option<Secret>,
        called: bool,
        lifetimes: Lifetimes,
        turn: &mut Turn<'_>,
    ) -> Anchors {
        let in_use = self.in_use(turn.now.wall);
        let Some(secret) = secret else {
            if called && turn.tick.wrote(self.cluster.create_secret().await) {
                info!("Secret made");
            }
            return Anchors::in_use(in_use);
        };
        let read = self.read(&secret, turn.now.wall);
        let retired_for = self.retired_for(read.keyring.retired_at, turn.now.stopwatch);
        let situation = Situation {
            keyring: &read.keyring,
            retired_for,
            live: &self.live,
            in_use: &in_use,
            now: turn.now.wall,
            lifetimes: &lifetimes,
        };
        let anchors = Anchors::own(&situation);
        // One that is about to be replaced is shown only where there is no other.
        let signer = read.keyring.signer.as_ref().filter(|signer| {
            in_use.is_empty() || rotation::replaced_at_once(signer, &situation).is_none()
        });
        if called {
            let step = rotation::next(&situation);
            self.take(step, &read, turn).await;
        }
        if let Some(signer) = signer {
            self.follow(signer, turn);
        }
        anchors
    }

    /// Shows what the Secret of mode `secret` holds.
    fn given(&mut self, given: Result<Given, BadSecret>, turn: &mut Turn<'_>) -> Anchors {
        let now = turn.now.wall;
        let in_use = self.in_use(now);
        let Some(Given { identity, anchors }) = turn.tick.note(given) else {
            turn.report.certificate_reloaded(false);
            return Anchors::in_use(in_use);
        };
        let asked = Anchors::given(&anchors, &in_use, &self.live, now);
        let shown = self.shown.as_ref();
        let is_new =
            shown.is_none_or(|shown| shown.identity != identity || shown.anchors != anchors);
        if is_new && self.may_show(&anchors, now) {
            let next = Shown {
                identity,
                anchors,
                signature: None,
            };
            self.show(next, turn);
        }
        asked
    }

    /// Reads the Secret, unless it is the one that was read before.
    fn read(&mut self, secret: &Secret, now: SystemTime) -> Read {
        let read = match self.read.take() {
            Some(read) if read.version == secret.version => read,
            _ => {
                let fit = |ca: &Ca| {
                    let checked = trial::check(ca, self.names(), now);
                    checked
                        .map_err(|unfit| {
                            let error = format!("{:#}", anyhow::Error::from(unfit));
                            warn!(error, "CA in Secret cannot sign");
                        })
                        .is_ok()
                };
                let (keyring, unusable) = Keyring::read(secret, fit);
                if !unusable.is_empty() {
                    warn!(keys = ?unusable, "Secret holds what cannot be used");
                }
                Read {
                    version: secret.version.clone(),
                    keyring,
                    spoilt: !unusable.is_empty(),
                    obstacle: secret.obstacle.clone(),
                }
            }
        };
        self.read.insert(read).clone()
    }

    /// Writes the Secret as it is after `step`, and anew if something in it is spoilt.
    async fn take(&self, step: Step, read: &Read, turn: &mut Turn<'_>) {
        let Mode::Own { names, lifetimes } = &self.mode else {
            return;
        };
        match step {
            Step::Rest if !read.spoilt => return,
            Step::Crowd(many) => return turn.tick.failures.push(Failure::Crowd(many)),
            _ => {}
        }
        let mut keyring = read.keyring.clone();
        let taken = keyring.take(step.clone(), turn.now.wall, lifetimes, names);
        if turn.tick.note(taken).is_none() {
            return;
        }
        let written = self.cluster.write_secret(&read.version, keyring.write());
        if !turn.tick.wrote(written.await) {
            let obstacle = read.obstacle.clone().map(Failure::Obstacle);
            turn.tick.failures.extend(obstacle);
            return;
        }
        match step {
            Step::Rest | Step::Crowd(_) => info!("Secret mended"),
            Step::Adopt(own) => info!(authorities = ?own, "Authorities adopted from caBundle"),
            Step::Date => info!("Retirement of CAs dated anew"),
            Step::Publish(reason) => {
                turn.report.ca_rotated(reason);
                if reason == Reason::Outlives {
                    warn!("CA in Secret outlives ca-lifetime: replacing it");
                }
                info!(?reason, "Authority published");
            }
            Step::Activate => info!("Authority signs"),
            Step::Forget(gone) => info!(authorities = ?gone, "Authorities forgotten"),
        }
    }

    /// Shows a leaf of `signer` instead of another authority's.
    fn follow(&mut self, signer: &Arc<Ca>, turn: &mut Turn<'_>) {
        let Mode::Own { lifetimes, .. } = &self.mode else {
            return;
        };
        let (shown, now) = (self.shown.as_ref(), turn.now.wall);
        if is_worth_showing(signer, shown, lifetimes.leaf(), now)
            && self.may_show(&Bundle::from(signer.der().clone()), now)
        {
            self.issue(Arc::clone(signer), turn);
        }
    }

    /// Shows a new leaf of the same authority when that is due, whatever the Secret says by now: that
    /// needs nobody's answer, and changes nothing of who is trusted.
    fn renew(&mut self, turn: &mut Turn<'_>) {
        let signature = self
            .shown
            .as_ref()
            .and_then(|shown| shown.signature.as_ref());
        if let Some(signature) = signature.filter(|signature| signature.is_due(turn.now)) {
            self.issue(Arc::clone(signature.signer()), turn);
        }
    }

    fn issue(&mut self, signer: Arc<Ca>, turn: &mut Turn<'_>) {
        let Mode::Own { names, lifetimes } = &self.mode else {
            return;
        };
        let end = signer.facts().not_after;
        let last = self
            .shown
            .as_ref()
            .and_then(|shown| shown.signature.as_ref());
        let next = Shown::issue(signer, names, lifetimes.leaf(), last, turn.now);
        if let Some(next) = turn.tick.note(next) {
            turn.report.certificate_ends(Kind::Ca, end);
            self.show(next, turn);
        }
    }

    fn may_show(&self, anchors: &Bundle, now: SystemTime) -> bool {
        let shown = self.shown.as_ref();
        may_show(anchors, shown, &self.live, self.activation_delay(), now)
    }

    fn show(&mut self, next: Shown, turn: &Turn<'_>) {
        turn.report.certificate_reloaded(true);
        turn.report
            .certificate_ends(Kind::Leaf, next.identity.not_after());
        info!(authorities = ?next.anchors, "Certificate replaced");
        turn.serving.replace(next.identity.clone());
        self.shown = Some(next);
    }

    /// Makes every `caBundle` what it should be.
    async fn trust(&self, found: &Webhooks, anchors: &Anchors, turn: &mut Turn<'_>) {
        let mended = |bundle| anchors.mended(bundle);
        let in_sync = found
            .bundles
            .iter()
            .all(|(_, bundle)| mended(bundle).is_none());
        turn.report.bundle_in_sync(in_sync);
        if in_sync {
            return;
        }
        let bundles = found.bundles.iter().map(|(name, bundle)| {
            let right = mended(bundle).unwrap_or_else(|| bundle.clone());
            (name.clone(), right)
        });
        let webhooks = Webhooks {
            bundles: bundles.collect(),
            ..found.clone()
        };
        if turn.tick.wrote(self.cluster.write_bundles(&webhooks).await) {
            info!(authorities = ?anchors.wanted, "caBundle written");
        }
    }

    /// Announces that the webhook is ready, once its certificate is trusted. That is for good: were
    /// all replicas unready because somebody spoilt a `caBundle`, that would help nobody.
    fn announce(&mut self, turn: &Turn<'_>) {
        if turn.serving.is_ready() {
            return;
        }
        let (shown, delay) = (self.shown.as_ref(), self.activation_delay());
        match self.readiness.reached(shown, &self.live, delay, turn.now) {
            Some(Ready::Trusted) => info!("Ready"),
            Some(Ready::Uncalled) => {
                warn!("Ready without a webhook configuration, so nobody will call");
            }
            None => return,
        }
        turn.serving.announce();
    }

    /// For how long this process has found this retirement to be the last.
    fn retired_for(&mut self, at: Option<SystemTime>, now: Instant) -> Duration {
        let found = match self.retirement {
            Some(retirement) if retirement.at == at => retirement.found,
            _ => now,
        };
        self.retirement = Some(Retirement { at, found });
        now.duration_since(found)
    }

    /// What clients must trust to trust what is shown, while that can be trusted at all.
    fn in_use(&self, now: SystemTime) -> Bundle {
        let shown = self.shown.as_ref().filter(|shown| shown.is_valid(now));
        shown.map_or_else(Bundle::default, |shown| shown.anchors.clone())
    }

    fn names(&self) -> &[String] {
        match &self.mode {
            Mode::Own { names, .. } | Mode::Given { names, .. } => names,
        }
    }

    fn activation_delay(&self) -> Duration {
        match &self.mode {
            Mode::Own { lifetimes, .. } => lifetimes.activation_delay(),
            Mode::Given {
                activation_delay, ..
            } => *activation_delay,
        }
    }
}
