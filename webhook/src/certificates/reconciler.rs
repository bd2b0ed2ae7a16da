//! The certificate of a webhook in a cluster, and the trust of the API servers in it: modes `self`
//! and `secret`.
//!
//! A tick reads both objects, decides, writes what is to be written and shows what is to be shown.
//! Ticks come at least every minute by the wall clock; a change of an object is only a reason to tick
//! at once. So nothing is lost with an event, and no state of a cache is acted upon.

pub(crate) mod backoff;
pub mod result;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use self::backoff::backoff;
use self::result::{ReconcileError, ReconcileResult};
use super::ca_bundle::DesiredCaBundle;
use super::ca_secret::CaSecret;
use super::cluster::{Cluster, Secret, Webhooks};
use super::lifetimes::Lifetimes;
use super::pki::bundle::Bundle;
use super::pki::ca::Ca;
use super::pki::ca_check;
use super::propagation::ObservedBundles;
use super::readiness::{Ready, ServingReadiness};
use super::resolver::CertResolver;
use super::rotation::{self, RotationInputs, RotationReason, Step};
use super::serving_policy::{Clocks, ServedCertificate, can_serve, should_switch_to};
use super::tls_secret::{TlsSecret, TlsSecretError};
use crate::clock::wall_clock;
use crate::metrics::{CertificateKind, Metrics};

/// One long sleep would miss the hours in which the machine was suspended.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest pause after a failure that a change of an object may end.
const EVENT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// So many writes may follow each other without a pause: more than a change of authorities takes.
const WRITE_BURST: u32 = 16;

/// The longest pause between writes that others undo again and again, such as a replica of an earlier release that
/// adopts a CA that has leaked.
const MAX_WRITE_DELAY: Duration = Duration::from_secs(5);

/// How certificates come to be.
#[derive(Debug)]
pub enum Mode {
    /// This webhook's own authority signs them.
    SelfManaged {
        /// DNS names and IP addresses of the webhook.
        names: Vec<String>,
        /// The lifetimes.
        lifetimes: Lifetimes,
    },
    /// Somebody else puts them into the Secret.
    Secret {
        /// Names that they are for.
        names: Vec<String>,
        /// How long an authority is trusted before its certificate is shown instead of another's.
        activation_delay: Duration,
    },
}

/// One replica's certificate, and its share in the trust of all.
#[derive(Debug)]
pub struct CertificateReconciler<C> {
    cluster: C,
    mode: Mode,
    observed: ObservedBundles,
    snapshot: Option<SecretSnapshot>,
    retirement: Option<Retirement>,
    served: Option<ServedCertificate>,
    /// What a caBundle had beside what this webhook knows.
    foreign: Bundle,
    readiness: ServingReadiness,
}

/// What was last read in the Secret, as long as that stays the same.
#[derive(Debug, Clone)]
struct SecretSnapshot {
    resource_version: String,
    ca_secret: CaSecret,
    is_corrupt: bool,
    unwritable_reason: Option<String>,
}

/// The last retirement that this process found in the Secret.
#[derive(Debug, Clone, Copy)]
struct Retirement {
    at: Option<SystemTime>,
    since: Instant,
}

/// A tick under way.
struct ReconcileContext<'a> {
    clocks: Clocks,
    resolver: &'a CertResolver,
    metrics: &'a Metrics,
    result: ReconcileResult,
}

// === impl CertificateReconciler ===

impl<C: Cluster> CertificateReconciler<C> {
    /// Starts with nothing known and nothing shown.
    #[must_use]
    pub fn new(cluster: C, mode: Mode) -> Self {
        Self {
            cluster,
            mode,
            observed: ObservedBundles::default(),
            snapshot: None,
            retirement: None,
            served: None,
            foreign: Bundle::default(),
            readiness: ServingReadiness::default(),
        }
    }

    /// The cluster that it keeps in step with.
    #[must_use]
    pub fn cluster(&self) -> &C {
        &self.cluster
    }

