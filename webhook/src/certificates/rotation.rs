//! How authorities follow each other, so that at no instant a leaf is shown which an API server does
//! not trust: publish the next one, see it trusted, wait, sign with it, and much later forget the old.
//!
//! Every replica decides this by itself. Nothing is done twice, since every decision starts from what
//! was read and is written only if that has not changed.

use std::time::{Duration, SystemTime};

use super::bundle::Bundle;
use super::ca::Ca;
use super::keyring::Keyring;
use super::live::Live;

/// Longer is of no use, and dates must stay within what certificates can write.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    ca: Duration,
    leaf: Duration,
    activation_delay: Duration,
}

/// Lifetimes that do not fit each other.
#[derive(Debug, thiserror::Error)]
pub enum BadLifetimes {
    /// An authority that lives for too long.
    #[error("ca-lifetime: at most {}h", LONGEST.as_secs() / 3600)]
    TooLong,
    /// A leaf would still be in use when its authority ends.
    #[error("ca-lifetime is less than three times leaf-lifetime: raise the one or lower the other")]
    Leaf,
    /// An authority would be due before it is in use.
    #[error(
        "leaf-lifetime is less than three times ca-activation-delay: raise the one or lower the other"
    )]
    ActivationDelay,
    /// No time at all.
    #[error("ca-activation-delay: give at least 100ms")]
    TooShort,
}

/// All that the decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What the Secret holds.
    pub keyring: &'a Keyring,
    /// For how long this process has seen the last retirement stand in the Secret. Its own stopwatch:
    /// neither a clock that jumps nor one that is off makes others lose a leaf in use.
    pub retired_for: Duration,
    /// What API servers trust.
    pub live: &'a Live,
    /// The wall clock.
    pub now: SystemTime,
    /// The lifetimes.
    pub lifetimes: &'a Lifetimes,
}

/// What is to be done to the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Take those of our own line that are trusted and unknown to the Secret among the retired: the
    /// Secret was lost, and their leaves may be in use.
    Adopt(Bundle),
    /// Make a new authority, and publish it before it signs.
    Publish(Reason),
    /// Sign with the published one.
    Activate,
    /// Forget these: no API server trusts them any more.
    Forget(Bundle),
}

/// Why a new authority is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There is none: the Secret is new, lost or spoilt.
    Missing,
    /// The one that signs comes of age.
    Due,
}

/// Decides the next step.
#[must_use]
pub fn next(situation: &Situation<'_>) -> Step {
    let Situation {
        keyring,
        live,
        now,
        lifetimes,
        ..
    } = *situation;
    let known = keyring.all();
    let own: Bundle = live
        .bundles()
        .iter()
        .flat_map(|bundle| bundle.own(now).iter().cloned().collect::<Vec<_>>())
        .filter(|certificate| !known.contains(certificate))
        .collect();
    if !own.is_empty() {
        return Step::Adopt(own);
    }
    let usable = |ca: &Option<Ca>| ca.as_ref().is_some_and(|ca| now < ca.facts().not_after);
    if let Some(next) = keyring.next.as_ref().filter(|_| usable(&keyring.next)) {
        let anchor = Bundle::from(next.der().clone());
        return if live.has_settled(&anchor, lifetimes.activation_delay) {
            Step::Activate
        } else {
            Step::Rest
        };
    }
    match &keyring.signer {
        Some(signer) if usable(&keyring.signer) => {
            if now >= due(signer) {
                return Step::Publish(Reason::Due);
            }
        }
        _ => return Step::Publish(Reason::Missing),
    }
    let forgotten =
        overdue(situation).only(|der| !live.bundles().iter().any(|bundle| bundle.contains(der)));
    if forgotten.is_empty() {
        Step::Rest
    } else {
        Step::Forget(forgotten)
    }
}

/// What should stand in a `caBundle` instead of `found`; `None` if that is well.
///
/// It is only ever added to, but for certificates that have expired and those of `keyring` whose
/// leaves are out of use. Who else put a certificate there has a reason: a replica of another mode or
/// version, which serves on until it is replaced.
#[must_use]
pub fn bundle(found: &Bundle, wanted: &Bundle, gone: &Bundle, now: SystemTime) -> Option<Bundle> {
    let expired = found.expired(now);
    let kept = found.only(|der| !gone.contains(der) && !expired.contains(der));
    let right = kept.with(wanted);
    (right != *found).then_some(right)
}

