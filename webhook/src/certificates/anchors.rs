//! What every `caBundle` should have, and what none should.
//!
//! A bundle is only ever added to, but for certificates that have expired, those of our own whose
//! leaves are out of use, and those in our CAs' name that cannot be read. Who else put a certificate there has a reason: a replica of another mode or
//! version, which serves on until it is replaced.

use std::time::SystemTime;

use super::bundle::Bundle;
use super::live::Live;
use super::rotation::{self, Situation};

/// What is asked of every `caBundle`. What is neither wanted nor gone stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Anchors {
    /// Added where it lacks.
    pub wanted: Bundle,
    /// Removed.
    pub gone: Bundle,
}

// === impl Anchors ===

impl Anchors {
    /// Asks for what this process shows, when nothing else is known.
    #[must_use]
    pub fn in_use(in_use: Bundle) -> Self {
        Self {
            wanted: in_use,
            gone: Bundle::default(),
        }
    }

    /// Asks for our own authorities, and for what this process shows, whatever the Secret says.
    #[must_use]
    pub fn own(situation: &Situation<'_>) -> Self {
        let Situation {
            keyring,
            live,
            in_use,
            now,
            ..
        } = *situation;
        let known = keyring.known().with(in_use);
        let idle = rotation::idle(situation);
        let forgotten = rotation::forgotten(situation);
        // What may be in use first: the last of the retired.
        let retired = keyring.retired.iter().rev().cloned().collect();
        let wanted = keyring.current().with(in_use).with(&retired);
        Self {
            gone: strangers(live, &known, now).with(&forgotten),
            wanted: wanted.only(|der| !idle.contains(der)).first(rotation::MOST),
        }
    }

    /// Asks for those that somebody else gave, and for what this process shows.
    #[must_use]
    pub fn given(given: &Bundle, in_use: &Bundle, live: &Live, now: SystemTime) -> Self {
        let known = given.clone().with(in_use);
        let expired = known.expired(now);
        Self {
            gone: strangers(live, &known, now),
            // Who does not know them takes them away.
            wanted: known.only(|der| !expired.contains(der)),
        }
    }

    /// What should stand in a bundle instead of `found`; `None` if that is well.
    #[must_use]
    pub fn mended(&self, found: &Bundle) -> Option<Bundle> {
        let kept = found.only(|der| !self.gone.contains(der));
        let right = kept.with(&self.wanted);
        (right != *found).then_some(right)
    }
}

/// The unknown that have expired, or that clients try for our leaves though none of them was made here:
/// Go's give up after 100 signatures.
fn strangers(live: &Live, known: &Bundle, now: SystemTime) -> Bundle {
    let trusted = live.anywhere();
    let strangers = trusted.expired(now).with(&trusted.resembling_own());
    strangers.only(|der| !known.contains(der))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::ca::Ca;
    use crate::certificates::cast::{Cast, DAY, MINUTE};
    use crate::certificates::lifetimes::Lifetimes;

    fn asked(cast: &Cast, anchors: &Anchors) -> String {
        let Anchors { wanted, gone } = anchors;
        format!("{} -{}", cast.named(wanted), cast.named(gone))
    }

    #[test]
    fn of_our_own_all_are_wanted_until_their_leaves_are_out_of_use() {
        let cast = Cast::new();
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
            let situation = Situation {
                keyring: &cast.keyring(secret, Some(cast.now - DAY * days)),
                retired_for,
                live: &cast.live(bundle, bundle, Duration::ZERO),
                in_use: &cast.bundle(in_use),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            };
            let found = asked(&cast, &Anchors::own(&situation));
            assert_eq!(
                found, wanted,
                "{secret:?}, {days} d, {bundle:?}, {in_use:?}"
            );
        }
    }

    #[test]
    fn of_many_retired_the_last_are_asked_for() {
        let cast = Cast::new();
        let one = || Ca::try_new(cast.now, DAY * 365).unwrap().der().clone();
        let mut keyring = cast.keyring("y n", Some(cast.now));
        keyring.retired = (0..1700).map(|_| one()).collect();
        let last: Vec<_> = keyring.retired.iter().rev().take(29).cloned().collect();
        let anchors = Anchors::own(&Situation {
            keyring: &keyring,
            retired_for: DAY,
            live: &Live::default(),
            in_use: &cast.bundle("o"),
            now: cast.now,
            lifetimes: &Lifetimes::default(),
        });
        assert_eq!(
            anchors.wanted,
            cast.bundle("yno").with(&last.into_iter().collect())
        );
        assert_eq!(anchors.wanted.iter().count(), 32);
    }

    #[test]
    fn of_somebody_elses_those_are_wanted_that_have_not_expired() {
        let cast = Cast::new();
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
            let live = cast.live(bundle, bundle, Duration::ZERO);
            let [given, in_use] = [given, in_use].map(|letters| cast.bundle(letters));
            let anchors = Anchors::given(&given, &in_use, &live, cast.now);
            assert_eq!(
                asked(&cast, &anchors),
                wanted,
                "{given:?}, {in_use:?}, {bundle:?}"
            );
        }
    }

    #[test]
    fn two_modes_leave_each_others_alone() {
        let cast = Cast::new();
        let mut found = cast.bundle("");
        for (day, wanted) in [(0, "ys"), (1, "ys")] {
            let live = |bundle: &Bundle| {
                let letters = cast.named(bundle);
                cast.live(&letters, &letters, Duration::ZERO)
            };
            let own = Anchors::own(&Situation {
                keyring: &cast.keyring("y - x", Some(cast.now - DAY * 15)),
                retired_for: DAY,
                live: &live(&found),
                in_use: &cast.bundle("y"),
                now: cast.now,
                lifetimes: &Lifetimes::default(),
            });
            found = own.mended(&found).unwrap_or(found);
            let (given, in_use) = (cast.bundle("sz"), cast.bundle("sz"));
            let given = Anchors::given(&given, &in_use, &live(&found), cast.now);
            let mended = given.mended(&found);
            assert_eq!(mended.is_some(), day == 0, "written again and again");
            found = mended.unwrap_or(found);
            assert_eq!(found, cast.bundle(wanted));
        }
    }

    #[test]
    fn a_bundle_is_mended_where_it_is_not_well() {
        let cast = Cast::new();
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
            let mended = Anchors { wanted, gone }.mended(&found);
            let mended = mended.map_or("-".to_owned(), |mended| cast.named(&mended));
            assert_eq!(mended, right, "{row}");
        }
    }
}
