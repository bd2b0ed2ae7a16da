//! The desired content of every `caBundle`.
//!
//! Certificates are only added, except that two kinds are removed: distrusted CAs of ours, and those that have long
//! expired. Any other may belong to a replica of another mode or version, which serves until it is replaced.

use std::time::{Duration, SystemTime};

use pki::bundle::Bundle;

use super::propagation::ObservedBundles;
use super::rotation::{MAX_CAS, RotationInputs};

/// By how much the clock of a replica may be behind: such a replica adds CAs that have expired by the clocks of others.
const MAX_CLOCK_LAG: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// The changes that every `caBundle` needs. Certificates in neither set are left as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DesiredCaBundle {
    /// Added if missing.
    pub(super) add: Bundle,
    /// Removed if present.
    pub(super) remove: Bundle,
}

// === impl DesiredCaBundle ===

impl DesiredCaBundle {
    /// Adds the CAs in use by this process, if nothing else is known.
    pub(super) fn for_served(in_use: Bundle) -> Self {
        Self {
            add: in_use,
            remove: Bundle::default(),
        }
    }

    /// Adds the CAs of the CA Secret, and those in use by this process whatever the Secret holds.
    pub(super) fn for_self(inputs: &RotationInputs<'_>) -> Self {
        let (ca_secret, now) = (inputs.ca_secret, inputs.now);
        let in_use = inputs.in_use.without(&ca_secret.distrusted);
        let trusted = ca_secret.current().union(&in_use).union(&ca_secret.retired);
        let known = ca_secret.known_cas().union(inputs.in_use);
        let expired = expired_foreign(inputs.observed, &known, now);
        Self {
            // Without expired ones, which replicas of the other mode remove.
            add: trusted.without(&trusted.expired(now)).first(MAX_CAS),
            remove: inputs.removed().union(&expired),
        }
    }

    /// Adds the CAs of the TLS Secret, mode `secret`, and those in use by this process.
    pub(super) fn for_secret(
        anchors: &Bundle,
        in_use: &Bundle,
        observed: &ObservedBundles,
        now: SystemTime,
    ) -> Self {
        let known = anchors.clone().union(in_use);
        Self {
            remove: expired_foreign(observed, &known, now),
            // Without expired ones, which replicas of the other mode remove.
            add: known.without(&known.expired(now)),
        }
    }

    /// The bundle with these changes; equal to `bundle` if it needs none.
    pub(super) fn reconcile(&self, bundle: &Bundle) -> Bundle {
        bundle.without(&self.remove).union(&self.add)
    }
}

