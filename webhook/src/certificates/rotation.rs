//! The rotation of the CA: create and publish the next CA, wait until every API server trusts it, sign with it, and
//! distrust the old one two leaf lifetimes later. No leaf is served that an API server does not trust.
//!
//! Every replica decides by itself. Nothing happens twice, since each decision starts from what was read, and is
//! written only if that has not changed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use pki::bundle::{Bundle, Traits};
use pki::ca::Ca;
use pki::lifetimes::Lifetimes;
use strum::{IntoStaticStr, VariantNames};

use super::ca_secret::{CaSecret, MAX_STORED_CAS};
use super::cluster::ROTATE_ANNOTATION;
use super::propagation::ObservedBundles;

/// How many CAs of ours a caBundle gets at most, and how many may be trusted before a missing one is not replaced. All
/// have the same subject, so API servers try each of them, and Go gives up after 100 signatures.
/// <https://github.com/golang/go/blob/master/src/crypto/x509/verify.go>
pub(super) const MAX_CAS: usize = MAX_STORED_CAS / 2;

/// The inputs of every decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct RotationInputs<'a> {
    pub(super) ca_secret: &'a CaSecret,
    /// For how long this process has observed the current [`CaSecret::retired_at`], by its monotonic clock: a wall
    /// clock that jumps must not remove a CA whose leaf is in use.
    pub(super) retired_for: Duration,
    pub(super) observed: &'a ObservedBundles,
    /// The answer of [`Cluster::has_endpoint`](super::cluster::Cluster::has_endpoint), which is asked while no CA is
    /// active and this process has no certificate; true otherwise.
    pub(super) has_endpoint: bool,
    /// What API servers must trust to trust the certificate that this process serves.
    pub(super) in_use: &'a Bundle,
    /// The wall clock.
    pub(super) now: SystemTime,
    pub(super) lifetimes: &'a Lifetimes,
}

/// A change of the CA Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// No change.
    None,
    /// Add trusted CAs of ours that the Secret does not have to the retired: the Secret was lost, and their leaves may
    /// be in use. The installation is abandoned if API servers reach no replica, so that no certificate is in use.
    Adopt { cas: Bundle, is_abandoned: bool },
    /// Create a CA in the Secret. It is published before it signs.
    CreateNext(RotationReason),
    /// Sign with the published CA.
    ActivateNext,
    /// Distrust retired CAs whose leaves have expired, so that every replica removes them, whatever its clock says.
    DistrustRetired(Bundle),
    /// Remove these from the Secret: no API server trusts them any more.
    PruneDistrusted(Bundle),
}

/// No CA is created though one is missing, since so many are trusted already: the Secret is lost again and again. Their
/// leaves expire in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not creating another CA, since {0} are trusted already. Something keeps clearing the CA Secret, or writes CAs \
     into caBundle. To replace all of them, annotate the Secret with {ROTATE_ANNOTATION}"
)]
pub struct TooManyCas(usize);

/// Why a new CA is created, as logs and metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum RotationReason {
    /// There is none: the Secret is new, lost or corrupt.
    Missing,
    /// The active CA is due for rotation.
    Due,
    /// An operator requested it, since the keys have leaked.
    Requested,
}

