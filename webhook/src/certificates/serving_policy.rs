//! Decides which certificate is served, when another replaces it, and when the replica is ready: API servers must trust
//! what is served at any time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pki::bundle::Bundle;
use pki::ca::Ca;
use pki::certified_key::CertifiedKeyPair;
use pki::leaf;
use tokio::time::Instant;

use super::propagation::ObservedBundles;

/// After so long without a webhook configuration a replica is ready: no API server calls it, and an installer that
/// creates the configuration last may wait for readiness.
const NO_WEBHOOKS_GRACE: Duration = Duration::from_secs(30);

/// The served certificate.
#[derive(Debug)]
pub(super) struct ServedCertificate {
    /// The chain and its key.
    pub(super) certified_key: CertifiedKeyPair,
    /// What API servers must trust.
    pub(super) anchors: Bundle,
    /// Present if a CA of ours signed it.
    pub(super) issued_by: Option<IssuedBy>,
}

/// How a leaf was issued, and how the next one is.
#[derive(Debug, Clone)]
pub(super) struct IssuedBy {
    /// The CA.
    pub(super) ca: Arc<Ca>,
    /// The lifetime of its leaves.
    pub(super) leaf_lifetime: Duration,
    /// `wall` may be ahead of the clock, if that was set back.
    issued_at: Clocks,
    /// Two thirds of its lifetime, so that a third is left for retries.
    renew_after: Duration,
}

/// One instant by both clocks of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    /// The wall clock, which may jump.
    pub(super) wall: SystemTime,
    /// The monotonic clock, which stands still while the machine is suspended.
    pub(super) monotonic: Instant,
}

/// Why a replica is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// Every API server probably trusts the served certificate.
    Trusted,
    /// There has been no webhook for [`NO_WEBHOOKS_GRACE`].
    NoWebhookConfiguration,
}

// === impl ServedCertificate ===

impl ServedCertificate {
    /// Issues a leaf. It follows `previous`, if there is one: a wall clock that was set back since does not make it
    /// expire earlier.
    ///
    /// # Errors
    /// When a name is invalid, or the system has no randomness.
    pub(super) fn issue(
        ca: Arc<Ca>,
        names: &[String],
        leaf_lifetime: Duration,
        previous: Option<&IssuedBy>,
        now: Clocks,
    ) -> anyhow::Result<Self> {
        let wall = previous.map_or(now.wall, |previous| {
            previous.issued_at.wall + now.elapsed_since(previous.issued_at)
        });
        let certified_key = leaf::issue(&ca, names, wall, leaf_lifetime)?;
        let lifetime = certified_key.not_after().duration_since(wall);
        Ok(Self {
            anchors: Bundle::from(ca.der().clone()),
            issued_by: Some(IssuedBy {
                ca,
                leaf_lifetime,
                issued_at: Clocks { wall, ..now },
                renew_after: lifetime.unwrap_or_default() * 2 / 3,
            }),
            certified_key,
        })
    }

    /// Returns true if the certificate has not expired at `now`.
    pub(super) fn is_valid(&self, now: SystemTime) -> bool {
        now < self.certified_key.not_after()
    }
}

// === impl IssuedBy ===

impl IssuedBy {
    /// Returns true if the next leaf is due, by either clock, and the CA has not expired.
    pub(super) fn is_renewal_due(&self, now: Clocks) -> bool {
        now.elapsed_since(self.issued_at) >= self.renew_after && now.wall < self.ca.info().not_after
    }
}

// === impl Clocks ===

impl Clocks {
    /// The time since `earlier`, by the clock that measured more: the other was set back, or stood still.
    fn elapsed_since(self, earlier: Self) -> Duration {
        let by_wall = self.wall.duration_since(earlier.wall).unwrap_or_default();
        by_wall.max(self.monotonic.duration_since(earlier.monotonic))
    }
}

/// What API servers must trust to trust the served certificate; empty if there is none, or it has expired.
pub(super) fn bundle_in_use(served: Option<&ServedCertificate>, now: SystemTime) -> Bundle {
    let served = served.filter(|served| served.is_valid(now));
    served.map_or_else(Bundle::default, |served| served.anchors.clone())
}

/// Returns true if a certificate of `anchors` may replace one of `in_use`: every API server trusts it, or no valid
/// certificate is served.
pub(super) fn can_serve(
    anchors: &Bundle,
    in_use: &Bundle,
    observed: &ObservedBundles,
    activation_delay: Duration,
) -> bool {
    in_use.is_empty()
        || in_use == anchors
        || observed.is_propagated(anchors, in_use, activation_delay)
}

