//! How authorities follow each other, so that at no instant a leaf is shown which an API server does
//! not trust: publish the next one, see it trusted, wait, sign with it, and much later forget the old.
//!
//! Every replica decides this by itself. Nothing is done twice, since every decision starts from what
//! was read and is written only if that has not changed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ca_secret::CaSecret;
use super::lifetimes::{Lifetimes, MAX_CA_LIFETIME};
use super::pki::bundle::Bundle;
use super::pki::ca::Ca;
use super::propagation::ObservedBundles;

/// So many of our own are asked for at once, and may be trusted for want of one that signs. Clients try
/// each of them, since they have one name, and Go's give up after 100 signatures.
/// <https://github.com/golang/go/blob/master/src/crypto/x509/verify.go>
pub(super) const MAX_CAS: usize = 32;

/// So many are adopted into the Secret, which may hold 1 MiB. More are not of our making, which ends at
/// [`MOST`] and a few.
pub(super) const MAX_STORED_CAS: usize = 2 * MAX_CAS;

/// A clock is thought to be set back by no more than this.
const MAX_CLOCK_LAG: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// All that the decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct RotationInputs<'a> {
    /// What the Secret holds.
    pub ca_secret: &'a CaSecret,
    /// For how long this process has found [`Keyring::retired_at`] to be what it is now, by its own
    /// stopwatch: a wall clock that jumps, or is off, does not make others lose a leaf in use.
    pub retired_for: Duration,
    /// What API servers trust.
    pub observed: &'a ObservedBundles,
    /// What clients must trust to trust what this process shows.
    pub in_use: &'a Bundle,
    /// The wall clock.
    pub now: SystemTime,
    /// The lifetimes.
    pub lifetimes: &'a Lifetimes,
}

/// What is to be done to the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    None,
    /// Take those of our own line that are trusted and unknown to the Secret among the retired: the
    /// Secret was lost, and their leaves may be in use.
    AdoptOrphans(Bundle),
    /// Date the last retirement from now: without a date, or with one to come, the retired would be
    /// trusted until they expire.
    DateRetirement,
    /// Make a new authority, and publish it before it signs.
    PublishNext(RotationReason),
    /// Make none, though there is none: so many are trusted that were made for the same want, as
    /// somebody empties the Secret again and again. Their leaves are out of use in time.
    TooManyCas(usize),
    /// Sign with the published one.
    ActivateNext,
    /// Forget these: no API server trusts them any more.
    PruneRetired(Bundle),
}

/// Why a new authority is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RotationReason {
    /// There is none: the Secret is new, lost or spoilt.
    Missing,
    /// The one that signs comes of age.
    Due,
    /// An operator requests it, as the keys have leaked.
    Requested,
    /// The one that signs, or is to, outlives the lifetime that a new one would have: it is not of our
    /// making, or the lifetime was lowered.
    Outlives,
}

// === impl RotationReason ===

impl RotationReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Missing, Self::Due, Self::Requested, Self::Outlives];
}

/// Decides the next step.
#[must_use]
pub fn next(situation: &RotationInputs<'_>) -> Step {
    let RotationInputs {
        ca_secret: keyring,
        observed: live,
        in_use,
        now,
        lifetimes,
        ..
    } = *situation;
    let trusted = live.union();
    let own = trusted.issued_by_us().valid(now);
    let (adoptable, _) = unknown_cas(situation);
    if !adoptable.is_empty() {
        return Step::AdoptOrphans(adoptable);
    }
    let left = keyring
        .retired
        .clone()
        .union(&keyring.inactive_distrusted());
    if !left.is_empty() && !is_retirement_dated(situation) {
        return Step::DateRetirement;
    }
    let many = own.iter().count();
    let is_crowded =
        |is_over: bool| many >= MAX_CAS && !(is_over && is_retirement_propagated(situation));
    if keyring.is_rotation_requested() && !keyring.trust_bundle().is_empty() {
        return match is_crowded(true) {
            true => Step::TooManyCas(many),
            false => Step::PublishNext(RotationReason::Requested),
        };
    }
    let usable = |ca: &&Arc<Ca>| now < ca.info().not_after;
    if let Some(next) = keyring.next.as_ref().filter(usable) {
        let anchor = Bundle::from(next.der().clone());
        return if let Some(reason) = immediate_replacement_reason(next, situation) {
            Step::PublishNext(reason)
        } else if live.is_propagated(&anchor, in_use, lifetimes.activation_delay()) {
            Step::ActivateNext
        } else {
            Step::None
        };
    }
    match keyring.active.as_ref().filter(usable) {
        None => {
            // Without a leaf to show, it is worse to wait than to have one more, while API servers can
            // still try all of them.
            let is_needed = in_use.is_empty() && many < MAX_STORED_CAS;
            return match is_crowded(is_needed || is_retired_for(situation, 2)) {
                true => Step::TooManyCas(many),
                false => Step::PublishNext(RotationReason::Missing),
            };
        }
        Some(signer) => {
            let due = (now >= renewal_time(signer)).then_some(RotationReason::Due);
            if let Some(reason) = immediate_replacement_reason(signer, situation).or(due) {
                return Step::PublishNext(reason);
            }
        }
    }
    let leaked = match is_retired_for(situation, 2) && is_retirement_propagated(situation) {
        true => keyring.inactive_distrusted(),
        false => Bundle::default(),
    };
    let forgotten = prunable_cas(situation)
        .filter(|der| !keyring.distrusted.contains(der))
        .union(&leaked)
        .filter(|der| !trusted.contains(der));
    if forgotten.is_empty() {
        Step::None
    } else {
        Step::PruneRetired(forgotten)
    }
}