/// Decides the next step.
///
/// # Errors
/// When it is to create a CA, and too many are trusted.
pub(super) fn next(inputs: &RotationInputs<'_>) -> Result<Step, TooManyCas> {
    let (ca_secret, in_use, now) = (inputs.ca_secret, inputs.in_use, inputs.now);
    let trusted = inputs.observed.union();
    let adoptable = inputs.adoptable();
    if !adoptable.is_empty() {
        return Ok(inputs.adopt(adoptable));
    }
    let is_ours = |_: &_, it: &Traits| it.is_issued_by_us && !it.is_expired(now);
    let count = trusted.filter(is_ours).len();
    // With `may_exceed`, one more than the limit is allowed once every replica has observed the last retirement.
    let create = |reason, may_exceed: bool| {
        if count < MAX_CAS || may_exceed && inputs.is_retirement_propagated() {
            Ok(Step::CreateNext(reason))
        } else {
            Err(TooManyCas(count))
        }
    };
    if ca_secret.is_rotation_requested() && !ca_secret.trust_bundle().is_empty() {
        return create(RotationReason::Requested, true);
    }
    let is_valid = |ca: &&Arc<Ca>| now < ca.info().not_after;
    if let Some(next) = ca_secret.next.as_ref().filter(is_valid) {
        let anchor = Bundle::from(next.der().clone());
        let delay = inputs.activation_delay();
        let is_propagated = inputs.observed.is_propagated(&anchor, in_use, delay);
        return Ok(if is_propagated {
            Step::ActivateNext
        } else {
            Step::None
        });
    }
    let Some(active) = ca_secret.active.as_ref().filter(is_valid) else {
        // Without a certificate to serve, waiting is worse than one more CA, while API servers can still try all.
        let is_needed = in_use.is_empty() && count < MAX_STORED_CAS;
        return create(RotationReason::Missing, is_needed || inputs.is_outlived());
    };
    // The next CA was lost.
    if ca_secret.distrusted.contains(active.der()) {
        return Ok(Step::CreateNext(RotationReason::Requested));
    }
    if now >= rotation_time(active) {
        return Ok(Step::CreateNext(RotationReason::Due));
    }
    let unused = inputs.unused();
    if !unused.is_empty() {
        return Ok(Step::DistrustRetired(unused));
    }
    let pruned = inputs.outlived(inputs.removed().without(&trusted));
    Ok(if pruned.is_empty() {
        Step::None
    } else {
        Step::PruneDistrusted(pruned)
    })
}

/// Applies a step to the CA Secret at `now`. A new CA is for leaves of these names.
///
/// # Errors
/// When the system has no randomness for a new key.
pub(super) fn apply(
    step: Step,
    ca_secret: &mut CaSecret,
    now: SystemTime,
    lifetimes: &Lifetimes,
    names: &[String],
) -> anyhow::Result<()> {
    match step {
        Step::None => {}
        Step::Adopt { cas, is_abandoned } => {
            ca_secret.is_abandoned = is_abandoned;
            ca_secret.retire(&cas, now);
        }
        Step::CreateNext(reason) => {
            ca_secret.is_abandoned &= reason == RotationReason::Missing;
            if reason == RotationReason::Requested {
                ca_secret.distrust(&ca_secret.known_cas(), now);
            }
            if let Some(requested) = &ca_secret.requested_rotation {
                ca_secret.started_rotation = Some(requested.clone());
            }
            let next = Ca::try_new_for(names, now, lifetimes.ca()).context("cannot create a CA")?;
            if let Some(old) = ca_secret.next.replace(Arc::new(next)) {
                ca_secret.retire(&Bundle::from(old.der().clone()), now);
            }
        }
        Step::ActivateNext => {
            if let Some(next) = ca_secret.next.take() {
                let old = ca_secret.active.replace(next);
                let old = old.map(|old| old.der().clone());
                ca_secret.retire(&old.into_iter().collect(), now);
            }
        }
        Step::DistrustRetired(cas) => ca_secret.distrust(&cas, now),
        Step::PruneDistrusted(pruned) => {
            ca_secret.distrusted = ca_secret.distrusted.without(&pruned);
        }
    }
    Ok(())
}

// === impl RotationInputs ===

