//! The certificate of a webhook in a cluster, and the trust of the API servers in it: modes `self`
//! and `secret`.
//!
//! A tick reads both objects, decides, writes what is to be written and shows what is to be shown.
//! Ticks come at least every minute by the wall clock; a change of an object is only a reason to tick
//! at once. So nothing is lost with an event, and no state of a cache is acted upon.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::ring;
use tokio::time::{Instant, sleep};
use tracing::{debug, error, info, warn};

use super::bundle::Bundle;
use super::ca::Ca;
use super::cluster::{CallFailed, Cluster, Secret, Webhooks};
use super::identity::Identity;
use super::keyring::Keyring;
use super::leaf::{self, NoLeaf};
use super::live::Live;
use super::rotation::{self, Lifetimes, Situation, Step};
use super::secret::{BadSecret, Given};
use super::serving::Serving;
use super::wall_clock;
use crate::report::{Kind, Report};

/// One long sleep would miss the hours in which the machine was suspended.
const LONGEST_TICK: Duration = Duration::from_secs(60);

/// The pause after a tick that changed something or failed; it doubles while that goes on.
const PAUSE: Duration = Duration::from_millis(20);

/// Without a webhook configuration nobody calls, and who installs the webhook before it may wait for
/// the webhook to be ready.
const NO_WEBHOOKS: Duration = Duration::from_secs(30);

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
    no_webhooks_since: Option<Instant>,
}

/// What a tick came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It wrote something, so there may be more to do.
    Changed,
    /// All is well.
    Settled,
}