/// Why a CA is to be replaced, however long it still lives.
pub(super) fn immediate_replacement_reason(
    ca: &Ca,
    situation: &RotationInputs<'_>,
) -> Option<RotationReason> {
    let RotationInputs {
        ca_secret: keyring,
        lifetimes,
        ..
    } = situation;
    if keyring.distrusted.contains(ca.der()) {
        return Some(RotationReason::Requested);
    }
    let end = latest_not_after(situation, lifetimes.ca());
    (end < ca.info().not_after).then_some(RotationReason::Outlives)
}

/// When a CA of this lifetime ends at the latest, whoever of us made it until now.
///
/// A clock that was set back would judge too strictly, so the API server's counts where it is known to be
/// further: every replica in that cluster is judged by it. It is read where others can write any time, so
/// it counts for a month at most.
fn latest_not_after(situation: &RotationInputs<'_>, lifetime: Duration) -> SystemTime {
    let now = situation.now;
    let written = situation.observed.written_at().unwrap_or(UNIX_EPOCH);
    now.max(written.min(now + MAX_CLOCK_LAG)) + lifetime + situation.lifetimes.clock_skew()
}

/// Those of our own line that are trusted and unknown to the Secret: which of them may be ours, and which
/// are not, for their dates or their number.
fn unknown_cas(situation: &RotationInputs<'_>) -> (Bundle, Bundle) {
    let RotationInputs {
        ca_secret: keyring,
        observed: live,
        now,
        ..
    } = *situation;
    let known = keyring.known_cas();
    let unknown = live
        .union()
        .issued_by_us()
        .valid(now)
        .filter(|der| !known.contains(der));
    let forged = unknown.outliving(latest_not_after(situation, MAX_CA_LIFETIME));
    let room = MAX_STORED_CAS.saturating_sub(known.iter().count());
    let adoptable = unknown.filter(|der| !forged.contains(der)).first(room);
    let others = unknown.filter(|der| !adoptable.contains(der));
    (adoptable, others)
}

/// Those that are not to be asked for: a leaf's lifetime after the last of the retired signed, every replica
/// that knows that shows none of their leaves. And those that must not be trusted, at once.
#[must_use]
pub fn unused_cas(situation: &RotationInputs<'_>) -> Bundle {
    let RotationInputs {
        ca_secret: keyring, ..
    } = *situation;
    let next = keyring.next.as_ref();
    let next = next.filter(|next| immediate_replacement_reason(next, situation).is_some());
    let unsigned = next.map(|next| next.der().clone()).into_iter().collect();
    out_of_use_cas(situation, 1)
        .union(&untrusted_cas(situation))
        .union(&unsigned)
}

/// Those in the Secret that sign no more, and that are distrusted or not of our making.
fn untrusted_cas(situation: &RotationInputs<'_>) -> Bundle {
    let RotationInputs {
        ca_secret: keyring, ..
    } = *situation;
    let forged = keyring
        .retired
        .outliving(latest_not_after(situation, MAX_CA_LIFETIME));
    keyring.inactive_distrusted().union(&forged)
}

