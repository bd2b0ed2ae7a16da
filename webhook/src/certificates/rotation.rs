//! The rotation of the CA: create and publish the next CA, wait until every API server trusts it, sign with it,
//! and much later prune the old one. No leaf is served that an API server does not trust.
//!
//! Every replica decides by itself. Nothing happens twice, since each decision starts from what was read, and is written
//! only if that has not changed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use pki::bundle::Bundle;
use pki::ca::Ca;
use pki::lifetimes::{Lifetimes, MAX_CA_LIFETIME};

use super::ca_secret::{CaSecret, MAX_STORED_CAS};
use super::cluster::ROTATE_ANNOTATION;
use super::propagation::ObservedBundles;

/// How many CAs of ours a caBundle gets at most, and how many may be trusted before no further one is created. All have the
/// same subject, so API servers try each of them, and Go gives up after 100 signatures.
/// <https://github.com/golang/go/blob/master/src/crypto/x509/verify.go>
pub(super) const MAX_CAS: usize = MAX_STORED_CAS / 2;

/// By how much the wall clock may have been set back.
const MAX_CLOCK_LAG: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// The inputs of every decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct RotationInputs<'a> {
    /// The content of the CA Secret.
    pub(super) ca_secret: &'a CaSecret,
    /// For how long this process has observed the current [`CaSecret::retired_at`], by its monotonic clock: a wall clock that
    /// jumps must not remove a CA whose leaf is in use.
    pub(super) retired_for: Duration,
    /// The caBundles.
    pub(super) observed: &'a ObservedBundles,
    /// What API servers must trust to trust the certificate that this process serves.
    pub(super) in_use: &'a Bundle,
    /// The wall clock.
    pub(super) now: SystemTime,
    /// The lifetimes.
    pub(super) lifetimes: &'a Lifetimes,
}

/// A change of the CA Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// No change.
    None,
    /// Add trusted CAs of ours that the Secret does not have to the retired: the Secret was lost, and their leaves may be in
    /// use.
    Adopt(Bundle),
    /// Date the last retirement now: undated, or dated in the future, the retired CAs would be trusted until they expire.
    RecordRetirementDate,
    /// Create a CA in the Secret. It is published before it signs.
    CreateNext(RotationReason),
    /// Sign with the published CA.
    ActivateNext,
    /// Remove these from the Secret: no API server trusts them any more.
    PruneRetired(Bundle),
}

/// No CA is created though one is missing, since so many are trusted already: the Secret is lost again and again. Their
/// leaves expire in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not creating another CA, since {0} are trusted already. Something keeps clearing the CA Secret, or writes CAs \
     into caBundle. To replace all of them, annotate the Secret with {ROTATE_ANNOTATION}"
)]
pub struct TooManyCas(usize);

/// Why a new CA is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RotationReason {
    /// There is none: the Secret is new, lost or corrupt.
    Missing,
    /// The active CA is due for rotation.
    Due,
    /// An operator requested it, since the keys have leaked.
    Requested,
    /// The active or the next CA outlives the lifetime of a new one: it was not created here, or the lifetime was lowered.
    Outlives,
}

// === impl RotationReason ===

impl RotationReason {
    /// Every reason.
    pub(super) const ALL: [Self; 4] = [Self::Missing, Self::Due, Self::Requested, Self::Outlives];

    /// The name in logs and metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Due => "due",
            Self::Requested => "requested",
            Self::Outlives => "outlives_lifetime",
        }
    }
}