impl RotationInputs<'_> {
    /// The trusted CAs of ours that the Secret does not have, and has room for.
    fn adoptable(&self) -> Bundle {
        let known = self.ca_secret.known_cas();
        let is_unknown = |der: &_, it: &Traits| {
            it.is_issued_by_us && !it.is_expired(self.now) && !known.contains(der)
        };
        let room = MAX_STORED_CAS.saturating_sub(known.len());
        self.observed.union().filter(is_unknown).first(room)
    }

    /// The retired CAs that are to be distrusted.
    fn unused(&self) -> Bundle {
        self.outlived(self.removable(&self.ca_secret.retired))
    }

    /// The distrusted CAs that are to be in no `caBundle`. A replica that does not reach the API server is no reason to
    /// trust them.
    pub(super) fn removed(&self) -> Bundle {
        self.removable(&self.ca_secret.inactive_distrusted())
    }

    /// Those of `cas` that this replica does not use, if another CA is active, and every replica has had time to
    /// observe that; else none. Without an active CA, its key was lost, so the last one that signed is among the
    /// others.
    fn removable(&self, cas: &Bundle) -> Bundle {
        if self.ca_secret.active.is_some() && self.is_retirement_propagated() {
            cas.without(self.in_use)
        } else {
            Bundle::default()
        }
    }

    /// Those of `cas` that have expired, or all if no CA was retired or distrusted for two leaf lifetimes: until then,
    /// a replica that can read neither the Secret nor the right time may serve their leaves, and add them to a
    /// `caBundle`.
    fn outlived(&self, cas: Bundle) -> Bundle {
        if self.is_outlived() {
            cas
        } else {
            cas.expired(self.now)
        }
    }

    /// How long a CA must be in every `caBundle` before it signs, and before a replica that serves its leaf is ready:
    /// no time in an abandoned installation, where no other replica serves a certificate that the delay would protect.
    /// One that read an older Secret may have become ready since, so an endpoint is asked for again before the CA
    /// signs.
    pub(super) fn activation_delay(&self) -> Duration {
        let is_alone = self.ca_secret.is_abandoned
            && (self.ca_secret.active.is_some() || !self.has_endpoint)
            && self.ca_secret.current().contains_all(self.in_use)
            && self
                .ca_secret
                .known_cas()
                .contains_all(&self.observed.union());
        if is_alone {
            Duration::ZERO
        } else {
            self.lifetimes.activation_delay()
        }
    }

    fn adopt(&self, cas: Bundle) -> Step {
        let is_lost = self.ca_secret.known_cas().is_empty() && self.in_use.is_empty();
        let is_ours = cas.contains_all(&self.observed.union());
        Step::Adopt {
            cas,
            is_abandoned: is_lost && is_ours && !self.has_endpoint,
        }
    }

    /// Returns true if the last retirement was two leaf lifetimes ago by the wall clock.
    fn is_outlived(&self) -> bool {
        // Another replica's clock may be ahead.
        let age = self.now.duration_since(self.ca_secret.retired_at);
        age.unwrap_or_default() >= self.lifetimes.leaf() * 2
    }

    /// Returns true if every replica has had time to observe the last retirement.
    fn is_retirement_propagated(&self) -> bool {
        self.retired_for >= self.lifetimes.activation_delay() * 3
    }
}