    /// Ticks for as long as it is polled.
    pub async fn run(mut self, serving: &CertResolver, report: &Metrics) -> Infallible {
        let longest = RESYNC_INTERVAL.min(self.activation_delay() / 2);
        let mut failures = 0;
        // Since nothing changed for a whole tick.
        let mut writes: u32 = 0;
        loop {
            let tick = self.reconcile(wall_clock(), serving, report).await;
            let (changed, is_settled) = (tick.changed, tick.is_converged());
            tick.log(report);
            writes = writes.saturating_add(changed.into());
            if is_settled {
                failures = 0;
                if let Some(over) = writes.checked_sub(WRITE_BURST) {
                    sleep(backoff(over).min(MAX_WRITE_DELAY).min(longest)).await;
                }
                tokio::select! {
                    () = sleep(longest) => writes = 0,
                    () = self.cluster.changed() => {}
                }
            } else {
                let pause = backoff(failures).min(longest);
                failures += 1;
                // What others change may mend what failed; what it has changed itself rings too.
                let mended = async {
                    sleep(EVENT_RETRY_DELAY).await;
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
    pub async fn reconcile(
        &mut self,
        now: SystemTime,
        serving: &CertResolver,
        report: &Metrics,
    ) -> ReconcileResult {
        let tick = AssertUnwindSafe(self.reconcile_uncaught(now, serving, report));
        tick.catch_unwind()
            .await
            .unwrap_or_else(|_| ReconcileResult {
                changed: false,
                failures: vec![ReconcileError::Panic],
            })
    }

    async fn reconcile_uncaught(
        &mut self,
        now: SystemTime,
        serving: &CertResolver,
        report: &Metrics,
    ) -> ReconcileResult {
        let mut turn = ReconcileContext {
            clocks: Clocks {
                wall: now,
                monotonic: Instant::now(),
            },
            resolver: serving,
            metrics: report,
            result: ReconcileResult::default(),
        };
        self.renew_leaf(&mut turn);
        // The Secret first: what the bundles have and an older Secret does not know may be new, and
        // that is found out when it is written; what a newer one does not know may be forgotten.
        let secret = turn.result.note(self.cluster.secret().await);
        let looked = turn.result.note(self.cluster.webhooks().await);
        match &looked {
            Some(webhooks) => self.observe_bundles(webhooks.as_ref(), report),
            None => report.set_webhooks_found(false),
        }
        // Where there are none, nothing is decided: they go first when this webhook is removed.
        let webhooks = looked.as_ref().and_then(Option::as_ref);
        let called = webhooks.is_some();
        let anchors = match (&self.mode, secret) {
            (_, None) => DesiredCaBundle::for_served(self.bundle_in_use(now)),
            (Mode::SelfManaged { lifetimes, .. }, Some(secret)) => {
                let lifetimes = *lifetimes;
                self.reconcile_self(secret, called, lifetimes, &mut turn)
                    .await
            }
            (Mode::Secret { names, .. }, Some(secret)) => {
                let given = secret.ok_or(TlsSecretError::Missing);
                let given = given.and_then(|secret| TlsSecret::read(&secret.data, names, now));
                self.reconcile_tls_secret(given, &mut turn)
            }
        };
        self.count_foreign(&anchors, report);
        match webhooks {
            Some(webhooks) => self.write_bundles(webhooks, &anchors, &mut turn).await,
            None => report.set_bundle_in_sync(false),
        }
        if looked.is_some() {
            self.update_readiness(&turn);
        }
        turn.result
    }

    fn observe_bundles(&mut self, webhooks: Option<&Webhooks>, report: &Metrics) {
        let bundles: Vec<_> = webhooks
            .into_iter()
            .flat_map(|webhooks| webhooks.bundles.iter().map(|(_, bundle)| bundle.clone()))
            .collect();
        report.set_webhooks_found(!bundles.is_empty());
        let written = webhooks.and_then(|webhooks| webhooks.written_at);
        self.observed.observe(bundles, written, Instant::now());
        report.set_bundle_cas(self.observed.union().issued_by_us().iter().count());
    }

    /// Counts what API servers trust that is neither asked for nor removed: it may be of a replica of another mode,
    /// and may be a way to answer for this webhook.
    fn count_foreign(&mut self, anchors: &DesiredCaBundle, report: &Metrics) {
        const LOGGED: usize = 4;
        let trusted = self.observed.union();
        let foreign =
            trusted.filter(|der| !anchors.add.contains(der) && !anchors.remove.contains(der));
        let own = foreign.issued_by_us();
        let foreign = foreign.filter(|der| !own.contains(der));
        let many = foreign.iter().count();
        report.set_bundle_foreign(many);
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
    async fn reconcile_self(
        &mut self,
        secret: Option<Secret>,
        called: bool,
        lifetimes: Lifetimes,
        turn: &mut ReconcileContext<'_>,
    ) -> DesiredCaBundle {
        let in_use = self.bundle_in_use(turn.clocks.wall);
        let Some(secret) = secret else {
            if called && turn.result.note_write(self.cluster.create_secret().await) {
                info!("Secret made");
            }
            return DesiredCaBundle::for_served(in_use);
        };
        let read = self.read_secret(&secret, turn.clocks.wall);
        let retired_for = self.retired_since(read.ca_secret.retired_at, turn.clocks.monotonic);
        let situation = RotationInputs {
            ca_secret: &read.ca_secret,
            retired_for,
            observed: &self.observed,
            in_use: &in_use,
            now: turn.clocks.wall,
            lifetimes: &lifetimes,
        };
        let anchors = DesiredCaBundle::for_self(&situation);
        // One that is about to be replaced is shown only where there is no other.
        let signer = read.ca_secret.active.as_ref().filter(|signer| {
            in_use.is_empty()
                || rotation::immediate_replacement_reason(signer, &situation).is_none()
        });
        if called {
            let step = rotation::next(&situation);
            self.apply_step(step, &read, turn).await;
        }
        if let Some(signer) = signer {
            self.sign_with(signer, turn);
        }
        anchors
    }

    /// Shows what the Secret of mode `secret` holds.
    fn reconcile_tls_secret(
        &mut self,
        given: Result<TlsSecret, TlsSecretError>,
        turn: &mut ReconcileContext<'_>,
    ) -> DesiredCaBundle {
        let now = turn.clocks.wall;
        let in_use = self.bundle_in_use(now);
        let Some(TlsSecret {
            certified_key: identity,
            anchors,
        }) = turn.result.note(given)
        else {
            turn.metrics.count_certificate_reload(false);
            return DesiredCaBundle::for_served(in_use);
        };
        let asked = DesiredCaBundle::for_secret(&anchors, &in_use, &self.observed, now);
        let shown = self.served.as_ref();
        let is_new =
            shown.is_none_or(|shown| shown.certified_key != identity || shown.anchors != anchors);
        if is_new && self.can_serve(&anchors, now) {
            let next = ServedCertificate {
                certified_key: identity,
                anchors,
                issued_by: None,
            };
            self.serve(next, turn);
        }
        asked
    }

    /// Reads the Secret, unless it is the one that was read before.
    fn read_secret(&mut self, secret: &Secret, now: SystemTime) -> SecretSnapshot {
        let read = match self.snapshot.take() {
            Some(read) if read.resource_version == secret.resource_version => read,
            _ => {
                let fit = |ca: &Ca| {
                    let checked = ca_check::check(ca, self.names(), now);
                    checked
                        .map_err(|unfit| {
                            let error = format!("{:#}", anyhow::Error::from(unfit));
                            warn!(error, "CA in Secret cannot sign");
                        })
                        .is_ok()
                };
                let (keyring, unusable) = CaSecret::read(secret, fit);
                if !unusable.is_empty() {
                    warn!(keys = ?unusable, "Secret holds what cannot be used");
                }
                SecretSnapshot {
                    resource_version: secret.resource_version.clone(),
                    ca_secret: keyring,
                    is_corrupt: !unusable.is_empty(),
                    unwritable_reason: secret.unwritable_reason.clone(),
                }
            }
        };
        self.snapshot.insert(read).clone()
    }

    /// Writes the Secret as it is after `step`, and anew if something in it is spoilt.
    async fn apply_step(&self, step: Step, read: &SecretSnapshot, turn: &mut ReconcileContext<'_>) {
        let Mode::SelfManaged { names, lifetimes } = &self.mode else {
            return;
        };
        match step {
            Step::None if !read.is_corrupt => return,
            Step::TooManyCas(many) => {
                return turn.result.failures.push(ReconcileError::TooManyCas(many));
            }
            _ => {}
        }
        let mut keyring = read.ca_secret.clone();
        let taken = keyring.apply(step.clone(), turn.clocks.wall, lifetimes, names);
        if turn.result.note(taken).is_none() {
            return;
        }
        let written = self
            .cluster
            .write_secret(&read.resource_version, keyring.write());
        if !turn.result.note_write(written.await) {
            let obstacle = read
                .unwritable_reason
                .clone()
                .map(ReconcileError::SecretUnwritable);
            turn.result.failures.extend(obstacle);
            return;
        }
        match step {
            Step::None | Step::TooManyCas(_) => info!("Secret mended"),
            Step::AdoptOrphans(own) => {
                info!(authorities = ?own, "Authorities adopted from caBundle")
            }
            Step::DateRetirement => info!("Retirement of CAs dated anew"),
            Step::PublishNext(reason) => {
                turn.metrics.count_rotation(reason);
                if reason == RotationReason::Outlives {
                    warn!("CA in Secret outlives ca-lifetime: replacing it");
                }
                info!(?reason, "Authority published");
            }
            Step::ActivateNext => info!("Authority signs"),
            Step::PruneRetired(gone) => info!(authorities = ?gone, "Authorities forgotten"),
        }
    }

    /// Shows a leaf of `signer` instead of another authority's.
    fn sign_with(&mut self, signer: &Arc<Ca>, turn: &mut ReconcileContext<'_>) {
        let Mode::SelfManaged { lifetimes, .. } = &self.mode else {
            return;
        };
        let (shown, now) = (self.served.as_ref(), turn.clocks.wall);
        if should_switch_to(signer, shown, lifetimes.leaf(), now)
            && self.can_serve(&Bundle::from(signer.der().clone()), now)
        {
            self.issue_leaf(Arc::clone(signer), turn);
        }
    }

    /// Shows a new leaf of the same authority when that is due, whatever the Secret says by now: that
    /// needs nobody's answer, and changes nothing of who is trusted.
    fn renew_leaf(&mut self, turn: &mut ReconcileContext<'_>) {
        let signature = self
            .served
            .as_ref()
            .and_then(|shown| shown.issued_by.as_ref());
        if let Some(signature) = signature.filter(|signature| signature.is_renewal_due(turn.clocks))
        {
            self.issue_leaf(Arc::clone(signature.signer()), turn);
        }
    }

    fn issue_leaf(&mut self, signer: Arc<Ca>, turn: &mut ReconcileContext<'_>) {
        let Mode::SelfManaged { names, lifetimes } = &self.mode else {
            return;
        };
        let end = signer.info().not_after;
        let last = self
            .served
            .as_ref()
            .and_then(|shown| shown.issued_by.as_ref());
        let next = ServedCertificate::issue(signer, names, lifetimes.leaf(), last, turn.clocks);
        if let Some(next) = turn.result.note(next) {
            turn.metrics.set_not_after(CertificateKind::Ca, end);
            self.serve(next, turn);
        }
    }

    fn can_serve(&self, anchors: &Bundle, now: SystemTime) -> bool {
        let shown = self.served.as_ref();
        can_serve(anchors, shown, &self.observed, self.activation_delay(), now)
    }

    fn serve(&mut self, next: ServedCertificate, turn: &ReconcileContext<'_>) {
        turn.metrics.count_certificate_reload(true);
        turn.metrics
            .set_not_after(CertificateKind::Leaf, next.certified_key.not_after());
        info!(authorities = ?next.anchors, "Certificate replaced");
        turn.resolver.set(next.certified_key.clone());
        self.served = Some(next);
    }

    /// Makes every `caBundle` what it should be.
    async fn write_bundles(
        &self,
        found: &Webhooks,
        anchors: &DesiredCaBundle,
        turn: &mut ReconcileContext<'_>,
    ) {
        let mended = |bundle| anchors.reconcile(bundle);
        let in_sync = found
            .bundles
            .iter()
            .all(|(_, bundle)| mended(bundle).is_none());
        turn.metrics.set_bundle_in_sync(in_sync);
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
        if turn
            .result
            .note_write(self.cluster.write_bundles(&webhooks).await)
        {
            info!(authorities = ?anchors.add, "caBundle written");
        }
    }

    /// Announces that the webhook is ready, once its certificate is trusted. That is for good: were
    /// all replicas unready because somebody spoilt a `caBundle`, that would help nobody.
    fn update_readiness(&mut self, turn: &ReconcileContext<'_>) {
        if turn.resolver.is_ready() {
            return;
        }
        let (shown, delay) = (self.served.as_ref(), self.activation_delay());
        match self
            .readiness
            .update(shown, &self.observed, delay, turn.clocks)
        {
            Some(Ready::Trusted) => info!("Ready"),
            Some(Ready::NoWebhookConfiguration) => {
                warn!("Ready without a webhook configuration, so nobody will call");
            }
            None => return,
        }
        turn.resolver.set_ready();
    }

    /// For how long this process has found this retirement to be the last.
    fn retired_since(&mut self, at: Option<SystemTime>, now: Instant) -> Duration {
        let found = match self.retirement {
            Some(retirement) if retirement.at == at => retirement.since,
            _ => now,
        };
        self.retirement = Some(Retirement { at, since: found });
        now.duration_since(found)
    }

    /// What clients must trust to trust what is shown, while that can be trusted at all.
    fn bundle_in_use(&self, now: SystemTime) -> Bundle {
        let shown = self.served.as_ref().filter(|shown| shown.is_valid(now));
        shown.map_or_else(Bundle::default, |shown| shown.anchors.clone())
    }

    fn names(&self) -> &[String] {
        match &self.mode {
            Mode::SelfManaged { names, .. } | Mode::Secret { names, .. } => names,
        }
    }

    fn activation_delay(&self) -> Duration {
        match &self.mode {
            Mode::SelfManaged { lifetimes, .. } => lifetimes.activation_delay(),
            Mode::Secret {
                activation_delay, ..
            } => *activation_delay,
        }
    }
}