/// Decides the next step.
///
/// # Errors
/// When it is to create a CA, and too many are trusted.
pub(super) fn next(inputs: &RotationInputs<'_>) -> Result<Step, TooManyCas> {
    let RotationInputs {
        ca_secret,
        observed,
        in_use,
        now,
        lifetimes,
        ..
    } = *inputs;
    let trusted = observed.union();
    let (adoptable, _) = unknown_cas(inputs);
    if !adoptable.is_empty() {
        return Ok(Step::Adopt(adoptable));
    }
    let inactive = ca_secret
        .retired
        .clone()
        .union(&ca_secret.inactive_distrusted());
    if !inactive.is_empty() && !is_retirement_dated(inputs) {
        return Ok(Step::RecordRetirementDate);
    }
    let count = trusted.issued_by_us().valid(now).iter().count();
    // With `may_exceed`, one more than the limit is allowed once every replica has observed the last retirement.
    let create = |reason, may_exceed: bool| match count >= MAX_CAS
        && !(may_exceed && is_retirement_propagated(inputs))
    {
        true => Err(TooManyCas(count)),
        false => Ok(Step::CreateNext(reason)),
    };
    if ca_secret.is_rotation_requested() && !ca_secret.trust_bundle().is_empty() {
        return create(RotationReason::Requested, true);
    }
    let is_valid = |ca: &&Arc<Ca>| now < ca.info().not_after;
    if let Some(next) = ca_secret.next.as_ref().filter(is_valid) {
        let anchor = Bundle::from(next.der().clone());
        return if let Some(reason) = immediate_replacement_reason(next, inputs) {
            Ok(Step::CreateNext(reason))
        } else if observed.is_propagated(&anchor, in_use, lifetimes.activation_delay()) {
            Ok(Step::ActivateNext)
        } else {
            Ok(Step::None)
        };
    }
    let Some(active) = ca_secret.active.as_ref().filter(is_valid) else {
        // Without a certificate to serve, waiting is worse than one more CA, while API servers can still try all.
        let is_needed = in_use.is_empty() && count < MAX_STORED_CAS;
        return create(
            RotationReason::Missing,
            is_needed || is_retired_for(inputs, 2),
        );
    };
    let due = (now >= rotation_time(active)).then_some(RotationReason::Due);
    if let Some(reason) = immediate_replacement_reason(active, inputs).or(due) {
        return Ok(Step::CreateNext(reason));
    }
    let leaked = match is_retired_for(inputs, 2) && is_retirement_propagated(inputs) {
        true => ca_secret.inactive_distrusted(),
        false => Bundle::default(),
    };
    let pruned = prunable_cas(inputs)
        .without(&ca_secret.distrusted)
        .union(&leaked)
        .without(&trusted);
    if pruned.is_empty() {
        Ok(Step::None)
    } else {
        Ok(Step::PruneRetired(pruned))
    }
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
        Step::Adopt(cas) => ca_secret.retire(&cas, now),
        Step::RecordRetirementDate => ca_secret.retired_at = Some(now),
        Step::CreateNext(reason) => {
            if reason == RotationReason::Requested {
                ca_secret.distrust(now);
            }
            if ca_secret.requested_rotation.is_some() {
                ca_secret
                    .started_rotation
                    .clone_from(&ca_secret.requested_rotation);
            }
            let next = Ca::try_new_for(names, now, lifetimes.ca()).context("cannot create a CA")?;
            if let Some(old) = ca_secret.next.replace(Arc::new(next)) {
                let old = Bundle::from(old.der().clone());
                if reason == RotationReason::Outlives {
                    // It never signed for us.
                    ca_secret.distrusted = ca_secret.distrusted.clone().union(&old);
                }
                ca_secret.retire(&old, now);
            }
        }
        Step::ActivateNext => {
            if let Some(next) = ca_secret.next.take() {
                let old = ca_secret.active.replace(next);
                let old = old.map(|old| old.der().clone());
                ca_secret.retire(&old.into_iter().collect(), now);
            }
        }
        Step::PruneRetired(pruned) => {
            ca_secret.retired = ca_secret.retired.without(&pruned);
            ca_secret.distrusted = ca_secret.distrusted.without(&pruned);
        }
    }
    Ok(())
}

/// Why a CA must be replaced even though it is not due.
pub(super) fn immediate_replacement_reason(
    ca: &Ca,
    inputs: &RotationInputs<'_>,
) -> Option<RotationReason> {
    if inputs.ca_secret.distrusted.contains(ca.der()) {
        return Some(RotationReason::Requested);
    }
    let latest = latest_not_after(inputs, inputs.lifetimes.ca());
    (latest < ca.info().not_after).then_some(RotationReason::Outlives)
}

/// The latest expiry of a CA with this lifetime that any replica may have created until now.
///
/// A clock that was set back would be too strict, so the API server's clock counts if it is known to be ahead; it is the same
/// for every replica. It is read where others can write any time, so it counts for [`MAX_CLOCK_LAG`] at most.
fn latest_not_after(inputs: &RotationInputs<'_>, lifetime: Duration) -> SystemTime {
    let now = inputs.now;
    let written = inputs.observed.written_at.unwrap_or(UNIX_EPOCH);
    now.max(written.min(now + MAX_CLOCK_LAG)) + lifetime + inputs.lifetimes.clock_skew()
}