/// Why a tick did not do all that was due. The next tries again.
#[derive(Debug, thiserror::Error)]
pub enum TickFailed {
    /// The API server.
    #[error(transparent)]
    Call(#[from] CallFailed),
    /// The Secret of mode `secret`.
    #[error(transparent)]
    Secret(#[from] BadSecret),
    /// The leaf.
    #[error(transparent)]
    Leaf(#[from] NoLeaf),
    /// The authority's key.
    #[error("cannot make an authority")]
    Ca(#[from] rcgen::Error),
}

/// What was last read in the Secret, as long as that stays the same.
#[derive(Debug)]
struct Read {
    version: String,
    keyring: Arc<Keyring>,
    spoilt: bool,
}

/// The last retirement that this process found in the Secret.
#[derive(Debug, Clone, Copy)]
struct Retirement {
    at: Option<SystemTime>,
    found: Instant,
}

/// What the server shows, and what clients must trust to trust it.
#[derive(Debug)]
struct Shown {
    identity: Identity,
    anchors: Bundle,
    renew_at: SystemTime,
}

/// What should be trusted.
#[derive(Debug)]
struct Trust {
    wanted: Bundle,
    gone: Bundle,
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
            no_webhooks_since: None,
        }
    }

    /// Ticks for as long as it is polled.
    pub async fn run(mut self, serving: &Serving, report: &Report) -> Infallible {
        let tick = LONGEST_TICK.min(self.activation_delay() / 2);
        let mut restless = 0;
        loop {
            match self.tick(wall_clock(), serving, report).await {
                Ok(Progress::Settled) => {
                    restless = 0;
                    tokio::select! {
                        () = sleep(tick) => {}
                        () = self.cluster.changed() => {}
                    }
                    continue;
                }
                Ok(Progress::Changed) => {}
                Err(failed) => tell(&failed, report),
            }
            sleep(pause(restless).min(tick)).await;
            restless += 1;
        }
    }

    /// Looks at both objects, and does what is due at `now`, each part as far as the others' failures
    /// allow.
    ///
    /// # Errors
    /// The first failure; the parts that do not depend on it were done.
    pub async fn tick(
        &mut self,
        now: SystemTime,
        serving: &Serving,
        report: &Report,
    ) -> Result<Progress, TickFailed> {
        let webhooks = self.cluster.webhooks().await;
        if let Ok(found) = &webhooks {
            self.look(found.as_ref(), report);
        }
        let secret = self.cluster.secret().await?;
        let in_use = self.in_use(now);
        let (trust, rotated, shown) = match &self.mode {
            Mode::Own { lifetimes, .. } => {
                let Some(secret) = secret else {
                    self.cluster.create_secret().await?;
                    info!("Secret made");
                    return Ok(Progress::Changed);
                };
                let lifetimes = *lifetimes;
                let (keyring, spoilt) = self.read(&secret);
                let situation = Situation {
                    keyring: &keyring,
                    retired_for: self.retired_for(keyring.retired_at),
                    live: &self.live,
                    in_use: &in_use,
                    now,
                    lifetimes: &lifetimes,
                };
                let gone = rotation::overdue(&situation);
                let rotated = match &webhooks {
                    Ok(_) => {
                        let step = rotation::next(&situation);
                        self.take(step, spoilt, &secret, now, &lifetimes, report)
                            .await
                    }
                    // Nothing new is decided in the dark.
                    Err(_) => Ok(Progress::Settled),
                };
                if let Ok(Progress::Changed) = rotated {
                    return rotated;
                }
                let trust = Trust {
                    wanted: keyring.all().with(&in_use).only(|der| !gone.contains(der)),
                    gone,
                };
                let shown = self.show_own(keyring.signer.as_ref(), now, serving, report);
                (trust, rotated, shown)
            }
            Mode::Given { .. } => {
                let given = Given::read(&secret.ok_or(BadSecret::Missing)?.data)
                    .inspect_err(|_| report.certificate_reloaded(false))?;
                let trust = Trust {
                    wanted: given.anchors.clone().with(&in_use),
                    gone: Bundle::default(),
                };
                self.show_given(given, now, serving, report);
                (trust, Ok(Progress::Settled), Ok(()))
            }
        };
        let trusted = match &webhooks {
            Ok(Some(webhooks)) => self.trust(webhooks, &trust, now, report).await,
            Ok(None) | Err(_) => Ok(Progress::Settled),
        };
        self.announce(webhooks.is_ok(), serving);
        webhooks?;
        rotated?;
        shown?;
        Ok(trusted?)
    }

    fn look(&mut self, webhooks: Option<&Webhooks>, report: &Report) {
        let bundles: Vec<_> = webhooks
            .into_iter()
            .flat_map(|webhooks| webhooks.bundles.iter().map(|(_, bundle)| bundle.clone()))
            .collect();
        report.webhooks_found(!bundles.is_empty());
        self.live.look(bundles, Instant::now());
    }

    /// Reads the Secret, unless it is the one that was read before; and whether something in it cannot
    /// be used.
    fn read(&mut self, secret: &Secret) -> (Arc<Keyring>, bool) {
        let read = match self.read.take() {
            Some(read) if read.version == secret.version => read,
            _ => {
                let (keyring, unusable) = Keyring::read(&secret.data);
                if !unusable.is_empty() {
                    warn!(keys = ?unusable, "Secret holds what cannot be used");
                }
                Read {
                    version: secret.version.clone(),
                    keyring: Arc::new(keyring),
                    spoilt: !unusable.is_empty(),
                }
            }
        };
        let found = (Arc::clone(&read.keyring), read.spoilt);
        self.read = Some(read);
        found
    }

    /// Writes the Secret as it is after `step`, and anew if something in it is `spoilt`.
    async fn take(
        &self,
        step: Step,
        spoilt: bool,
        secret: &Secret,
        now: SystemTime,
        lifetimes: &Lifetimes,
        report: &Report,
    ) -> Result<Progress, TickFailed> {
        if step == Step::Rest && !spoilt {
            return Ok(Progress::Settled);
        }
        let (mut keyring, _) = Keyring::read(&secret.data);
        keyring.take(step.clone(), now, lifetimes)?;
        self.cluster
            .write_secret(&secret.version, keyring.write())
            .await?;
        match step {
            Step::Rest => info!("Secret mended"),
            Step::Adopt(own) => info!(authorities = ?own, "Authorities adopted from caBundle"),
            Step::Publish(reason) => {
                report.ca_rotated(reason);
                info!(?reason, "Authority published");
            }
            Step::Activate => info!("Authority signs"),
            Step::Forget(gone) => info!(authorities = ?gone, "Authorities forgotten"),
        }
        Ok(Progress::Changed)
    }

    fn show_own(
        &mut self,
        signer: Option<&Ca>,
        now: SystemTime,
        serving: &Serving,
        report: &Report,
    ) -> Result<(), NoLeaf> {
        let (Mode::Own { names, lifetimes }, Some(signer)) = (&self.mode, signer) else {
            return Ok(());
        };
        let anchors = Bundle::from(signer.der().clone());
        let left = signer.facts().not_after.duration_since(now);
        let left = left.unwrap_or_default();
        let due = match &self.shown {
            Some(shown) if shown.anchors == anchors => now >= shown.renew_at,
            // Somebody put back an old Secret: its authority is about to be replaced.
            Some(shown) if now < shown.identity.not_after() => left >= lifetimes.leaf(),
            Some(_) | None => !left.is_zero(),
        };
        if due && self.may_show(&anchors, now) {
            let identity = leaf::issue(signer, names, now, lifetimes.leaf())?;
            report.certificate_ends(Kind::Ca, signer.facts().not_after);
            let renew_at = leaf::renew_at(now, identity.not_after());
            self.show(identity, anchors, renew_at, serving, report);
        }
        Ok(())
    }

    fn show_given(&mut self, given: Given, now: SystemTime, serving: &Serving, report: &Report) {
        let Given { identity, anchors } = given;
        let new = match &self.shown {
            Some(shown) => shown.identity != identity || shown.anchors != anchors,
            None => true,
        };
        if new && self.may_show(&anchors, now) {
            let renew_at = identity.not_after();
            self.show(identity, anchors, renew_at, serving, report);
        }
    }

    /// Returns true if a certificate of these anchors may be shown: what is shown is no better.
    fn may_show(&self, anchors: &Bundle, now: SystemTime) -> bool {
        let Some(shown) = &self.shown else {
            return true;
        };
        shown.anchors == *anchors
            || now >= shown.identity.not_after()
            || self
                .live
                .has_settled(anchors, &shown.anchors, self.activation_delay())
    }

    fn show(
        &mut self,
        identity: Identity,
        anchors: Bundle,
        renew_at: SystemTime,
        serving: &Serving,
        report: &Report,
    ) {
        report.certificate_reloaded(true);
        report.certificate_ends(Kind::Leaf, identity.not_after());
        info!(authorities = ?anchors, "Certificate replaced");
        serving.replace(identity.clone());
        self.shown = Some(Shown {
            identity,
            anchors,
            renew_at,
        });
    }

    /// Makes every `caBundle` what it should be.
    async fn trust(
        &self,
        found: &Webhooks,
        trust: &Trust,
        now: SystemTime,
        report: &Report,
    ) -> Result<Progress, CallFailed> {
        let right = |bundle| rotation::bundle(bundle, &trust.wanted, &trust.gone, now);
        let in_sync = found
            .bundles
            .iter()
            .all(|(_, bundle)| right(bundle).is_none());
        report.bundle_in_sync(in_sync);
        if in_sync {
            return Ok(Progress::Settled);
        }
        let bundles = found.bundles.iter().map(|(name, bundle)| {
            let right = right(bundle).unwrap_or_else(|| bundle.clone());
            (name.clone(), right)
        });
        let webhooks = Webhooks {
            version: found.version.clone(),
            bundles: bundles.collect(),
        };
        self.cluster.write_bundles(&webhooks).await?;
        info!(authorities = ?trust.wanted, "caBundle written");
        Ok(Progress::Changed)
    }

    /// Announces that the webhook is ready, once its certificate is trusted. That is for good: were
    /// all replicas unready because somebody spoilt a `caBundle`, that would help nobody.
    fn announce(&mut self, looked: bool, serving: &Serving) {
        if serving.is_ready() || !looked {
            return;
        }
        let delay = self.activation_delay();
        if let Some(shown) = &self.shown
            && self.live.has_most_likely_settled(&shown.anchors, delay)
        {
            info!("Ready");
            serving.announce();
        }
        if !self.live.bundles().is_empty() {
            self.no_webhooks_since = None;
            return;
        }
        let since = *self.no_webhooks_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= NO_WEBHOOKS {
            warn!("Ready without a webhook configuration, so nobody will call");
            serving.announce();
        }
    }

    /// For how long this process has found this retirement to be the last.
    fn retired_for(&mut self, at: Option<SystemTime>) -> Duration {
        let now = Instant::now();
        let found = match self.retirement {
            Some(retirement) if retirement.at == at => retirement.found,
            _ => now,
        };
        self.retirement = Some(Retirement { at, found });
        now.duration_since(found)
    }

    /// What clients must trust to trust what is shown, while that can be trusted at all.
    fn in_use(&self, now: SystemTime) -> Bundle {
        let shown = self.shown.as_ref();
        let valid = shown.filter(|shown| now < shown.identity.not_after());
        valid.map_or_else(Bundle::default, |shown| shown.anchors.clone())
    }

    fn activation_delay(&self) -> Duration {
        match &self.mode {
            Mode::Own { lifetimes, .. } => lifetimes.activation_delay(),
            Mode::Given { activation_delay } => *activation_delay,
        }
    }
}

fn tell(failed: &TickFailed, report: &Report) {
    if let TickFailed::Call(failed) = failed {
        report.call_failed(failed);
        if let CallFailed::Conflict { call } = failed {
            debug!(%call, "Another replica was faster");
            return;
        }
    }
    let failed: &dyn std::error::Error = failed;
    error!(error = failed, "Certificate not up to date");
}

/// The pause after this many restless ticks in a row: doubled each time, and between half and all of
/// that, so that replicas that met do not meet again.
fn pause(restless: u32) -> Duration {
    let pause = PAUSE.saturating_mul(1 << restless.min(12));
    let mut drawn = [0];
    // Without randomness there is no jitter, and no key either.
    let _ = ring::default_provider().secure_random.fill(&mut drawn);
    pause / 2 + pause * u32::from(drawn[0]) / 512
}
