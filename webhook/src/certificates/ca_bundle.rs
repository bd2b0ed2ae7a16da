//! What every `caBundle` should have, and what none should.
//!
//! A bundle is only ever added to, but for certificates that have expired, those of our own whose
//! leaves are out of use, and those in our CAs' name that cannot be read. Who else put a certificate there has a reason: a replica of another mode or
//! version, which serves on until it is replaced.

use std::time::SystemTime;

use super::pki::bundle::Bundle;
use super::propagation::ObservedBundles;
use super::rotation::{self, RotationInputs};

/// What is asked of every `caBundle`. What is neither wanted nor gone stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredCaBundle {
    /// Added where it lacks.
    pub add: Bundle,
    /// Removed.
    pub remove: Bundle,
}

// === impl DesiredCaBundle ===

impl DesiredCaBundle {
    /// Asks for what this process shows, when nothing else is known.
    #[must_use]
    pub fn for_served(in_use: Bundle) -> Self {
        Self {
            add: in_use,
            remove: Bundle::default(),
        }
    }

    /// Asks for our own authorities, and for what this process shows, whatever the Secret says.
    #[must_use]
    pub fn for_self(situation: &RotationInputs<'_>) -> Self {
        let RotationInputs {
            ca_secret: keyring,
            observed: live,
            in_use,
            now,
            ..
        } = *situation;
        let known = keyring.known_cas().union(in_use);
        let idle = rotation::unused_cas(situation);
        let forgotten = rotation::prunable_cas(situation);
        // What may be in use first: the last of the retired.
        let retired = keyring.retired.iter().rev().cloned().collect();
        let wanted = keyring.current().union(in_use).union(&retired);
        Self {
            remove: removable_foreign(live, &known, now).union(&forgotten),
            add: wanted
                .filter(|der| !idle.contains(der))
                .first(rotation::MAX_CAS),
        }
    }

    /// Asks for those that somebody else gave, and for what this process shows.
    #[must_use]
    pub fn for_secret(
        given: &Bundle,
        in_use: &Bundle,
        live: &ObservedBundles,
        now: SystemTime,
    ) -> Self {
        let known = given.clone().union(in_use);
        let expired = known.expired(now);
        Self {
            remove: removable_foreign(live, &known, now),
            // Who does not know them takes them away.
            add: known.filter(|der| !expired.contains(der)),
        }
    }

    /// What should stand in a bundle instead of `found`; `None` if that is well.
    #[must_use]
    pub fn reconcile(&self, found: &Bundle) -> Option<Bundle> {
        let kept = found.filter(|der| !self.remove.contains(der));
        let right = kept.union(&self.add);
        (right != *found).then_some(right)
    }
}