/// Those that are to be removed from every `caBundle`.
///
/// The retired go a leaf's lifetime later again. Until then a replica that sees neither the Secret nor the
/// right time may show its leaf, and no replica whose clock is less far behind asks for what others
/// remove. And not before every replica has had time to learn that they are retired, whatever the time is
/// thought to be.
///
/// Those that are distrusted, or cannot be of our making, go as soon as every replica that reaches the API
/// server has had that time: one that does not is no reason to trust a leaked key.
#[must_use]
pub fn prunable_cas(situation: &RotationInputs<'_>) -> Bundle {
    let RotationInputs {
        ca_secret: keyring,
        in_use,
        ..
    } = *situation;
    if !is_retirement_propagated(situation) {
        return Bundle::default();
    }
    let (_, others) = unknown_cas(situation);
    let early = match keyring.active {
        Some(_) => untrusted_cas(situation).union(&others),
        None => Bundle::default(),
    };
    let early = early.filter(|der| !in_use.contains(der));
    out_of_use_cas(situation, 2).union(&early)
}

/// The retired that have expired by the wall clock, and all of them if that was so many lifetimes of a
/// leaf ago. Never what this process shows.
fn out_of_use_cas(situation: &RotationInputs<'_>, leaves: u32) -> Bundle {
    let RotationInputs {
        ca_secret: keyring,
        in_use,
        now,
        ..
    } = *situation;
    // Without a signer, its key was lost, so the last that signed is among them.
    let retired = if keyring.active.is_some() && is_retired_for(situation, leaves) {
        keyring.retired.clone()
    } else {
        keyring.retired.expired(now)
    };
    retired.filter(|der| !in_use.contains(der))
}

/// Returns true if by the wall clock the last retirement was so many lifetimes of a leaf ago.
fn is_retired_for(situation: &RotationInputs<'_>, leaves: u32) -> bool {
    let RotationInputs {
        ca_secret: keyring,
        now,
        lifetimes,
        ..
    } = *situation;
    // Whoever wrote it may have written any time.
    let ago = |at| now.duration_since(at).unwrap_or_default();
    let retired_at = keyring.retired_at;
    retired_at.is_some_and(|at| ago(at) >= lifetimes.leaf() * leaves)
}

/// Returns true if the last retirement has a date by which the retired can be removed.
fn is_retirement_dated(situation: &RotationInputs<'_>) -> bool {
    let latest = latest_not_after(situation, Duration::ZERO);
    let retired_at = situation.ca_secret.retired_at;
    retired_at.is_some_and(|at| at <= latest)
}

/// Returns true if every replica has had time to learn of the last retirement.
fn is_retirement_propagated(situation: &RotationInputs<'_>) -> bool {
    situation.retired_for >= situation.lifetimes.activation_delay() * 3
}