/// The certificates of the bundles that are not known, and have expired by the clock of every replica.
fn expired_foreign(observed: &ObservedBundles, known: &Bundle, now: SystemTime) -> Bundle {
    observed.union().without(known).expired(now - MAX_CLOCK_LAG)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certificates::testing::{DAY, Fixtures, MINUTE};
    use pki::ca::Ca;

    // Each letter in the tables is a CA: see `Fixtures`.

    fn summary(fixtures: &Fixtures, desired: &DesiredCaBundle) -> String {
        let DesiredCaBundle { add, remove } = desired;
        format!(
            "{} -{}",
            fixtures.letters_of(add),
            fixtures.letters_of(remove)
        )
    }

    #[test]
    fn our_cas_are_desired_until_they_are_distrusted() {
        let fixtures = Fixtures::new();
        let (short, long) = (MINUTE * 5, MINUTE * 6);
        // Secret, days since the last retirement, for how long that was observed, bundle, in use, desired.
        for (secret, days, retired_for, bundle, in_use, wanted) in [
            ("- -", 0, long, "", "", " -"),
            ("y n o", 0, long, "", "", "noy -"),
            ("y n o", 15, long, "oy", "", "noy -"),
            // An expired one is left where it is until it is distrusted.
            ("y - x", 0, long, "xy", "", "y -"),
            // The clock may be ahead, so the active CA is not removed.
            ("x - ", 0, long, "x", "", " -"),
            // Foreign CAs stay until they expire, and so do unknown ones with our subject.
            ("y - ", 0, long, "nsyz", "", "y -z"),
            ("y - ", 0, short, "xy", "", "y -x"),
            // Whatever the Secret holds, the served CA is in use.
            ("- -", 0, long, "", "y", "y -"),
            ("- n", 0, long, "n", "y", "ny -"),
            ("y - o", 15, long, "oy", "o", "oy -"),
            ("y - x", 15, long, "xy", "x", "y -"),
            // A CA that must not be trusted is not added, and is removed when every replica has observed that.
            ("y - - o", 0, short, "oy", "o", "y -"),
            ("y - - o", 0, long, "oy", "", "y -o"),
            ("y n - y", 0, long, "y", "y", "ny -"),
        ] {
            let ca_secret = fixtures.ca_secret(secret, fixtures.now - DAY * days);
            let observed = fixtures.observed_bundles(bundle, bundle, Duration::ZERO);
            let served = fixtures.bundle(in_use);
            let inputs = RotationInputs {
                retired_for,
                ..fixtures.inputs(&ca_secret, &observed, &served)
            };
            let desired = summary(&fixtures, &DesiredCaBundle::for_self(&inputs));
            assert_eq!(
                desired, wanted,
                "{secret:?}, {days} d, {bundle:?}, {in_use:?}"
            );
        }
    }

    #[test]
    fn last_of_many_retired_are_added() {
        let fixtures = Fixtures::new();
        let one = || Ca::try_new(fixtures.now, DAY * 365).unwrap().der().clone();
        let mut ca_secret = fixtures.ca_secret("y n", fixtures.now);
        ca_secret.retired = (0..1700).map(|_| one()).collect();
        let last: Vec<_> = ca_secret.retired.iter().take(29).cloned().collect();
        let desired = DesiredCaBundle::for_self(&fixtures.inputs(
            &ca_secret,
            &ObservedBundles::default(),
            &fixtures.bundle("o"),
        ));
        assert_eq!(
            desired.add,
            fixtures.bundle("yno").union(&last.into_iter().collect())
        );
        assert_eq!(desired.add.iter().count(), 32);
    }

    #[test]
    fn unexpired_cas_of_the_tls_secret_are_added() {
        let fixtures = Fixtures::new();
        for (anchors, in_use, bundle, wanted) in [
            ("s", "", "", "s -"),
            ("s", "", "oxy", "s -x"),
            ("s", "y", "", "sy -"),
            // An expired CA that others remove is neither added nor removed.
            ("sz", "", "", "s -"),
            ("sz", "", "z", "s -"),
            ("s", "z", "z", "s -"),
            ("s", "", "z", "s -z"),
        ] {
            let observed = fixtures.observed_bundles(bundle, bundle, Duration::ZERO);
            let [anchors, in_use] = [anchors, in_use].map(|letters| fixtures.bundle(letters));
            let desired = DesiredCaBundle::for_secret(&anchors, &in_use, &observed, fixtures.now);
            assert_eq!(
                summary(&fixtures, &desired),
                wanted,
                "{anchors:?}, {in_use:?}, {bundle:?}"
            );
        }
    }

    #[test]
    fn two_modes_keep_each_others_cas() {
        let fixtures = Fixtures::new();
        let mut bundle = fixtures.bundle("");
        for (day, wanted) in [(0, "ys"), (1, "ys")] {
            let observed = |bundle: &Bundle| {
                let letters = fixtures.letters_of(bundle);
                fixtures.observed_bundles(&letters, &letters, Duration::ZERO)
            };
            let own = DesiredCaBundle::for_self(&fixtures.inputs(
                &fixtures.ca_secret("y - x", fixtures.now - DAY * 15),
                &observed(&bundle),
                &fixtures.bundle("y"),
            ));
            bundle = own.reconcile(&bundle);
            let anchors = fixtures.bundle("sz");
            let secret =
                DesiredCaBundle::for_secret(&anchors, &anchors, &observed(&bundle), fixtures.now);
            let reconciled = secret.reconcile(&bundle);
            assert_eq!(reconciled != bundle, day == 0, "written again and again");
            bundle = reconciled;
            assert_eq!(bundle, fixtures.bundle(wanted));
        }
    }

    #[test]
    fn bundle_is_changed_only_if_it_differs() {
        let fixtures = Fixtures::new();
        // Bundle, added, removed, result; a dash if nothing changes.
        for (bundle, add, remove, wanted) in [
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
            let row = format!("{bundle:?} {add:?} {remove:?}");
            let [bundle, add, remove] =
                [bundle, add, remove].map(|letters| fixtures.bundle(letters));
            let reconciled = DesiredCaBundle { add, remove }.reconcile(&bundle);
            let result = if reconciled == bundle {
                "-".to_owned()
            } else {
                fixtures.letters_of(&reconciled)
            };
            assert_eq!(result, wanted, "{row}");
        }
    }
}
