//! The controller of this replica's certificate, of the CA Secret and of every `caBundle`, in the modes `self` and
//! `secret`.
//!
//! It is level-triggered: each reconcile reads both objects, decides, and acts. It runs at least once a minute by the
//! wall clock, and earlier after a change of an object. So a missed change only costs time, and no decision rests on a
//! cache.

mod backoff;
pub(super) mod result;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use futures_util::FutureExt;
use k8s_openapi::jiff::Timestamp;
use pki::bundle::Bundle;
use pki::ca::Ca;
use pki::clock::wall_clock;
use pki::lifetimes::Lifetimes;
use tokio::time::{Instant, sleep};
use tracing::field::{debug, display};
use tracing::{info, warn};

use self::backoff::backoff;
use self::result::{ReconcileError, ReconcileResult};
use super::ca_bundle::DesiredCaBundle;
use super::ca_secret::CaSecret;
use super::cluster::{Cluster, Secret, Webhooks};
use super::metrics::{CertificateKind, Metrics};
use super::propagation::ObservedBundles;
use super::resolver::CertResolver;
use super::rotation::{self, RotationInputs, Step};
use super::serving_policy::{self, Clocks, IssuedBy, Ready, ServedCertificate};
use super::tls_secret::read_tls_secret;

/// How often to reconcile without a change. One long sleep would not count the hours in which the machine is suspended.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest delay of a retry that a change of an object may trigger.
const EVENT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The longest delay after a write, which others may revert again and again.
const MAX_WRITE_DELAY: Duration = Duration::from_secs(5);

/// How many foreign certificates are logged.
const MAX_LOGGED_FOREIGN: usize = 4;

/// Who issues the certificate.
#[derive(Debug, Clone, Copy)]
pub enum Mode {
    /// Mode `self`: the webhook's own CA.
    SelfManaged(Lifetimes),
    /// Mode `secret`: another issuer, such as cert-manager, writes it to a Secret.
    Secret {
        /// How long a CA must be in every caBundle before its certificate replaces another CA's.
        activation_delay: Duration,
    },
}

/// Reconciles the certificate of one replica. All replicas do so independently.
#[derive(Debug)]
pub struct CertificateReconciler<C> {
    cluster: C,
    /// The DNS names and IP addresses of the webhook.
    names: Vec<String>,
    mode: Mode,
    observed: ObservedBundles,
    /// The last retirement in the Secret, and since when this process has observed it.
    retirement: Option<(SystemTime, Instant)>,
    served: Option<ServedCertificate>,
    /// The foreign certificates that were last in a caBundle.
    foreign: Bundle,
}

/// The context of one reconcile.
struct ReconcileContext<'a> {
    clocks: Clocks,
    resolver: &'a CertResolver,
    metrics: &'a Metrics,
    /// How long the CA of the certificate must be in every `caBundle` until the replica is ready.
    activation_delay: Duration,
    result: ReconcileResult,
}

// === impl CertificateReconciler ===

impl<C: Cluster> CertificateReconciler<C> {
    /// Creates a reconciler that has observed nothing and serves nothing yet.
    pub fn new(cluster: C, names: Vec<String>, mode: Mode) -> Self {
        Self {
            cluster,
            names,
            mode,
            observed: ObservedBundles::default(),
            retirement: None,
            served: None,
            foreign: Bundle::default(),
        }
    }

    /// The cluster whose objects are reconciled.
    pub fn cluster(&self) -> &C {
        &self.cluster
    }

    /// Reconciles for as long as it is polled.
    pub async fn run(mut self, resolver: &CertResolver, metrics: &Metrics) -> Infallible {
        let max_interval = RESYNC_INTERVAL.min(self.activation_delay() / 2);
        // Failures and writes since the last interval without a change.
        let mut retries = 0;
        loop {
            let result = self.reconcile(wall_clock(), resolver, metrics).await;
            let (changed, is_converged) = (result.changed, result.is_converged());
            result.log(metrics);
            // Nothing notifies of the end of the activation delay, for which a replica waits until it is ready.
            let is_ready = resolver.is_ready();
            let interval = if is_ready {
                max_interval
            } else {
                max_interval / 4
            };
            if is_converged {
                tokio::select! {
                    () = sleep(interval) => retries = 0,
                    () = self.cluster.changed() => {}
                }
            } else {
                let max_delay = if changed {
                    MAX_WRITE_DELAY.min(max_interval)
                } else {
                    max_interval
                };
                let delay = backoff(retries).min(max_delay);
                retries += 1;
                // Retry early on external changes. Skip this after our own write, which triggers the watch as well.
                let external_change = async {
                    sleep(EVENT_RETRY_DELAY).await;
                    self.cluster.changed().await;
                };
                tokio::select! {
                    () = sleep(delay) => {}
                    () = external_change, if !changed => {}
                }
            }
        }
    }