/// When an authority is due to be replaced: when a third of its life is left, give or take a
/// fifteenth, so that not all releases of a fleet that was installed at once do it at once. The
/// replicas of one agree, as that is drawn from the certificate: from the second at which it ends.
#[must_use]
pub fn renewal_time(ca: &Ca) -> SystemTime {
    let facts = ca.info();
    let validity = facts.not_after.duration_since(facts.not_before);
    // Half of it was before it was made.
    let life = validity.unwrap_or_default() / 2;
    let end = facts.not_after.duration_since(UNIX_EPOCH);
    // Fibonacci hashing: neighbours come far apart.
    let hash = end
        .unwrap_or_default()
        .as_secs()
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let drawn = u32::from(hash.to_be_bytes()[0]);
    facts.not_after - life * 4 / 15 - life * 2 / 15 * drawn / 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::testing::{DAY, Fixtures, MINUTE};
    use crate::clock::wall_clock;

    fn describe(step: &Step, cast: &Fixtures) -> String {
        match step {
            Step::None => "rest".into(),
            Step::AdoptOrphans(own) => format!("adopt {}", cast.letters_of(own)),
            Step::DateRetirement => "date".into(),
            Step::PublishNext(reason) => format!("publish {reason:?}"),
            Step::TooManyCas(many) => format!("crowd of {many}"),
            Step::ActivateNext => "activate".into(),
            Step::PruneRetired(gone) => format!("forget {}", cast.letters_of(gone)),
        }
    }

    #[test]
    fn the_next_step_follows_from_the_secret_and_the_bundles() {
        let cast = Fixtures::new();
        let long = DAY * 15;
        // Secret, first look, last look, time between, since the last retirement, step.
        for (secret, first, then, wait, retired, wanted) in [
            // Nothing yet.
            ("- -", "", "", 0, None, "publish Missing"),
            ("- -", "- -", "- -", 0, None, "publish Missing"),
            ("- n", "- -", "- -", 9, None, "rest"),
            // Half of the webhooks is not all of them.
            ("- n", "- -", "n -", 9, None, "rest"),
            ("- n", "- -", "n n", 0, None, "activate"),
            // The same beside somebody else's certificate, which may be in use.
            ("- n", "s s", "ns s", 9, None, "rest"),
            ("- n", "s s", "ns sn", 1, None, "rest"),
            ("- n", "s s", "ns sn", 2, None, "activate"),
            // What was there before this process was may have come just then.
            ("- n", "ns sn", "ns sn", 1, None, "rest"),
            // Years of this.
            ("y -", "y y", "y y", 9, None, "rest"),
            ("y -", "- -", "- -", 9, None, "rest"),
            ("y -", "", "", 9, None, "rest"),
            ("o -", "o o", "o o", 9, None, "publish Due"),
            ("x -", "x x", "x x", 9, None, "publish Missing"),
            // The next takes over.
            ("o n", "o o", "o o", 9, None, "rest"),
            ("o n", "o o", "on o", 9, None, "rest"),
            ("o n", "o o", "on on", 1, None, "rest"),
            ("o n", "o o", "on no", 2, None, "activate"),
            ("o n", "", "", 9, None, "rest"),
            // One that came to nothing.
            ("o x", "o o", "ox ox", 9, None, "publish Due"),
            ("y x", "y y", "yx yx", 9, None, "rest"),
            // The old is forgotten when no leaf can be of it and nobody trusts it.
            ("y - o", "yo yo", "yo yo", 9, Some(DAY), "rest"),
            ("y - o", "yo yo", "yo yo", 9, None, "date"),
            ("y - o", "yo yo", "y y", 9, Some(DAY * 13), "rest"),
            ("y - o", "yo yo", "y yo", 9, Some(long), "rest"),
            ("y - o", "yo yo", "y y", 9, Some(long), "forget o"),
            ("y - ox", "yo yo", "yo yo", 9, Some(DAY), "forget x"),
            ("y - o", "", "", 9, Some(long), "forget o"),
            // The signer's key was lost, so the retired are in use.
            ("- - o", "o o", "o o", 9, Some(long), "publish Missing"),
            ("- n o", "on on", "on on", 1, Some(long), "rest"),
            ("- n o", "on on", "on on", 2, Some(long), "activate"),
            // The Secret was lost, or an old one came back.
            ("- -", "o o", "o o", 0, None, "adopt o"),
            ("- -", "osx -", "osx -", 0, None, "adopt o"),
            ("- -", "on s", "on y", 0, None, "adopt noy"),
            ("o -", "y y", "yo yo", 9, None, "adopt y"),
            ("- n", "no no", "no no", 9, None, "adopt o"),
            // One that lives for too long does not sign for longer than another takes, nor begins to.
            ("w -", "w w", "w w", 9, None, "rest"),
            ("m -", "m m", "m m", 9, None, "publish Outlives"),
            ("h -", "h h", "h h", 9, None, "publish Outlives"),
            ("y m", "ym ym", "ym ym", 9, None, "publish Outlives"),
            ("y h", "y y", "y y", 9, None, "publish Outlives"),
            ("- h", "- -", "- -", 9, None, "publish Outlives"),
            ("m n", "m m", "mn mn", 2, None, "activate"),
            // A release with a longer lifetime may have made it.
            ("y -", "ym ym", "ym ym", 9, None, "adopt m"),
            ("y -", "yh yh", "yh yh", 9, None, "rest"),
            ("- -", "h h", "h h", 9, None, "publish Missing"),
            ("y - h", "yh yh", "yh yh", 9, Some(DAY), "rest"),
            ("y - h", "yh yh", "y y", 9, Some(DAY), "forget h"),
            // Those whose keys have leaked are known, sign until the next one does, and are forgotten last.
            ("y - - y", "y y", "y y", 9, Some(DAY), "publish Requested"),
            ("y n - y", "y y", "yn yn", 1, Some(DAY), "rest"),
            ("y n - y", "y y", "yn yn", 2, Some(DAY), "activate"),
            ("n - - y", "yn yn", "yn yn", 9, Some(DAY), "rest"),
            ("n - - y", "yn yn", "n n", 9, Some(DAY), "rest"),
            ("n - - y", "yn yn", "n n", 9, Some(long), "forget y"),
            ("n - - y", "yn yn", "yn yn", 9, Some(long), "rest"),
        ] {
            let row = format!("{secret:?}, {first:?}, {then:?}, {wait} min, {retired:?}");
            let situation = RotationInputs {
                ca_secret: &cast.ca_secret(secret, retired.map(|ago| cast.now - ago)),
                retired_for: DAY,
                observed: &cast.observed_bundles(first, then, MINUTE * wait),
                in_use: &Bundle::default(),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            assert_eq!(describe(&next(&situation), &cast), wanted, "{row}");
        }
    }

    #[test]
    fn what_this_process_shows_delays_the_next_one_and_is_not_forgotten() {
        let cast = Fixtures::new();
        for (secret, bundles, wait, in_use, wanted) in [
            // All that was trusted has just been lost, but not its leaves.
            ("- n", "n", 1, "", "activate"),
            ("- n", "n", 1, "y", "rest"),
            ("- n", "n", 2, "y", "activate"),
            ("y - o", "y", 9, "", "forget o"),
            ("y - o", "y", 9, "o", "rest"),
        ] {
            let situation = RotationInputs {
                ca_secret: &cast.ca_secret(secret, Some(cast.now - DAY * 15)),
                retired_for: DAY,
                observed: &cast.observed_bundles("-", bundles, MINUTE * wait),
                in_use: &cast.bundle(in_use),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            let found = describe(&next(&situation), &cast);
            assert_eq!(
                found, wanted,
                "{secret:?}, {bundles:?}, {wait} min, {in_use:?}"
            );
        }
    }

    #[test]
    fn a_requested_rotation_comes_first_unless_there_is_nothing_to_replace() {
        let cast = Fixtures::new();
        for (secret, requested, rotated, wanted) in [
            ("y -", None, None, "rest"),
            ("y -", Some("1"), None, "publish Requested"),
            ("y -", Some("1"), Some("1"), "rest"),
            ("y -", Some("2"), Some("1"), "publish Requested"),
            ("y -", None, Some("1"), "rest"),
            ("y n", Some("1"), None, "publish Requested"),
            ("- - y", Some("1"), None, "publish Requested"),
            ("- -", Some("1"), None, "publish Missing"),
        ] {
            let mut keyring = cast.ca_secret(secret, Some(cast.now - DAY));
            keyring.requested_rotation = requested.map(str::to_owned);
            keyring.started_rotation = rotated.map(str::to_owned);
            let trusted = cast.letters_of(&keyring.trust_bundle());
            let situation = RotationInputs {
                ca_secret: &keyring,
                retired_for: DAY,
                observed: &cast.observed_bundles(&trusted, &trusted, MINUTE),
                in_use: &Bundle::default(),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            let found = describe(&next(&situation), &cast);
            assert_eq!(found, wanted, "{secret:?}, {requested:?}, {rotated:?}");
        }
    }

    #[test]
    fn a_clock_that_was_set_back_distrusts_no_ca_that_api_servers_know() {
        let cast = Fixtures::new();
        let (keyring, known) = (cast.ca_secret("y - o", None), ["oy oy", "oy oy"]);
        for (days, wanted) in [(0, "date"), (30, "date"), (365 * 5, "date")] {
            let situation = RotationInputs {
                ca_secret: &keyring,
                retired_for: DAY,
                observed: &cast.observed_bundles(known[0], known[1], MINUTE),
                in_use: &Bundle::default(),
                now: cast.now - DAY * days,
                lifetimes: &Lifetimes::default(),
            };
            assert_eq!(describe(&next(&situation), &cast), wanted, "{days} days");
            assert!(prunable_cas(&situation).is_empty(), "{days} days");
        }
    }

    #[test]
    fn a_write_that_is_dated_ahead_excuses_no_ca() {
        let cast = Fixtures::new();
        for (secret, days, wanted) in [
            ("h -", 0, "publish Outlives"),
            ("h -", 365 * 6_000, "publish Outlives"),
            ("y h", 365 * 6_000, "publish Outlives"),
            ("y -", 365 * 6_000, "rest"),
        ] {
            let trusted = cast.letters_of(&cast.ca_secret(secret, None).trust_bundle());
            let mut live = ObservedBundles::default();
            let dated = Some(cast.now + DAY * days);
            let bundles = vec![cast.bundle(&trusted)];
            live.observe(bundles, dated, tokio::time::Instant::now());
            let situation = RotationInputs {
                ca_secret: &cast.ca_secret(secret, None),
                retired_for: DAY,
                observed: &live,
                in_use: &Bundle::default(),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            let found = describe(&next(&situation), &cast);
            assert_eq!(found, wanted, "{secret:?}, {days} days");
        }
    }

    #[test]
    fn of_1700_forged_authorities_few_are_adopted_and_the_rest_leaves() {
        let cast = Fixtures::new();
        let one = || Ca::try_new(cast.now, DAY * 365).unwrap().der().clone();
        let forged: Bundle = (0..1700).map(|_| one()).collect();
        let mut live = ObservedBundles::default();
        live.observe(vec![forged.clone()], None, tokio::time::Instant::now());
        let mut keyring = cast.ca_secret("y -", None);
        let decide = |keyring: &CaSecret| {
            let situation = RotationInputs {
                ca_secret: keyring,
                retired_for: DAY,
                observed: &live,
                in_use: &Bundle::default(),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            (next(&situation), prunable_cas(&situation))
        };
        let (step, gone) = decide(&keyring);
        let Step::AdoptOrphans(adopted) = &step else {
            panic!("{step:?}")
        };
        assert_eq!(adopted.iter().count(), MAX_STORED_CAS - 1);
        assert_eq!(gone.iter().count(), 1700 - (MAX_STORED_CAS - 1));
        keyring
            .apply(step, cast.now, &Lifetimes::default(), &[])
            .unwrap();
        let (step, gone) = decide(&keyring);
        assert_eq!(
            (step, gone.iter().count()),
            (Step::None, 1700 - (MAX_STORED_CAS - 1))
        );
    }

    #[test]
    fn a_crowd_of_authorities_is_made_no_larger_until_their_leaves_are_out_of_use() {
        let cast = Fixtures::new();
        let one = || Ca::try_new(cast.now, DAY * 365).unwrap().der().clone();
        let many: Bundle = (0..MAX_CAS).map(|_| one()).collect();
        let fewer = {
            let first = many.iter().next().unwrap();
            many.filter(|der| der != first)
        };
        let ago = |days: u32| Some(cast.now - DAY * days);
        let more = |count: usize| {
            many.clone()
                .union(&(MAX_CAS..count).map(|_| one()).collect())
        };
        let (most, too_many) = (more(MAX_STORED_CAS - 1), more(MAX_STORED_CAS));
        // Secret, CAs, retired at, known for, shown, step.
        for (secret, trusted, retired_at, retired_for, in_use, wanted) in [
            ("- -", &fewer, ago(0), DAY, "n", "publish Missing"),
            ("- -", &many, ago(0), DAY, "n", "crowd of 32"),
            ("x -", &many, ago(0), DAY, "n", "crowd of 32"),
            ("- -", &many, ago(13), DAY, "n", "crowd of 32"),
            ("- -", &many, ago(14), DAY, "n", "publish Missing"),
            ("- -", &many, ago(14), MINUTE, "n", "crowd of 32"),
            // This process has no leaf to show.
            ("- -", &many, ago(0), MINUTE, "", "crowd of 32"),
            ("- -", &many, ago(0), DAY, "", "publish Missing"),
            ("x -", &many, ago(0), DAY, "", "publish Missing"),
            ("- -", &most, ago(0), DAY, "", "publish Missing"),
            ("- -", &too_many, ago(0), DAY, "", "crowd of 64"),
            // It has a successor, or needs none.
            ("- n", &many, ago(0), DAY, "", "rest"),
            ("y -", &many, ago(0), DAY, "", "rest"),
            ("o -", &many, ago(0), DAY, "", "publish Due"),
        ] {
            let mut keyring = cast.ca_secret(secret, retired_at);
            keyring.retired = trusted.clone();
            let mut live = ObservedBundles::default();
            live.observe(vec![trusted.clone()], None, tokio::time::Instant::now());
            let situation = RotationInputs {
                ca_secret: &keyring,
                retired_for,
                observed: &live,
                in_use: &cast.bundle(in_use),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            let row = format!("{secret:?}, {retired_at:?}, {retired_for:?}, {in_use:?}");
            assert_eq!(describe(&next(&situation), &cast), wanted, "{row}");
        }
    }

    #[test]
    fn a_step_makes_the_secret_what_the_next_one_starts_from() {
        let cast = Fixtures::new();
        let earlier = cast.now - DAY;
        for (secret, step, wanted) in [
            ("- -", Step::None, "- - "),
            ("- -", Step::AdoptOrphans(cast.bundle("oy")), "- - oy now"),
            ("y - o", Step::PublishNext(RotationReason::Due), "y new o"),
            (
                "y x o",
                Step::PublishNext(RotationReason::Missing),
                "y new ox now",
            ),
            ("y n o", Step::ActivateNext, "n - oy now"),
            ("- n o", Step::ActivateNext, "n - o now"),
            ("y - ox", Step::PruneRetired(cast.bundle("x")), "y - o"),
        ] {
            let mut keyring = cast.ca_secret(secret, Some(earlier));
            let row = format!("{secret:?} and {}", describe(&step, &cast));
            keyring
                .apply(step, cast.now, &Lifetimes::default(), &[])
                .unwrap();
            let name =
                |ca: &Option<Arc<Ca>>| match ca.as_ref().map(|ca| Bundle::from(ca.der().clone())) {
                    Some(one) => match cast.letters_of(&one).as_str() {
                        "" => "new".to_owned(),
                        known => known.to_owned(),
                    },
                    None => "-".to_owned(),
                };
            let when = match keyring.retired_at {
                Some(at) if at == cast.now => " now",
                _ => "",
            };
            let (signer, next) = (name(&keyring.active), name(&keyring.next));
            let retired = cast.letters_of(&keyring.retired);
            assert_eq!(format!("{signer} {next} {retired}{when}"), wanted, "{row}");
        }
    }

    #[test]
    fn the_retired_are_idle_after_a_leaf_and_forgotten_after_two_and_a_while() {
        let cast = Fixtures::new();
        let ago = |days: u32| Some(cast.now - DAY * days);
        let never = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX as u64));
        let (short, long) = (MINUTE * 5, MINUTE * 6);
        for (secret, in_use, retired_at, retired_for, is_idle, is_forgotten) in [
            ("y - o", "", None, long, "", ""),
            ("y - o", "", ago(6), long, "", ""),
            ("y - o", "", ago(7), long, "o", ""),
            ("y - o", "", ago(13), long, "o", ""),
            ("y - o", "", ago(14), long, "o", "o"),
            ("y - ox", "", ago(6), long, "x", "x"),
            ("- - o", "", ago(14), long, "", ""),
            // At once, and as soon as every replica knows.
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
            ("y - o", "", Some(cast.now + DAY * 99), long, "", ""),
            ("y - o", "", never, long, "", ""),
            // Whatever the Secret says, what is shown is in use.
            ("y - oxn", "ox", ago(99), long, "n", "n"),
        ] {
            let situation = RotationInputs {
                ca_secret: &cast.ca_secret(secret, retired_at),
                retired_for,
                observed: &ObservedBundles::default(),
                in_use: &cast.bundle(in_use),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            let row = format!("{secret}, {in_use}, {retired_at:?}, {retired_for:?}");
            assert_eq!(cast.letters_of(&unused_cas(&situation)), is_idle, "{row}");
            assert_eq!(
                cast.letters_of(&prunable_cas(&situation)),
                is_forgotten,
                "{row}"
            );
        }
    }

    #[test]
    fn an_authority_is_due_when_about_a_third_of_its_life_is_left_and_all_agree_when() {
        let now = wall_clock();
        let life = DAY * 300;
        let made = |second| Ca::try_new(now + Duration::from_secs(second), life).unwrap();
        let authorities: Vec<_> = (0..20).map(made).collect();
        let dues: Vec<_> = authorities.iter().map(renewal_time).collect();
        for (ca, at) in authorities.iter().zip(&dues) {
            let left = ca.info().not_after.duration_since(*at).unwrap();
            assert!(left >= life * 4 / 15 && left <= life * 6 / 15, "{left:?}");
            let stored = Ca::from_pem(ca.pem().as_bytes(), ca.key_pem().as_bytes()).unwrap();
            assert_eq!(renewal_time(&stored), *at);
        }
        let (first, last) = (dues.iter().min().unwrap(), dues.iter().max().unwrap());
        let spread = last.duration_since(*first).unwrap();
        assert!(spread > life / 10, "{spread:?}");
    }
}