/// The trusted CAs with our subject that the Secret does not have: first those that may be ours, then those that are not,
/// because of their validity or their number.
fn unknown_cas(inputs: &RotationInputs<'_>) -> (Bundle, Bundle) {
    let known = inputs.ca_secret.known_cas();
    let trusted = inputs.observed.union().issued_by_us();
    let unknown = trusted.valid(inputs.now).without(&known);
    let forged = unknown.outliving(latest_not_after(inputs, MAX_CA_LIFETIME));
    let room = MAX_STORED_CAS.saturating_sub(known.iter().count());
    let adoptable = unknown.without(&forged).first(room);
    let others = unknown.without(&adoptable);
    (adoptable, others)
}

/// The CAs that are no longer added to a caBundle: the retired once their leaves have expired, which is a leaf's lifetime
/// after the last retirement, and at once those that must not be trusted.
pub(super) fn unused_cas(inputs: &RotationInputs<'_>) -> Bundle {
    let next = inputs.ca_secret.next.as_ref();
    let next = next.filter(|next| immediate_replacement_reason(next, inputs).is_some());
    let rejected = next.map(|next| next.der().clone()).into_iter().collect();
    out_of_use_cas(inputs, 1)
        .union(&untrusted_cas(inputs))
        .union(&rejected)
}

/// The inactive CAs in the Secret that are distrusted, or that cannot have been created here.
fn untrusted_cas(inputs: &RotationInputs<'_>) -> Bundle {
    let forged = inputs
        .ca_secret
        .retired
        .outliving(latest_not_after(inputs, MAX_CA_LIFETIME));
    inputs.ca_secret.inactive_distrusted().union(&forged)
}

/// The CAs that are removed from every `caBundle`.
///
/// The retired are removed a leaf's lifetime after they became unused: a replica that can read neither the Secret nor the
/// right time may still serve such a leaf, and no replica whose clock is less far behind may add what others remove. In any
/// case every replica first gets the time to observe the retirement, whatever the wall clock says.
///
/// Those that are distrusted, or cannot have been created here, are removed as soon as every replica that reaches the API
/// server has had that time: a replica that does not is no reason to trust a leaked key.
pub(super) fn prunable_cas(inputs: &RotationInputs<'_>) -> Bundle {
    if !is_retirement_propagated(inputs) {
        return Bundle::default();
    }
    let (_, others) = unknown_cas(inputs);
    let early = match inputs.ca_secret.active {
        Some(_) => untrusted_cas(inputs).union(&others),
        None => Bundle::default(),
    };
    out_of_use_cas(inputs, 2).union(&early.without(inputs.in_use))
}

/// The retired CAs that have expired by the wall clock, and all of them if the last retirement was this many leaf lifetimes
/// ago. Never one that this process uses.
fn out_of_use_cas(inputs: &RotationInputs<'_>, leaf_lifetimes: u32) -> Bundle {
    let retired = &inputs.ca_secret.retired;
    // Without an active CA, its key was lost, so the last one that signed is among the retired.
    let out_of_use = if inputs.ca_secret.active.is_some() && is_retired_for(inputs, leaf_lifetimes)
    {
        retired.clone()
    } else {
        retired.expired(inputs.now)
    };
    out_of_use.without(inputs.in_use)
}

/// Returns true if the last retirement was this many leaf lifetimes ago by the wall clock.
fn is_retired_for(inputs: &RotationInputs<'_>, leaf_lifetimes: u32) -> bool {
    // A writer of the Secret may have set any time, also one in the future.
    let age = |at| inputs.now.duration_since(at).unwrap_or_default();
    let retired_at = inputs.ca_secret.retired_at;
    retired_at.is_some_and(|at| age(at) >= inputs.lifetimes.leaf() * leaf_lifetimes)
}

/// Returns true if the last retirement has a date that is not in the future.
fn is_retirement_dated(inputs: &RotationInputs<'_>) -> bool {
    let latest = latest_not_after(inputs, Duration::ZERO);
    let retired_at = inputs.ca_secret.retired_at;
    retired_at.is_some_and(|at| at <= latest)
}

/// Returns true if every replica has had time to observe the last retirement.
fn is_retirement_propagated(inputs: &RotationInputs<'_>) -> bool {
    inputs.retired_for >= inputs.lifetimes.activation_delay() * 3
}