    /// Reconciles once, at `now` by the wall clock. A failure, also a panic, is recorded in the result; each part is
    /// done as far as the failures of others allow, and the next reconcile starts from what it reads.
    pub async fn reconcile(
        &mut self,
        now: SystemTime,
        resolver: &CertResolver,
        metrics: &Metrics,
    ) -> ReconcileResult {
        let context = ReconcileContext {
            clocks: Clocks {
                wall: now,
                monotonic: Instant::now(),
            },
            resolver,
            metrics,
            activation_delay: self.activation_delay(),
            result: ReconcileResult::default(),
        };
        AssertUnwindSafe(self.reconcile_uncaught(context))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| ReconcileResult {
                changed: false,
                failures: vec![ReconcileError::Panic],
            })
    }

    async fn reconcile_uncaught(&mut self, mut context: ReconcileContext<'_>) -> ReconcileResult {
        // The same CA signs the new leaf, so this needs no API server.
        self.renew_leaf(&mut context);
        // Observe the Secret before the bundles. A CA in the bundles that an older Secret lacks may be new, which the
        // write of the Secret detects as a conflict; one that a newer Secret lacks may have been pruned.
        let secret = context.result.record(self.cluster.secret().await);
        let webhooks = context.result.record(self.cluster.webhooks().await);
        self.observe_bundles(webhooks.as_ref(), &context);
        let is_observed = webhooks.is_some();
        let webhooks = webhooks.flatten();
        // Decide, and act on the Secret and on the served certificate. Without a webhook configuration the Secret is
        // not written: the configuration is deleted first when a release is uninstalled.
        let desired = match (secret, self.mode) {
            (None, _) => DesiredCaBundle::for_served(self.bundle_in_use(context.clocks.wall)),
            (Some(secret), Mode::SelfManaged(lifetimes)) => {
                self.reconcile_self(secret, webhooks.is_some(), &lifetimes, &mut context)
                    .await
            }
            (Some(secret), Mode::Secret { .. }) => self.reconcile_tls_secret(secret, &mut context),
        };
        // Act on the bundles.
        let in_use = self.bundle_in_use(context.clocks.wall);
        context.resolver.set_bundle(in_use.union(&desired.add));
        self.report_bundles(&desired, context.metrics);
        self.write_bundles(webhooks, &desired, &mut context).await;
        if is_observed {
            self.update_readiness(&context);
        }
        context.result
    }

    /// Records the bundles that were read; `None` if the read failed.
    fn observe_bundles(&mut self, read: Option<&Option<Webhooks>>, context: &ReconcileContext<'_>) {
        let found = read.and_then(Option::as_ref);
        let bundles = found.iter().flat_map(|webhooks| &webhooks.bundles);
        let bundles: Vec<_> = bundles.map(|(_, bundle)| bundle.clone()).collect();
        let is_found = i64::from(!bundles.is_empty());
        context.metrics.webhooks_found.set(is_found);
        if read.is_some() {
            let written = found.and_then(|webhooks| webhooks.written_at);
            self.observed.observe(bundles, written, Instant::now());
        }
    }

    /// Takes a step of the rotation, and switches to a leaf of the active CA.
    async fn reconcile_self(
        &mut self,
        secret: Option<Secret>,
        has_webhooks: bool,
        lifetimes: &Lifetimes,
        context: &mut ReconcileContext<'_>,
    ) -> DesiredCaBundle {
        let now = context.clocks.wall;
        let in_use = self.bundle_in_use(now);
        let Some(secret) = secret else {
            if has_webhooks {
                let created = self.cluster.create_secret().await;
                if context.result.record_write(created) {
                    info!("Created CA Secret");
                }
            }
            return DesiredCaBundle::for_served(in_use);
        };
        let ca_secret = CaSecret::read(&secret, now);
        let entries = &ca_secret.unusable_keys;
        if !entries.is_empty() {
            warn!(
                ?entries,
                "CA Secret has unusable entries: treating them as missing"
            );
        }
        let has_endpoint =
            ca_secret.active.is_some() || !in_use.is_empty() || self.cluster.has_endpoint().await;
        let inputs = RotationInputs {
            ca_secret: &ca_secret,
            retired_for: self.retired_for(ca_secret.retired_at, context.clocks.monotonic),
            observed: &self.observed,
            has_endpoint,
            in_use: &in_use,
            now,
            lifetimes,
        };
        context.activation_delay = inputs.activation_delay();
        let desired = DesiredCaBundle::for_self(&inputs);
        if has_webhooks && let Some(step) = context.result.record(rotation::next(&inputs)) {
            self.apply_step(step, &secret, &ca_secret, lifetimes, context)
                .await;
        }
        let (served, leaf) = (self.served.as_ref(), lifetimes.leaf());
        if let Some(active) = &ca_secret.active
            && serving_policy::should_switch_to(active, served, leaf, now)
            && self.can_serve(&Bundle::from(active.der().clone()), &in_use)
        {
            self.issue_leaf(Arc::clone(active), leaf, context);
        }
        desired
    }

    /// Serves the certificate of the TLS Secret, mode `secret`.
    fn reconcile_tls_secret(
        &mut self,
        secret: Option<Secret>,
        context: &mut ReconcileContext<'_>,
    ) -> DesiredCaBundle {
        let now = context.clocks.wall;
        let in_use = self.bundle_in_use(now);
        let secret = secret.context("the Secret with the certificate does not exist");
        let read = secret.and_then(|secret| read_tls_secret(&secret.data, &self.names, now));
        let Some(next) = context.result.record(read) else {
            context.metrics.count_reload(false);
            return DesiredCaBundle::for_served(in_use);
        };
        let desired = DesiredCaBundle::for_secret(&next.anchors, &in_use, &self.observed, now);
        let is_new = self.served.as_ref().is_none_or(|served| {
            served.certified_key != next.certified_key || served.anchors != next.anchors
        });
        if is_new && self.can_serve(&next.anchors, &in_use) {
            self.serve(next, context);
        }
        desired
    }

    /// Writes the Secret as it is after `step`; without a step only if it is corrupt.
    async fn apply_step(
        &self,
        step: Step,
        secret: &Secret,
        ca_secret: &CaSecret,
        lifetimes: &Lifetimes,
        context: &mut ReconcileContext<'_>,
    ) {
        if step == Step::None && ca_secret.unusable_keys.is_empty() {
            return;
        }
        let mut ca_secret = ca_secret.clone();
        let now = context.clocks.wall;
        let applied = rotation::apply(step.clone(), &mut ca_secret, now, lifetimes, &self.names);
        if context.result.record(applied).is_none() {
            return;
        }
        let written = self.cluster.write_secret(secret, ca_secret.write()).await;
        if !context.result.record_write(written) {
            return;
        }
        match step {
            Step::None => info!("Repaired CA Secret"),
            Step::Adopt { cas, is_abandoned } => {
                info!(?cas, is_abandoned, "Adopted CAs from caBundle");
            }
            Step::CreateNext(reason) => {
                context.metrics.count_rotation(reason);
                let (cas, reason): (_, &str) = (ca_secret.current(), reason.into());
                info!(?cas, reason, "Created a CA in the CA Secret, not active");
            }
            Step::ActivateNext => info!(cas = ?ca_secret.current(), "Activated the CA"),
            Step::DistrustRetired(cas) => info!(?cas, "Distrusted retired CAs"),
            Step::PruneDistrusted(cas) => info!(?cas, "Pruned CAs that no caBundle has"),
        }
    }

    /// Renews the leaf when it is due, whatever the Secret holds: the same CA signs it, so API servers trust it.
    fn renew_leaf(&mut self, context: &mut ReconcileContext<'_>) {
        if let Some(issued_by) = self.issued_by()
            && issued_by.is_renewal_due(context.clocks)
        {
            self.issue_leaf(Arc::clone(&issued_by.ca), issued_by.leaf_lifetime, context);
        }
    }

    fn issue_leaf(&mut self, ca: Arc<Ca>, lifetime: Duration, context: &mut ReconcileContext<'_>) {
        let end = ca.info().not_after;
        let previous = self.issued_by();
        let next = ServedCertificate::issue(ca, &self.names, lifetime, previous, context.clocks);
        if let Some(next) = context.result.record(next) {
            context.metrics.set_not_after(CertificateKind::Ca, end);
            self.serve(next, context);
        }
    }

    fn issued_by(&self) -> Option<&IssuedBy> {
        self.served.as_ref()?.issued_by.as_ref()
    }

    fn can_serve(&self, anchors: &Bundle, in_use: &Bundle) -> bool {
        serving_policy::can_serve(anchors, in_use, &self.observed, self.activation_delay())
    }

    fn serve(&mut self, next: ServedCertificate, context: &ReconcileContext<'_>) {
        context.metrics.count_reload(true);
        let not_after = next.certified_key.not_after();
        context
            .metrics
            .set_not_after(CertificateKind::Leaf, not_after);
        let valid_until = Timestamp::try_from(not_after).ok().map(display);
        let previous_cas = self.served.as_ref().map(|served| debug(&served.anchors));
        info!(cas = ?next.anchors, previous_cas, valid_until, "Serving new certificate");
        context.resolver.set(next.certified_key.clone());
        self.served = Some(next);
    }

    /// Counts the CAs of ours in the bundles, and the certificates that are neither desired, nor removed, nor ours:
    /// they may belong to a replica of another mode, and may be a way to impersonate the webhook.
    fn report_bundles(&mut self, desired: &DesiredCaBundle, metrics: &Metrics) {
        let trusted = self.observed.union();
        let ours = trusted.issued_by_us();
        let desired = desired.add.clone().union(&desired.remove);
        let foreign = trusted.without(&ours).without(&desired);
        let count = foreign.len();
        metrics.set_bundle_counts(ours.len(), count);
        if foreign != self.foreign && count > 0 {
            let certificates = foreign.first(MAX_LOGGED_FOREIGN);
            warn!(
                count,
                ?certificates,
                "caBundle contains certificates of other issuers, which API servers trust"
            );
        }
        self.foreign = foreign;
    }

    /// Writes every `caBundle` that differs from what is desired.
    async fn write_bundles(
        &self,
        webhooks: Option<Webhooks>,
        desired: &DesiredCaBundle,
        context: &mut ReconcileContext<'_>,
    ) {
        let is_found = webhooks.is_some();
        let mut webhooks = webhooks.unwrap_or_default();
        let mut changed = Vec::new();
        for (webhook, bundle) in &mut webhooks.bundles {
            let reconciled = desired.reconcile(bundle);
            if reconciled != *bundle {
                changed.push(webhook.clone());
                *bundle = reconciled;
            }
        }
        let is_in_sync = is_found && changed.is_empty();
        context.metrics.bundle_in_sync.set(is_in_sync.into());
        if changed.is_empty() {
            return;
        }
        let written = self.cluster.write_bundles(&webhooks).await;
        if context.result.record_write(written) {
            info!(cas = ?desired.add, webhooks = ?changed, "Wrote caBundle");
        }
    }

    /// Marks the replica as ready once API servers trust its certificate. It stays ready: if a `caBundle` is damaged
    /// later, making every replica unready would not help.
    fn update_readiness(&self, context: &ReconcileContext<'_>) {
        if context.resolver.is_ready() {
            return;
        }
        let now = context.clocks.wall;
        let (in_use, delay) = (self.bundle_in_use(now), context.activation_delay);
        match serving_policy::readiness(&in_use, &self.observed, delay, now) {
            Some(Ready::Trusted) => {
                info!("Ready: every caBundle contains the CA of the certificate")
            }
            Some(Ready::NoWebhookConfiguration) => {
                warn!("Ready, but no webhook configuration exists: no pod will get a drainer");
            }
            None => return,
        }
        context.resolver.set_ready();
    }

    /// For how long this process has observed this last retirement.
    fn retired_for(&mut self, retired_at: SystemTime, now: Instant) -> Duration {
        let observed = self.retirement.filter(|(at, _)| *at == retired_at);
        let (_, since) = *self
            .retirement
            .insert(observed.unwrap_or((retired_at, now)));
        now.duration_since(since)
    }

    fn bundle_in_use(&self, now: SystemTime) -> Bundle {
        serving_policy::bundle_in_use(self.served.as_ref(), now)
    }

    fn activation_delay(&self) -> Duration {
        match self.mode {
            Mode::SelfManaged(lifetimes) => lifetimes.activation_delay(),
            Mode::Secret { activation_delay } => activation_delay,
        }
    }
}