/// The retired whose leaves are out of use: twice a leaf's lifetime after the last of them signed, as
/// a replica that sees neither the Secret nor the right time may show its leaf until that ends.
#[must_use]
pub fn overdue(situation: &Situation<'_>) -> Bundle {
    let Situation {
        keyring,
        retired_for,
        now,
        lifetimes,
        ..
    } = *situation;
    let out_of_use = match (&keyring.signer, keyring.retired_at) {
        (Some(_), Some(at)) => {
            now >= at + lifetimes.leaf * 2 && retired_for >= lifetimes.activation_delay
        }
        // Its key was lost, so the last that signed is among them.
        (None, _) | (_, None) => false,
    };
    if out_of_use {
        keyring.retired.clone()
    } else {
        keyring.retired.expired(now)
    }
}

/// When an authority is due to be replaced: when a third of its life is left, give or take a
/// fifteenth, so that not all releases of a fleet that was installed at once do it at once. The
/// replicas of one agree, as that is drawn from the certificate.
#[must_use]
pub fn due(ca: &Ca) -> SystemTime {
    let facts = ca.facts();
    let validity = facts.not_after.duration_since(facts.not_before);
    // Half of it was before it was made.
    let life = validity.unwrap_or_default() / 2;
    // The end of a signature is as good as random.
    let drawn = ca.der().last().copied().unwrap_or_default();
    facts.not_after - life * 4 / 15 - life * 2 / 15 * u32::from(drawn) / 255
}

impl Keyring {
    /// Takes a step at `now`.
    ///
    /// # Errors
    /// When the system gives no randomness for a new key.
    pub fn take(
        &mut self,
        step: Step,
        now: SystemTime,
        lifetimes: &Lifetimes,
    ) -> Result<(), rcgen::Error> {
        match step {
            Step::Rest => {}
            Step::Adopt(own) => self.retire(own.iter().cloned(), now),
            Step::Publish(_) => {
                let next = Ca::try_new(now, lifetimes.ca)?;
                if let Some(old) = self.next.replace(next) {
                    self.retire([old.der().clone()], now);
                }
            }
            Step::Activate => {
                if let Some(next) = self.next.take() {
                    let old = self.signer.replace(next);
                    self.retire(old.map(|old| old.der().clone()), now);
                }
            }
            Step::Forget(gone) => {
                self.retired = self.retired.only(|der| !gone.contains(der));
            }
        }
        Ok(())
    }
}

// === impl Lifetimes ===

impl Lifetimes {
    /// Takes lifetimes that leave time for one authority to follow the other.
    ///
    /// # Errors
    /// When they do not.
    pub fn try_new(
        ca: Duration,
        leaf: Duration,
        activation_delay: Duration,
    ) -> Result<Self, BadLifetimes> {
        if ca > LONGEST {
            return Err(BadLifetimes::TooLong);
        }
        if activation_delay < Duration::from_millis(100) {
            return Err(BadLifetimes::TooShort);
        }
        if ca < leaf.saturating_mul(3) {
            return Err(BadLifetimes::Leaf);
        }
        if leaf < activation_delay.saturating_mul(3) {
            return Err(BadLifetimes::ActivationDelay);
        }
        Ok(Self {
            ca,
            leaf,
            activation_delay,
        })
    }

    /// An authority's.
    #[must_use]
    pub fn ca(&self) -> Duration {
        self.ca
    }

    /// A leaf's.
    #[must_use]
    pub fn leaf(&self) -> Duration {
        self.leaf
    }

    /// How long an authority is trusted before it signs: longer than an API server is behind.
    #[must_use]
    pub fn activation_delay(&self) -> Duration {
        self.activation_delay
    }
}

impl Default for Lifetimes {
    /// A year, a week, two minutes.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            ca: 365 * DAY,
            leaf: 7 * DAY,
            activation_delay: Duration::from_secs(120),
        }
    }
}