/// When a CA is due for rotation: when a third of its lifetime is left, plus or minus a fifteenth, so that releases which
/// were installed at once do not all rotate at once. Replicas agree, since the jitter is computed from the second of its
/// expiry.
pub(super) fn rotation_time(ca: &Ca) -> SystemTime {
    let info = ca.info();
    let validity = info.not_after.duration_since(info.not_before);
    // Half of the validity was before the CA was created.
    let lifetime = validity.unwrap_or_default() / 2;
    let end = info.not_after.duration_since(UNIX_EPOCH);
    // Fibonacci hashing maps neighbors to values far apart.
    let hash = end
        .unwrap_or_default()
        .as_secs()
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let jitter = u32::from(hash.to_be_bytes()[0]);
    info.not_after - lifetime * 4 / 15 - lifetime * 2 / 15 * jitter / 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::testing::{DAY, Fixtures, MINUTE};
    use pki::clock::wall_clock;

    fn describe(step: &Result<Step, TooManyCas>, fixtures: &Fixtures) -> String {
        let step = match step {
            Ok(step) => step,
            Err(TooManyCas(count)) => return format!("too many: {count}"),
        };
        match step {
            Step::None => "none".into(),
            Step::Adopt(cas) => format!("adopt {}", fixtures.letters_of(cas)),
            Step::RecordRetirementDate => "date".into(),
            Step::CreateNext(reason) => format!("create {reason:?}"),
            Step::ActivateNext => "activate".into(),
            Step::PruneRetired(pruned) => format!("prune {}", fixtures.letters_of(pruned)),
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
            // A retired CA is pruned when its leaves have expired and no caBundle has it.
            ("y - o", "yo yo", "yo yo", 9, Some(DAY), "none"),
            ("y - o", "yo yo", "yo yo", 9, None, "date"),
            ("y - o", "yo yo", "y y", 9, Some(DAY * 13), "none"),
            ("y - o", "yo yo", "y yo", 9, Some(long), "none"),
            ("y - o", "yo yo", "y y", 9, Some(long), "prune o"),
            ("y - ox", "yo yo", "yo yo", 9, Some(DAY), "prune x"),
            ("y - o", "", "", 9, Some(long), "prune o"),
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
            // A CA that outlives the lifetime is replaced, and does not start to sign.
            ("w -", "w w", "w w", 9, None, "none"),
            ("m -", "m m", "m m", 9, None, "create Outlives"),
            ("h -", "h h", "h h", 9, None, "create Outlives"),
            ("y m", "ym ym", "ym ym", 9, None, "create Outlives"),
            ("y h", "y y", "y y", 9, None, "create Outlives"),
            ("- h", "- -", "- -", 9, None, "create Outlives"),
            ("m n", "m m", "mn mn", 2, None, "activate"),
            // A release with a longer lifetime may have created it.
            ("y -", "ym ym", "ym ym", 9, None, "adopt m"),
            ("y -", "yh yh", "yh yh", 9, None, "none"),
            ("- -", "h h", "h h", 9, None, "create Missing"),
            ("y - h", "yh yh", "yh yh", 9, Some(DAY), "none"),
            ("y - h", "yh yh", "y y", 9, Some(DAY), "prune h"),
            // Distrusted CAs sign until the next one does, and are pruned last.
            ("y - - y", "y y", "y y", 9, Some(DAY), "create Requested"),
            ("y n - y", "y y", "yn yn", 1, Some(DAY), "none"),
            ("y n - y", "y y", "yn yn", 2, Some(DAY), "activate"),
            ("n - - y", "yn yn", "yn yn", 9, Some(DAY), "none"),
            ("n - - y", "yn yn", "n n", 9, Some(DAY), "none"),
            ("n - - y", "yn yn", "n n", 9, Some(long), "prune y"),
            ("n - - y", "yn yn", "yn yn", 9, Some(long), "none"),
        ] {
            let row = format!("{secret:?}, {first:?}, {then:?}, {wait} min, {retired:?}");
            let inputs = RotationInputs {
                ca_secret: &fixtures.ca_secret(secret, retired.map(|ago| fixtures.now - ago)),
                retired_for: DAY,
                observed: &fixtures.observed_bundles(first, then, MINUTE * wait),
                in_use: &Bundle::default(),
                now: fixtures.now,
                lifetimes: &Lifetimes::default(),
            };
            assert_eq!(describe(&next(&inputs), &fixtures), wanted, "{row}");
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
            ("y - o", "y", 9, "", "prune o"),
            ("y - o", "y", 9, "o", "none"),
        ] {
            let inputs = RotationInputs {
                ca_secret: &fixtures.ca_secret(secret, Some(fixtures.now - DAY * 15)),
                retired_for: DAY,
                observed: &fixtures.observed_bundles("-", bundles, MINUTE * wait),
                in_use: &fixtures.bundle(in_use),
                now: fixtures.now,
                lifetimes: &Lifetimes::default(),
            };
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
            let mut ca_secret = fixtures.ca_secret(secret, Some(fixtures.now - DAY));
            ca_secret.requested_rotation = requested.map(str::to_owned);
            ca_secret.started_rotation = rotated.map(str::to_owned);
            let trusted = fixtures.letters_of(&ca_secret.trust_bundle());
            let inputs = RotationInputs {
                ca_secret: &ca_secret,
                retired_for: DAY,
                observed: &fixtures.observed_bundles(&trusted, &trusted, MINUTE),
                in_use: &Bundle::default(),
                now: fixtures.now,
                lifetimes: &Lifetimes::default(),
            };
            let step = describe(&next(&inputs), &fixtures);
            assert_eq!(step, wanted, "{secret:?}, {requested:?}, {rotated:?}");
        }
    }

    #[test]
    fn clock_set_back_distrusts_no_ca() {
        let fixtures = Fixtures::new();
        let (ca_secret, known) = (fixtures.ca_secret("y - o", None), ["oy oy", "oy oy"]);
        for (days, wanted) in [(0, "date"), (30, "date"), (365 * 5, "date")] {
            let inputs = RotationInputs {
                ca_secret: &ca_secret,
                retired_for: DAY,
                observed: &fixtures.observed_bundles(known[0], known[1], MINUTE),
                in_use: &Bundle::default(),
                now: fixtures.now - DAY * days,
                lifetimes: &Lifetimes::default(),
            };
            assert_eq!(describe(&next(&inputs), &fixtures), wanted, "{days} days");
            assert!(prunable_cas(&inputs).is_empty(), "{days} days");
        }
    }

    #[test]
    fn future_write_time_excuses_no_ca() {
        let fixtures = Fixtures::new();
        for (secret, days, wanted) in [
            ("h -", 0, "create Outlives"),
            ("h -", 365 * 6_000, "create Outlives"),
            ("y h", 365 * 6_000, "create Outlives"),
            ("y -", 365 * 6_000, "none"),
        ] {
            let trusted = fixtures.letters_of(&fixtures.ca_secret(secret, None).trust_bundle());
            let mut observed = ObservedBundles::default();
            let dated = Some(fixtures.now + DAY * days);
            let bundles = vec![fixtures.bundle(&trusted)];
            observed.observe(bundles, dated, tokio::time::Instant::now());
            let inputs = RotationInputs {
                ca_secret: &fixtures.ca_secret(secret, None),
                retired_for: DAY,
                observed: &observed,
                in_use: &Bundle::default(),
                now: fixtures.now,
                lifetimes: &Lifetimes::default(),
            };
            let step = describe(&next(&inputs), &fixtures);
            assert_eq!(step, wanted, "{secret:?}, {days} days");
        }
    }

    #[test]
    fn few_of_1700_forged_cas_are_adopted() {
        let fixtures = Fixtures::new();
        let one = || Ca::try_new(fixtures.now, DAY * 365).unwrap().der().clone();
        let forged: Bundle = (0..1700).map(|_| one()).collect();
        let mut observed = ObservedBundles::default();
        observed.observe(vec![forged.clone()], None, tokio::time::Instant::now());
        let mut ca_secret = fixtures.ca_secret("y -", None);
        let decide = |ca_secret: &CaSecret| {
            let inputs = RotationInputs {
                ca_secret,
                retired_for: DAY,
                observed: &observed,
                in_use: &Bundle::default(),
                now: fixtures.now,
                lifetimes: &Lifetimes::default(),
            };
            (next(&inputs), prunable_cas(&inputs))
        };
        let (step, gone) = decide(&ca_secret);
        let Ok(Step::Adopt(adopted)) = &step else {
            panic!("{step:?}")
        };
        assert_eq!(adopted.iter().count(), MAX_STORED_CAS - 1);
        assert_eq!(gone.iter().count(), 1700 - (MAX_STORED_CAS - 1));
        apply(
            step.unwrap(),
            &mut ca_secret,
            fixtures.now,
            &Lifetimes::default(),
            &[],
        )
        .unwrap();
        let (step, gone) = decide(&ca_secret);
        assert_eq!(
            (step, gone.iter().count()),
            (Ok(Step::None), 1700 - (MAX_STORED_CAS - 1))
        );
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
        let ago = |days: u32| Some(fixtures.now - DAY * days);
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
            let inputs = RotationInputs {
                ca_secret: &ca_secret,
                retired_for,
                observed: &observed,
                in_use: &fixtures.bundle(in_use),
                now: fixtures.now,
                lifetimes: &Lifetimes::default(),
            };
            let row = format!("{secret:?}, {retired_at:?}, {retired_for:?}, {in_use:?}");
            assert_eq!(describe(&next(&inputs), &fixtures), wanted, "{row}");
        }
    }

    #[test]
    fn steps_change_the_secret() {
        let fixtures = Fixtures::new();
        let earlier = fixtures.now - DAY;
        for (secret, step, wanted) in [
            ("- -", Step::None, "- - "),
            ("- -", Step::Adopt(fixtures.bundle("oy")), "- - oy now"),
            ("y - o", Step::CreateNext(RotationReason::Due), "y new o"),
            (
                "y x o",
                Step::CreateNext(RotationReason::Missing),
                "y new ox now",
            ),
            ("y n o", Step::ActivateNext, "n - oy now"),
            ("- n o", Step::ActivateNext, "n - o now"),
            ("y - ox", Step::PruneRetired(fixtures.bundle("x")), "y - o"),
        ] {
            let mut ca_secret = fixtures.ca_secret(secret, Some(earlier));
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
                Some(at) if at == fixtures.now => " now",
                _ => "",
            };
            let (signer, next) = (name(&ca_secret.active), name(&ca_secret.next));
            let retired = fixtures.letters_of(&ca_secret.retired);
            assert_eq!(format!("{signer} {next} {retired}{when}"), wanted, "{row}");
        }
    }

    #[test]
    fn retired_cas_are_unused_then_pruned() {
        let fixtures = Fixtures::new();
        let ago = |days: u32| Some(fixtures.now - DAY * days);
        let never = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX as u64));
        let (short, long) = (MINUTE * 5, MINUTE * 6);
        for (secret, in_use, retired_at, retired_for, unused, prunable) in [
            ("y - o", "", None, long, "", ""),
            ("y - o", "", ago(6), long, "", ""),
            ("y - o", "", ago(7), long, "o", ""),
            ("y - o", "", ago(13), long, "o", ""),
            ("y - o", "", ago(14), long, "o", "o"),
            ("y - ox", "", ago(6), long, "x", "x"),
            ("- - o", "", ago(14), long, "", ""),
            // Unused at once, and prunable when every replica has observed it.
            ("y - h", "", ago(1), short, "h", ""),
            ("y - h", "", ago(1), long, "h", "h"),
            ("y - m", "", ago(1), long, "", ""),
            ("y - - o", "", ago(1), short, "o", ""),
            ("y - - o", "", ago(1), long, "o", "o"),
            ("y - - o", "o", ago(1), long, "o", ""),
            ("y - - y", "", ago(1), long, "", ""),
            ("- n - o", "", ago(1), long, "o", ""),
            ("y h", "", ago(1), long, "h", ""),
            // The clock may have jumped.
            ("y - o", "", ago(99), short, "o", ""),
            ("y - ox", "", ago(6), short, "x", ""),
            ("y - o", "", Some(fixtures.now + DAY * 99), long, "", ""),
            ("y - o", "", never, long, "", ""),
            // Whatever the Secret holds, the served CA is in use.
            ("y - oxn", "ox", ago(99), long, "n", "n"),
        ] {
            let inputs = RotationInputs {
                ca_secret: &fixtures.ca_secret(secret, retired_at),
                retired_for,
                observed: &ObservedBundles::default(),
                in_use: &fixtures.bundle(in_use),
                now: fixtures.now,
                lifetimes: &Lifetimes::default(),
            };
            let row = format!("{secret}, {in_use}, {retired_at:?}, {retired_for:?}");
            assert_eq!(fixtures.letters_of(&unused_cas(&inputs)), unused, "{row}");
            assert_eq!(
                fixtures.letters_of(&prunable_cas(&inputs)),
                prunable,
                "{row}"
            );
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