/// Returns true if a leaf of `ca` should replace the served certificate at `now`. Leaves of the CA in use are renewed
/// instead.
pub(super) fn should_switch_to(
    ca: &Ca,
    served: Option<&ServedCertificate>,
    leaf_lifetime: Duration,
    now: SystemTime,
) -> bool {
    let remaining = ca.info().not_after.duration_since(now).unwrap_or_default();
    match served {
        Some(served) if served.anchors.contains(ca.der()) => false,
        // With less left, an old Secret was restored, and its CA is about to be replaced.
        Some(served) if served.is_valid(now) => remaining >= leaf_lifetime,
        Some(_) | None => !remaining.is_zero(),
    }
}

/// Whether the replica, which serves a certificate of `in_use`, may be called for the first time, and why.
pub(super) fn readiness(
    in_use: &Bundle,
    observed: &ObservedBundles,
    activation_delay: Duration,
    now: SystemTime,
) -> Option<Ready> {
    if observed.bundles.is_empty() {
        let is_over = observed.missing_for() >= NO_WEBHOOKS_GRACE;
        return is_over.then_some(Ready::NoWebhookConfiguration);
    }
    observed
        .is_probably_propagated(in_use, activation_delay, now)
        .then_some(Ready::Trusted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::testing::{DAY, Fixtures, MINUTE};

    // Each letter in the tables is a CA: see `Fixtures`.

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const LEAF: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    fn served(fixtures: &Fixtures, letter: char, wall: SystemTime) -> ServedCertificate {
        let now = Clocks {
            wall,
            monotonic: Instant::now(),
        };
        ServedCertificate::issue(fixtures.ca(letter), &["a".into()], LEAF, None, now).unwrap()
    }

    #[test]
    fn serving_switches_only_after_propagation() {
        let fixtures = Fixtures::new();
        let delay = MINUTE * 2;
        // Served CA, issued how many days ago, other CA, first bundles, last bundles, minutes between, can serve.
        for (letters, days, other, first, last, wait, wanted) in [
            ("", 0, "n", "", "", 0, true),
            ("", 0, "n", "y y", "y y", 0, true),
            ("y", 0, "y", "", "", 0, true),
            // Not in every bundle, or not for the delay.
            ("y", 0, "n", "y y", "y y", 9, false),
            ("y", 0, "n", "y y", "yn y", 9, false),
            ("y", 0, "n", "y y", "yn yn", 1, false),
            ("y", 0, "n", "y y", "yn yn", 2, true),
            // What was there at the first observation may have been added just before.
            ("y", 0, "n", "yn yn", "yn yn", 1, false),
            ("y", 0, "n", "yn yn", "yn yn", 2, true),
            // API servers may still trust what the bundles have lost.
            ("y", 0, "n", "y y", "n n", 1, false),
            ("y", 0, "n", "- -", "n n", 1, false),
            ("y", 0, "n", "- -", "n n", 2, true),
            // No client trusts an expired certificate.
            ("y", 8, "n", "y y", "y y", 0, true),
            // Without webhooks nothing propagates.
            ("y", 0, "n", "", "", 9, false),
            // All anchors count.
            ("y", 0, "ns", "y y", "yn yn", 2, false),
            ("y", 0, "ns", "y y", "yns yns", 2, true),
        ] {
            let served = letters.chars().next();
            let served =
                served.map(|letter| self::served(&fixtures, letter, fixtures.now - DAY * days));
            let observed = fixtures.observed_bundles(first, last, MINUTE * wait);
            let in_use = bundle_in_use(served.as_ref(), fixtures.now);
            let result = can_serve(&fixtures.bundle(other), &in_use, &observed, delay);
            let row = format!("{letters:?}, {days} d, {other}, {first:?}, {last:?}, {wait} min");
            assert_eq!(result, wanted, "{row}");
        }
    }

    #[test]
    fn ca_shorter_than_a_leaf_is_not_switched_to() {
        let fixtures = Fixtures::new();
        // Served CA, issued how many days ago, other CA, days from now, switch.
        for (letters, days, ca, later, wanted) in [
            ("", 0, 'y', 0, true),
            // A day is left of it, then nothing.
            ("", 0, 'y', 354, true),
            ("", 0, 'x', 0, false),
            ("n", 0, 'y', 0, true),
            ("n", 0, 'x', 0, false),
            ("n", 0, 'o', 0, true),
            ("n", 8, 'x', 0, false),
            // Its leaf is renewed instead.
            ("y", 0, 'y', 0, false),
            ("y", 8, 'y', 0, false),
        ] {
            let now = fixtures.now + DAY * later;
            let served = letters.chars().next();
            let served =
                served.map(|letter| self::served(&fixtures, letter, fixtures.now - DAY * days));
            let result = should_switch_to(&fixtures.ca(ca), served.as_ref(), LEAF, now);
            assert_eq!(result, wanted, "{letters:?}, {days} d, {ca}, {later} d");
        }
        // A week is left of it, then less.
        for (hours, wanted) in [(0, true), (1, false)] {
            let now = fixtures.ca('o').info().not_after - LEAF + HOUR * hours;
            let current = served(&fixtures, 'n', now);
            assert_eq!(
                should_switch_to(&fixtures.ca('o'), Some(&current), LEAF, now),
                wanted
            );
        }
    }

    #[test]
    fn next_leaf_is_due_by_either_clock() {
        let fixtures = Fixtures::new();
        let (wall, monotonic) = (fixtures.now, Instant::now());
        let issued_by = served(&fixtures, 'y', wall).issued_by.unwrap();
        let two_thirds = LEAF * 2 / 3;
        for (by_wall, by_monotonic, wanted) in [
            (Duration::ZERO, Duration::ZERO, false),
            (two_thirds - HOUR, two_thirds - HOUR, false),
            (two_thirds + HOUR, two_thirds + HOUR, true),
            // The machine was suspended, or the clock jumped ahead.
            (two_thirds + HOUR, Duration::ZERO, true),
            // The clock was set back.
            (Duration::ZERO, two_thirds + HOUR, true),
            // Its CA has expired.
            (DAY * 400, two_thirds + HOUR, false),
        ] {
            let now = Clocks {
                wall: wall + by_wall,
                monotonic: monotonic + by_monotonic,
            };
            assert_eq!(
                issued_by.is_renewal_due(now),
                wanted,
                "{by_wall:?}, {by_monotonic:?}"
            );
        }
    }

    #[test]
    fn clock_set_back_does_not_shorten_the_next_leaf() {
        let fixtures = Fixtures::new();
        let first = served(&fixtures, 'y', fixtures.now);
        let issue = |wall, after| {
            let now = Clocks {
                wall,
                monotonic: Instant::now() + after,
            };
            let last = first.issued_by.as_ref();
            let next =
                ServedCertificate::issue(fixtures.ca('y'), &["a".into()], LEAF, last, now).unwrap();
            let end = next.certified_key.not_after();
            let days = end.duration_since(fixtures.now).unwrap().as_secs_f64() / DAY.as_secs_f64();
            (days * 10.0).round() / 10.0
        };
        for (wall, after, wanted) in [
            (fixtures.now + DAY * 5, DAY * 5, 12.0),
            (fixtures.now, DAY * 5, 12.0),
            (fixtures.now - DAY * 9, DAY * 5, 12.0),
            (fixtures.now + DAY * 20, DAY * 5, 27.0),
        ] {
            assert_eq!(issue(wall, after), wanted, "{wall:?}, {after:?}");
        }
    }

    #[test]
    fn ready_when_trusted_or_without_webhooks() {
        let fixtures = Fixtures::new();
        // Days since the leaf was issued, first bundles, last bundles, seconds between, readiness.
        for (days, first, last, wait, wanted) in [
            (Some(0), "y y", "y y", 0, Some(Ready::Trusted)),
            (Some(0), "yo yo", "yo yo", 0, Some(Ready::Trusted)),
            (Some(0), "o o", "yo yo", 0, None),
            (Some(0), "o o", "yo yo", 119, None),
            (Some(0), "o o", "yo yo", 120, Some(Ready::Trusted)),
            (Some(0), "o o", "yo o", 120, None),
            // The first CA of a new installation.
            (Some(0), "- -", "y y", 0, Some(Ready::Trusted)),
            (None, "y y", "y y", 120, None),
            (Some(8), "y y", "y y", 120, None),
            (Some(0), "", "", 29, None),
            (Some(0), "", "", 30, Some(Ready::NoWebhookConfiguration)),
            (None, "", "", 30, Some(Ready::NoWebhookConfiguration)),
        ] {
            let leaf = days.map(|days: u32| served(&fixtures, 'y', fixtures.now - DAY * days));
            let observed = fixtures.observed_bundles(first, last, Duration::from_secs(wait));
            let in_use = bundle_in_use(leaf.as_ref(), fixtures.now);
            let result = readiness(&in_use, &observed, MINUTE * 2, fixtures.now);
            assert_eq!(result, wanted, "{days:?}, {first:?}, {last:?}, {wait} s");
        }
    }

    #[test]
    fn no_webhooks_grace_restarts_with_each_absence() {
        let fixtures = Fixtures::new();
        let start = Instant::now();
        let mut observed = ObservedBundles::default();
        let mut readiness_after = |bundles: &[&str], seconds| {
            let bundles = bundles.iter().map(|letters| fixtures.bundle(letters));
            let now = start + Duration::from_secs(seconds);
            observed.observe(bundles.collect(), None, now);
            readiness(&Bundle::default(), &observed, MINUTE, fixtures.now)
        };
        assert_eq!(readiness_after(&[], 0), None);
        assert_eq!(readiness_after(&[""], 20), None);
        assert_eq!(readiness_after(&[], 40), None);
        assert_eq!(readiness_after(&[], 69), None);
        assert_eq!(
            readiness_after(&[], 70),
            Some(Ready::NoWebhookConfiguration)
        );
    }
}