/// When a CA is due for rotation: when a third of its lifetime is left, plus or minus a fifteenth, so that releases
/// which were installed at once do not all rotate at once. Replicas agree, since the jitter is computed from the second
/// of its expiry.
pub(super) fn rotation_time(ca: &Ca) -> SystemTime {
    let info = ca.info();
    let validity = info.not_after.duration_since(info.not_before);
    // Half of the validity was before the CA was created.
    let lifetime = validity.unwrap_or_default() / 2;
    let end = info.not_after.duration_since(UNIX_EPOCH);
    let seconds = end.unwrap_or_default().as_secs();
    // Fibonacci hashing maps neighbors to values far apart.
    let hash = seconds.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let jitter = u32::from(hash.to_be_bytes()[0]);
    info.not_after - lifetime * 4 / 15 - lifetime * 2 / 15 * jitter / 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::testing::{DAY, Fixtures, MINUTE};
    use pki::clock::wall_clock;

    // Each letter in the tables is a CA: see `Fixtures`.

    fn describe(step: &Result<Step, TooManyCas>, fixtures: &Fixtures) -> String {
        let step = match step {
            Ok(step) => step,
            Err(TooManyCas(count)) => return format!("too many: {count}"),
        };
        match step {
            Step::None => "none".into(),
            Step::Adopt { cas, is_abandoned } => {
                let verb = if *is_abandoned { "abandoned" } else { "adopt" };
                format!("{verb} {}", fixtures.letters_of(cas))
            }
            Step::CreateNext(reason) => format!("create {reason:?}"),
            Step::ActivateNext => "activate".into(),
            Step::DistrustRetired(cas) => format!("distrust {}", fixtures.letters_of(cas)),
            Step::PruneDistrusted(cas) => format!("prune {}", fixtures.letters_of(cas)),
        }
    }

    #[test]
    fn next_step_follows_from_secret_and_bundles() {
        let fixtures = Fixtures::new();
        let long = DAY * 15;
        // Secret; first bundles, last bundles, minutes between; time since the last retirement; step.
        for (secret, first, then, wait, retired, wanted) in [
            // A new installation.
            ("- -", "", "", 0, None, "create Missing"),
            ("- -", "- -", "- -", 0, None, "create Missing"),
            ("- n", "- -", "- -", 9, None, "none"),
            // One caBundle has it, the other does not.
            ("- n", "- -", "n -", 9, None, "none"),
            ("- n", "- -", "n n", 0, None, "activate"),
            // The same beside a foreign CA, which may be in use.
            ("- n", "s s", "ns s", 9, None, "none"),
            ("- n", "s s", "ns sn", 1, None, "none"),
            ("- n", "s s", "ns sn", 2, None, "activate"),
            // What was there at the first observation may have been added just before.
            ("- n", "ns sn", "ns sn", 1, None, "none"),
            // Nothing to do, for most of a CA's lifetime.
            ("y -", "y y", "y y", 9, None, "none"),
            ("y -", "- -", "- -", 9, None, "none"),
            ("y -", "", "", 9, None, "none"),
            ("o -", "o o", "o o", 9, None, "create Due"),
            ("x -", "x x", "x x", 9, None, "create Missing"),
            // The next CA replaces the active one.
            ("o n", "o o", "o o", 9, None, "none"),
            ("o n", "o o", "on o", 9, None, "none"),
            ("o n", "o o", "on on", 1, None, "none"),
            ("o n", "o o", "on no", 2, None, "activate"),
            ("o n", "", "", 9, None, "none"),
            // The next CA expired before it signed.
            ("o x", "o o", "ox ox", 9, None, "create Due"),
            ("y x", "y y", "yx yx", 9, None, "none"),
            // A retired CA is distrusted when its leaves have expired, or it has.
            ("y - o", "yo yo", "yo yo", 9, Some(DAY), "none"),
            ("y - o", "yo yo", "yo yo", 9, Some(DAY * 13), "none"),
            ("y - o", "yo yo", "y yo", 9, Some(long), "distrust o"),
            ("y - ox", "yo yo", "yo yo", 9, Some(DAY), "distrust x"),
            ("y - o", "", "", 9, Some(long), "distrust o"),
            ("o n o", "on on", "on on", 1, Some(long), "none"),
            // The key of the active CA was lost, so the retired ones are in use.
            ("- - o", "o o", "o o", 9, Some(long), "create Missing"),
            ("- n o", "on on", "on on", 1, Some(long), "none"),
            ("- n o", "on on", "on on", 2, Some(long), "activate"),
            // The Secret was lost, or an old one was restored.
            ("- -", "o o", "o o", 0, None, "adopt o"),
            ("- -", "osx -", "osx -", 0, None, "adopt o"),
            ("- -", "on s", "on y", 0, None, "adopt noy"),
            ("o -", "y y", "yo yo", 9, None, "adopt y"),
            ("- n", "no no", "no no", 9, None, "adopt o"),
            // Distrusted CAs sign until the next one does, and are pruned last.
            ("y - - y", "y y", "y y", 9, Some(DAY), "create Requested"),
            ("y n - y", "y y", "yn yn", 1, Some(DAY), "none"),
            ("y n - y", "y y", "yn yn", 2, Some(DAY), "activate"),
            ("n - - y", "yn yn", "yn yn", 9, Some(DAY), "none"),
            ("n - - y", "yn yn", "n n", 9, Some(DAY), "none"),
            ("n - - y", "yn yn", "n n", 9, Some(long), "prune y"),
            ("n - - y", "yn yn", "yn yn", 9, Some(long), "none"),
            // CAs that are rotated more often than every four leaf lifetimes are pruned when they have expired.
            ("n - - xy", "yn yn", "n n", 9, Some(DAY), "prune x"),
        ] {
            let row = format!("{secret:?}, {first:?}, {then:?}, {wait} min, {retired:?}");
            let retired_at = fixtures.now - retired.unwrap_or_default();
            let ca_secret = fixtures.ca_secret(secret, retired_at);
            let observed = fixtures.observed_bundles(first, then, MINUTE * wait);
            let in_use = Bundle::default();
            let inputs = fixtures.inputs(&ca_secret, &observed, &in_use);
            assert_eq!(describe(&next(&inputs), &fixtures), wanted, "{row}");
        }
    }

    #[test]
    fn installation_is_abandoned_if_api_servers_reach_no_replica() {
        let fixtures = Fixtures::new();
        // Secret, caBundles, in use, whether the Service may have an endpoint, step.
        for (secret, bundles, in_use, has_endpoint, wanted) in [
            ("- -", "o o", "", false, "abandoned o"),
            ("- -", "o o", "", true, "adopt o"),
            // This process has a certificate, though it is not ready.
            ("- -", "o o", "o", false, "adopt o"),
            // A replica of the other mode may serve a certificate of a foreign CA, and writes no CA Secret.
            ("- -", "os os", "", false, "adopt o"),
            // Another replica has restored the Secret.
            ("- n", "o o", "", false, "adopt o"),
            // A new installation.
            ("- -", "- -", "", false, "create Missing"),
        ] {
            let ca_secret = fixtures.ca_secret(secret, fixtures.now);
            let observed = fixtures.observed_bundles(bundles, bundles, Duration::ZERO);
            let served = fixtures.bundle(in_use);
            let inputs = RotationInputs {
                has_endpoint,
                ..fixtures.inputs(&ca_secret, &observed, &served)
            };
            let step = describe(&next(&inputs), &fixtures);
            assert_eq!(
                step, wanted,
                "{secret:?}, {bundles:?}, {in_use:?}, {has_endpoint}"
            );
        }
    }

    #[test]
    fn first_ca_of_an_abandoned_installation_signs_at_once() {
        let fixtures = Fixtures::new();
        let step = |secret, bundles, in_use, is_abandoned, has_endpoint| {
            let ca_secret = fixtures.ca_secret(secret, fixtures.now);
            let ca_secret = CaSecret {
                is_abandoned,
                ..ca_secret
            };
            let observed = fixtures.observed_bundles("o o", bundles, Duration::ZERO);
            let served = fixtures.bundle(in_use);
            let inputs = RotationInputs {
                has_endpoint,
                ..fixtures.inputs(&ca_secret, &observed, &served)
            };
            describe(&next(&inputs), &fixtures)
        };
        assert_eq!(step("- n o", "on on", "", true, false), "activate");
        assert_eq!(
            step("- n o", "on on", "", true, true),
            "none",
            "another replica"
        );
        assert_eq!(
            step("- n o", "on o", "", true, false),
            "none",
            "not published"
        );
        assert_eq!(step("- n o", "on on", "", false, false), "none");
        assert_eq!(
            step("- n o", "on on", "o", true, false),
            "none",
            "it is served"
        );
        assert_eq!(
            step("- n o", "ons ons", "", true, false),
            "none",
            "another mode"
        );
        assert_eq!(step("- n o", "ony ony", "", true, false), "adopt y");
        let mut ca_secret = fixtures.ca_secret("y -", fixtures.now);
        let adopt = |letters, is_abandoned| Step::Adopt {
            cas: fixtures.bundle(letters),
            is_abandoned,
        };
        for (step, wanted) in [
            (adopt("o", true), true),
            (Step::CreateNext(RotationReason::Missing), true),
            (Step::ActivateNext, true),
            (Step::CreateNext(RotationReason::Due), false),
            (adopt("o", true), true),
            (adopt("x", false), false),
        ] {
            let lifetimes = Lifetimes::default();
            apply(step, &mut ca_secret, fixtures.now, &lifetimes, &[]).unwrap();
            assert_eq!(ca_secret.is_abandoned, wanted);
        }
    }

    #[test]
    fn ca_in_use_delays_activation_and_is_not_pruned() {
        let fixtures = Fixtures::new();
        for (secret, bundles, wait, in_use, wanted) in [
            // The caBundles have just lost everything, but leaves are still in use.
            ("- n", "n", 1, "", "activate"),
            ("- n", "n", 1, "y", "none"),
            ("- n", "n", 2, "y", "activate"),
            ("y - o", "y", 9, "", "distrust o"),
            ("y - o", "y", 9, "o", "none"),
        ] {
            let ca_secret = fixtures.ca_secret(secret, fixtures.now - DAY * 15);
            let observed = fixtures.observed_bundles("-", bundles, MINUTE * wait);
            let served = fixtures.bundle(in_use);
            let inputs = fixtures.inputs(&ca_secret, &observed, &served);
            let step = describe(&next(&inputs), &fixtures);
            assert_eq!(
                step, wanted,
                "{secret:?}, {bundles:?}, {wait} min, {in_use:?}"
            );
        }
    }

    #[test]
    fn requested_rotation_comes_first() {
        let fixtures = Fixtures::new();
        for (secret, requested, rotated, wanted) in [
            ("y -", None, None, "none"),
            ("y -", Some("1"), None, "create Requested"),
            ("y -", Some("1"), Some("1"), "none"),
            ("y -", Some("2"), Some("1"), "create Requested"),
            ("y -", None, Some("1"), "none"),
            ("y n", Some("1"), None, "create Requested"),
            ("- - y", Some("1"), None, "create Requested"),
            ("- -", Some("1"), None, "create Missing"),
        ] {
            let mut ca_secret = fixtures.ca_secret(secret, fixtures.now - DAY);
            ca_secret.requested_rotation = requested.map(str::to_owned);
            ca_secret.started_rotation = rotated.map(str::to_owned);
            let trusted = fixtures.letters_of(&ca_secret.trust_bundle());
            let observed = fixtures.observed_bundles(&trusted, &trusted, MINUTE);
            let in_use = Bundle::default();
            let inputs = fixtures.inputs(&ca_secret, &observed, &in_use);
            let step = describe(&next(&inputs), &fixtures);
            assert_eq!(step, wanted, "{secret:?}, {requested:?}, {rotated:?}");
        }
    }

    #[test]
    fn clock_set_back_distrusts_no_ca() {
        let fixtures = Fixtures::new();
        let ca_secret = fixtures.ca_secret("y - o", fixtures.now);
        for days in [0, 30, 365 * 5] {
            let observed = fixtures.observed_bundles("oy oy", "oy oy", MINUTE);
            let in_use = Bundle::default();
            let inputs = RotationInputs {
                now: fixtures.now - DAY * days,
                ..fixtures.inputs(&ca_secret, &observed, &in_use)
            };
            assert_eq!(describe(&next(&inputs), &fixtures), "none", "{days} days");
            assert!(inputs.removed().is_empty(), "{days} days");
        }
    }

    #[test]
    fn few_of_1700_forged_cas_are_adopted() {
        let fixtures = Fixtures::new();
        let one = || Ca::try_new(fixtures.now, DAY * 365).unwrap().der().clone();
        let forged: Bundle = (0..1700).map(|_| one()).collect();
        let mut observed = ObservedBundles::default();
        observed.observe(vec![forged.clone()], None, tokio::time::Instant::now());
        let mut ca_secret = fixtures.ca_secret("y -", fixtures.now);
        let decide = |ca_secret: &CaSecret| {
            let in_use = Bundle::default();
            next(&fixtures.inputs(ca_secret, &observed, &in_use))
        };
        let step = decide(&ca_secret).unwrap();
        let Step::Adopt { cas: adopted, .. } = &step else {
            panic!("{step:?}")
        };
        assert_eq!(adopted.len(), MAX_STORED_CAS - 1);
        let (now, lifetimes) = (fixtures.now, Lifetimes::default());
        apply(step, &mut ca_secret, now, &lifetimes, &[]).unwrap();
        assert_eq!(decide(&ca_secret), Ok(Step::None));
    }

    #[test]
    fn cas_are_limited_until_leaves_expire() {
        let fixtures = Fixtures::new();
        let one = || Ca::try_new(fixtures.now, DAY * 365).unwrap().der().clone();
        let many: Bundle = (0..MAX_CAS).map(|_| one()).collect();
        let fewer = {
            let first = many.iter().next().unwrap();
            many.without(&Bundle::from(first.clone()))
        };
        let ago = |days: u32| fixtures.now - DAY * days;
        let more = |count: usize| {
            many.clone()
                .union(&(MAX_CAS..count).map(|_| one()).collect())
        };
        let (most, too_many) = (more(MAX_STORED_CAS - 1), more(MAX_STORED_CAS));
        // Secret, trusted CAs, retired at, retirement observed for, in use, step.
        for (secret, trusted, retired_at, retired_for, in_use, wanted) in [
            ("- -", &fewer, ago(0), DAY, "n", "create Missing"),
            ("- -", &many, ago(0), DAY, "n", "too many: 32"),
            ("x -", &many, ago(0), DAY, "n", "too many: 32"),
            ("- -", &many, ago(13), DAY, "n", "too many: 32"),
            ("- -", &many, ago(14), DAY, "n", "create Missing"),
            ("- -", &many, ago(14), MINUTE, "n", "too many: 32"),
            // This process has no certificate to serve.
            ("- -", &many, ago(0), MINUTE, "", "too many: 32"),
            ("- -", &many, ago(0), DAY, "", "create Missing"),
            ("x -", &many, ago(0), DAY, "", "create Missing"),
            ("- -", &most, ago(0), DAY, "", "create Missing"),
            ("- -", &too_many, ago(0), DAY, "", "too many: 64"),
            // There is a next CA, or none is needed.
            ("- n", &many, ago(0), DAY, "", "none"),
            ("y -", &many, ago(0), DAY, "", "none"),
            ("o -", &many, ago(0), DAY, "", "create Due"),
        ] {
            let mut ca_secret = fixtures.ca_secret(secret, retired_at);
            ca_secret.retired = trusted.clone();
            let mut observed = ObservedBundles::default();
            observed.observe(vec![trusted.clone()], None, tokio::time::Instant::now());
            let served = fixtures.bundle(in_use);
            let inputs = RotationInputs {
                retired_for,
                ..fixtures.inputs(&ca_secret, &observed, &served)
            };
            let row = format!("{secret:?}, {retired_at:?}, {retired_for:?}, {in_use:?}");
            assert_eq!(describe(&next(&inputs), &fixtures), wanted, "{row}");
        }
    }

    #[test]
    fn steps_change_the_secret() {
        let fixtures = Fixtures::new();
        let adopt = |letters, is_abandoned| Step::Adopt {
            cas: fixtures.bundle(letters),
            is_abandoned,
        };
        let earlier = fixtures.now - DAY;
        for (secret, step, wanted) in [
            ("- -", Step::None, "- -"),
            ("- -", adopt("oy", false), "- - oy now"),
            ("y - o", Step::CreateNext(RotationReason::Due), "y new o"),
            (
                "y x o",
                Step::CreateNext(RotationReason::Missing),
                "y new ox now",
            ),
            ("y n o", Step::ActivateNext, "n - oy now"),
            ("- n o", Step::ActivateNext, "n - o now"),
            (
                "y - ox",
                Step::DistrustRetired(fixtures.bundle("x")),
                "y - o x now",
            ),
            (
                "y - - ox",
                Step::PruneDistrusted(fixtures.bundle("x")),
                "y -  o",
            ),
        ] {
            let mut ca_secret = fixtures.ca_secret(secret, earlier);
            let row = format!("{secret:?} and {}", describe(&Ok(step.clone()), &fixtures));
            apply(
                step,
                &mut ca_secret,
                fixtures.now,
                &Lifetimes::default(),
                &[],
            )
            .unwrap();
            let name =
                |ca: &Option<Arc<Ca>>| match ca.as_ref().map(|ca| Bundle::from(ca.der().clone())) {
                    Some(one) => match fixtures.letters_of(&one).as_str() {
                        "" => "new".to_owned(),
                        known => known.to_owned(),
                    },
                    None => "-".to_owned(),
                };
            let when = match ca_secret.retired_at {
                at if at == fixtures.now => " now",
                _ => "",
            };
            let (signer, next) = (name(&ca_secret.active), name(&ca_secret.next));
            let [retired, distrusted] =
                [&ca_secret.retired, &ca_secret.distrusted].map(|cas| fixtures.letters_of(cas));
            let words = format!("{signer} {next} {retired} {distrusted}");
            assert_eq!(words.trim_end().to_owned() + when, wanted, "{row}");
        }
    }

    #[test]
    fn retired_cas_are_distrusted_and_then_removed() {
        let fixtures = Fixtures::new();
        let ago = |days: u32| fixtures.now - DAY * days;
        let never = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX as u64);
        let (short, long) = (MINUTE * 5, MINUTE * 6);
        for (secret, in_use, retired_at, retired_for, unused, removed) in [
            ("y - o", "", ago(0), long, "", ""),
            ("y - o", "", ago(13), long, "", ""),
            ("y - o", "", ago(14), long, "o", ""),
            ("y - ox", "", ago(6), long, "x", ""),
            // The last one that signed is among the retired.
            ("- - o", "", ago(14), long, "", ""),
            // The clock may have jumped.
            ("y - o", "", ago(99), short, "", ""),
            ("y - ox", "", ago(6), short, "", ""),
            ("y - o", "", fixtures.now + DAY * 99, long, "", ""),
            ("y - o", "", never, long, "", ""),
            // Whatever the Secret holds, the served CA is in use.
            ("y - oxn", "ox", ago(99), long, "n", ""),
            // When every replica has observed it, and another CA signs.
            ("y - - o", "", ago(1), short, "", ""),
            ("y - - o", "", ago(1), long, "", "o"),
            ("y - - o", "o", ago(1), long, "", ""),
            ("y - - y", "", ago(1), long, "", ""),
            ("- n - o", "", ago(1), long, "", ""),
        ] {
            let ca_secret = fixtures.ca_secret(secret, retired_at);
            let observed = ObservedBundles::default();
            let served = fixtures.bundle(in_use);
            let inputs = RotationInputs {
                retired_for,
                ..fixtures.inputs(&ca_secret, &observed, &served)
            };
            let row = format!("{secret}, {in_use}, {retired_at:?}, {retired_for:?}");
            let letters = [inputs.unused(), inputs.removed()].map(|cas| fixtures.letters_of(&cas));
            assert_eq!(letters, [unused, removed], "{row}");
        }
    }

    #[test]
    fn ca_is_due_at_two_thirds_with_jitter() {
        let now = wall_clock();
        let lifetime = DAY * 300;
        let new_ca = |second| Ca::try_new(now + Duration::from_secs(second), lifetime).unwrap();
        let cas: Vec<_> = (0..20).map(new_ca).collect();
        let dues: Vec<_> = cas.iter().map(rotation_time).collect();
        for (ca, at) in cas.iter().zip(&dues) {
            let left = ca.info().not_after.duration_since(*at).unwrap();
            assert!(
                left >= lifetime * 4 / 15 && left <= lifetime * 6 / 15,
                "{left:?}"
            );
            let stored = Ca::from_pem(ca.pem().as_bytes(), ca.key_pem().as_bytes()).unwrap();
            assert_eq!(rotation_time(&stored), *at);
        }
        let (first, last) = (dues.iter().min().unwrap(), dues.iter().max().unwrap());
        let spread = last.duration_since(*first).unwrap();
        assert!(spread > lifetime / 10, "{spread:?}");
    }
}