/// The unknown that have expired, or that clients try for our leaves though none of them was made here:
/// Go's give up after 100 signatures.
fn removable_foreign(live: &ObservedBundles, known: &Bundle, now: SystemTime) -> Bundle {
    let trusted = live.union();
    let strangers = trusted.expired(now).union(&trusted.lookalikes());
    strangers.filter(|der| !known.contains(der))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::lifetimes::Lifetimes;
    use crate::certificates::pki::ca::Ca;
    use crate::certificates::testing::{DAY, Fixtures, MINUTE};

    fn summary(cast: &Fixtures, anchors: &DesiredCaBundle) -> String {
        let DesiredCaBundle {
            add: wanted,
            remove: gone,
        } = anchors;
        format!("{} -{}", cast.letters_of(wanted), cast.letters_of(gone))
    }

    #[test]
    fn of_our_own_all_are_wanted_until_their_leaves_are_out_of_use() {
        let cast = Fixtures::new();
        let (short, long) = (MINUTE * 5, MINUTE * 6);
        // Secret, days since the last retirement, that seen for, bundle, shown, asked.
        for (secret, days, retired_for, bundle, in_use, wanted) in [
            ("- -", 0, long, "", "", " -"),
            ("y n o", 0, long, "", "", "noy -"),
            ("y n o", 15, long, "oy", "", "ny -o"),
            // It stays where it is, and is not added where others have removed it.
            ("y n o", 8, long, "oy", "", "ny -"),
            ("y n o", 15, short, "oy", "", "ny -"),
            ("y - x", 0, short, "xy", "", "y -"),
            ("y - x", 0, long, "xy", "", "y -x"),
            // The clock may be ahead: what signs is no stranger.
            ("x - ", 0, long, "x", "", "x -"),
            // Strangers stay until they expire, and so does one of our own line.
            ("y - ", 0, long, "nsyz", "", "y -z"),
            ("y - ", 0, short, "xy", "", "y -x"),
            // Whatever the Secret says, what is shown is in use.
            ("- -", 0, long, "", "y", "y -"),
            ("- n", 0, long, "n", "y", "ny -"),
            ("y - o", 15, long, "oy", "o", "oy -"),
            // None is asked for that must not be trusted, and it goes when every replica knows.
            ("y - - o", 0, short, "oy", "o", "y -"),
            ("y - - o", 0, long, "oy", "", "y -o"),
            ("y n - y", 0, long, "y", "y", "ny -"),
            ("y h", 0, long, "y", "y", "y -"),
            ("y - h", 0, long, "hy", "", "y -h"),
            ("y -", 0, short, "hy", "", "y -"),
            ("y -", 0, long, "hy", "", "y -h"),
            // It signs until the next does.
            ("h n", 0, long, "h", "h", "hn -"),
            ("y - x", 15, long, "xy", "x", "xy -"),
        ] {
            let situation = RotationInputs {
                ca_secret: &cast.ca_secret(secret, Some(cast.now - DAY * days)),
                retired_for,
                observed: &cast.observed_bundles(bundle, bundle, Duration::ZERO),
                in_use: &cast.bundle(in_use),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            let found = summary(&cast, &DesiredCaBundle::for_self(&situation));
            assert_eq!(
                found, wanted,
                "{secret:?}, {days} d, {bundle:?}, {in_use:?}"
            );
        }
    }

    #[test]
    fn of_many_retired_the_last_are_asked_for() {
        let cast = Fixtures::new();
        let one = || Ca::try_new(cast.now, DAY * 365).unwrap().der().clone();
        let mut keyring = cast.ca_secret("y n", Some(cast.now));
        keyring.retired = (0..1700).map(|_| one()).collect();
        let last: Vec<_> = keyring.retired.iter().rev().take(29).cloned().collect();
        let anchors = DesiredCaBundle::for_self(&RotationInputs {
            ca_secret: &keyring,
            retired_for: DAY,
            observed: &ObservedBundles::default(),
            in_use: &cast.bundle("o"),
            now: cast.now,
            lifetimes: &Lifetimes::default(),
        });
        assert_eq!(
            anchors.add,
            cast.bundle("yno").union(&last.into_iter().collect())
        );
        assert_eq!(anchors.add.iter().count(), 32);
    }

    #[test]
    fn of_somebody_elses_those_are_wanted_that_have_not_expired() {
        let cast = Fixtures::new();
        for (given, in_use, bundle, wanted) in [
            ("s", "", "", "s -"),
            ("s", "", "oxy", "s -x"),
            ("s", "y", "", "sy -"),
            // Whom others take away, as they do not know it, is not added, nor taken from them.
            ("sz", "", "", "s -"),
            ("sz", "", "z", "s -"),
            ("s", "z", "z", "s -"),
            ("s", "", "z", "s -z"),
        ] {
            let live = cast.observed_bundles(bundle, bundle, Duration::ZERO);
            let [given, in_use] = [given, in_use].map(|letters| cast.bundle(letters));
            let anchors = DesiredCaBundle::for_secret(&given, &in_use, &live, cast.now);
            assert_eq!(
                summary(&cast, &anchors),
                wanted,
                "{given:?}, {in_use:?}, {bundle:?}"
            );
        }
    }

    #[test]
    fn two_modes_leave_each_others_alone() {
        let cast = Fixtures::new();
        let mut found = cast.bundle("");
        for (day, wanted) in [(0, "ys"), (1, "ys")] {
            let live = |bundle: &Bundle| {
                let letters = cast.letters_of(bundle);
                cast.observed_bundles(&letters, &letters, Duration::ZERO)
            };
            let own = DesiredCaBundle::for_self(&RotationInputs {
                ca_secret: &cast.ca_secret("y - x", Some(cast.now - DAY * 15)),
                retired_for: DAY,
                observed: &live(&found),
                in_use: &cast.bundle("y"),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            });
            found = own.reconcile(&found).unwrap_or(found);
            let (given, in_use) = (cast.bundle("sz"), cast.bundle("sz"));
            let given = DesiredCaBundle::for_secret(&given, &in_use, &live(&found), cast.now);
            let mended = given.reconcile(&found);
            assert_eq!(mended.is_some(), day == 0, "written again and again");
            found = mended.unwrap_or(found);
            assert_eq!(found, cast.bundle(wanted));
        }
    }

    #[test]
    fn a_bundle_is_mended_where_it_is_not_well() {
        let cast = Fixtures::new();
        // Found, wanted, gone, right; a dash where it is right already.
        for (found, wanted, gone, right) in [
            ("", "y", "", "y"),
            ("y", "y", "", "-"),
            ("yn", "ny", "", "-"),
            ("y", "yn", "", "ny"),
            ("s", "y", "", "sy"),
            ("oy", "y", "", "-"),
            ("oy", "y", "o", "y"),
            ("oys", "y", "o", "sy"),
            ("", "", "", "-"),
        ] {
            let [found, wanted, gone] = [found, wanted, gone].map(|letters| cast.bundle(letters));
            let row = format!("{found:?} {wanted:?} {gone:?}");
            let mended = DesiredCaBundle {
                add: wanted,
                remove: gone,
            }
            .reconcile(&found);
            let mended = mended.map_or("-".to_owned(), |mended| cast.letters_of(&mended));
            assert_eq!(mended, right, "{row}");
        }
    }
}
