//! What the server shows, and when it shows something else: the decision that guards the whole claim,
//! since whoever calls must trust what it is shown.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::pki::bundle::Bundle;
use super::pki::ca::Ca;
use super::pki::certified_key::CertifiedKeyPair;
use super::pki::leaf;
use super::pki::leaf::IssueError;
use super::propagation::ObservedBundles;

/// What the server shows, and what clients must trust to trust it.
#[derive(Debug)]
pub struct ServedCertificate {
    /// The certificate.
    pub certified_key: CertifiedKeyPair,
    /// What clients must trust.
    pub anchors: Bundle,
    /// Who signed it, where that is an authority of our own.
    pub issued_by: Option<IssuedBy>,
}

/// How a leaf of our own came to be, and so does the next.
#[derive(Debug, Clone)]
pub struct IssuedBy {
    signer: Arc<Ca>,
    issued_at: SystemTime,
    issued_at_monotonic: Instant,
    renew_after: Duration,
}

/// Both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// The wall clock, which may jump.
    pub wall: SystemTime,
    /// The stopwatch, which stands still while the machine is suspended.
    pub monotonic: Instant,
}

// === impl ServedCertificate ===

impl ServedCertificate {
    /// Issues a leaf of `signer` that lives for `lifetime`. It follows `last`, if there was one: a
    /// wall clock that was set back since does not make its end come sooner.
    ///
    /// # Errors
    /// As [`leaf::issue`].
    pub fn issue(
        signer: Arc<Ca>,
        names: &[String],
        lifetime: Duration,
        last: Option<&IssuedBy>,
        now: Clocks,
    ) -> Result<Self, IssueError> {
        let at = last.map_or(now.wall, |last| {
            now.wall.max(last.expected_wall_clock(now.monotonic))
        });
        let identity = leaf::issue(&signer, names, at, lifetime)?;
        let due = leaf::renewal_time(at, identity.not_after());
        Ok(Self {
            anchors: Bundle::from(signer.der().clone()),
            issued_by: Some(IssuedBy {
                signer,
                issued_at: at,
                issued_at_monotonic: now.monotonic,
                renew_after: due.duration_since(at).unwrap_or_default(),
            }),
            certified_key: identity,
        })
    }

    /// Returns true if its certificate can be trusted at `now`.
    #[must_use]
    pub fn is_valid(&self, now: SystemTime) -> bool {
        now < self.certified_key.not_after()
    }
}

/// Returns true if a certificate of `anchors` may be shown at `now`: every API server trusts it, or
/// what is `shown` is no better.
#[must_use]
pub fn can_serve(
    anchors: &Bundle,
    shown: Option<&ServedCertificate>,
    live: &ObservedBundles,
    activation_delay: Duration,
    now: SystemTime,
) -> bool {
    match shown.filter(|shown| shown.is_valid(now)) {
        Some(shown) => {
            shown.anchors == *anchors
                || live.is_propagated(anchors, &shown.anchors, activation_delay)
        }
        None => true,
    }
}

/// Returns true if a leaf of `signer`, which lives for `lifetime`, is worth showing at `now` instead of
/// what is `shown`. That of the same authority renews itself.
#[must_use]
pub fn should_switch_to(
    signer: &Ca,
    shown: Option<&ServedCertificate>,
    lifetime: Duration,
    now: SystemTime,
) -> bool {
    let left = signer.info().not_after.duration_since(now);
    let left = left.unwrap_or_default();
    match shown {
        Some(shown) if shown.anchors.contains(signer.der()) => false,
        // Somebody put back an old Secret: its authority is about to be replaced.
        Some(shown) if shown.is_valid(now) => left >= lifetime,
        Some(_) | None => !left.is_zero(),
    }
}

// === impl IssuedBy ===

impl IssuedBy {
    /// The authority.
    #[must_use]
    pub fn signer(&self) -> &Arc<Ca> {
        &self.signer
    }

    /// Returns true if the next leaf is due, by either clock, and its authority lives.
    #[must_use]
    pub fn is_renewal_due(&self, now: Clocks) -> bool {
        let by_wall = now.wall.duration_since(self.issued_at).unwrap_or_default();
        let by_stopwatch = now.monotonic.duration_since(self.issued_at_monotonic);
        by_wall.max(by_stopwatch) >= self.renew_after && now.wall < self.signer.info().not_after
    }

    /// What the wall clock would show by now, had nobody set it.
    fn expected_wall_clock(&self, stopwatch: Instant) -> SystemTime {
        self.issued_at + stopwatch.duration_since(self.issued_at_monotonic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::testing::{DAY, Fixtures, MINUTE};

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const LEAF: Duration = Duration::from_secs(7 * 24 * 60 * 60);

    fn served(cast: &Fixtures, letter: char, wall: SystemTime) -> ServedCertificate {
        let now = Clocks {
            wall,
            monotonic: Instant::now(),
        };
        ServedCertificate::issue(cast.ca(letter), &["a".into()], LEAF, None, now).unwrap()
    }

    #[test]
    fn another_certificate_is_shown_when_every_api_server_trusts_it_or_nothing_is_to_be_lost() {
        let cast = Fixtures::new();
        let delay = MINUTE * 2;
        // Shown, days ago, another, first look at the bundles, the next, minutes between, may it be.
        for (letters, days, another, first, then, wait, wanted) in [
            ("", 0, "n", "", "", 0, true),
            ("", 0, "n", "y y", "y y", 0, true),
            ("y", 0, "y", "", "", 0, true),
            // One bundle is not all of them, and soon is not yet.
            ("y", 0, "n", "y y", "y y", 9, false),
            ("y", 0, "n", "y y", "yn y", 9, false),
            ("y", 0, "n", "y y", "yn yn", 1, false),
            ("y", 0, "n", "y y", "yn yn", 2, true),
            // What was there at the first look may have come just then.
            ("y", 0, "n", "yn yn", "yn yn", 1, false),
            ("y", 0, "n", "yn yn", "yn yn", 2, true),
            // API servers may be behind that trust what the bundles have lost.
            ("y", 0, "n", "y y", "n n", 1, false),
            ("y", 0, "n", "- -", "n n", 1, false),
            ("y", 0, "n", "- -", "n n", 2, true),
            // What has expired, nobody trusts.
            ("y", 8, "n", "y y", "y y", 0, true),
            // Without webhooks nobody does.
            ("y", 0, "n", "", "", 9, false),
            // All of them count.
            ("y", 0, "ns", "y y", "yn yn", 2, false),
            ("y", 0, "ns", "y y", "yns yns", 2, true),
        ] {
            let shown = letters.chars().next();
            let shown = shown.map(|letter| self::served(&cast, letter, cast.now - DAY * days));
            let live = cast.observed_bundles(first, then, MINUTE * wait);
            let may = can_serve(
                &cast.bundle(another),
                shown.as_ref(),
                &live,
                delay,
                cast.now,
            );
            let row = format!("{letters:?}, {days} d, {another}, {first:?}, {then:?}, {wait} min");
            assert_eq!(may, wanted, "{row}");
        }
    }

    #[test]
    fn an_authority_that_lives_for_a_leaf_is_worth_showing() {
        let cast = Fixtures::new();
        // Shown, days ago, signer, from now, is it worth it.
        for (letters, days, signer, later, wanted) in [
            ("", 0, 'y', 0, true),
            // It lives for a day, and then for none.
            ("", 0, 'y', 354, true),
            ("", 0, 'x', 0, false),
            ("n", 0, 'y', 0, true),
            ("n", 0, 'x', 0, false),
            ("n", 0, 'o', 0, true),
            ("n", 8, 'x', 0, false),
            // It renews itself.
            ("y", 0, 'y', 0, false),
            ("y", 8, 'y', 0, false),
        ] {
            let now = cast.now + DAY * later;
            let shown = letters.chars().next();
            let shown = shown.map(|letter| self::served(&cast, letter, cast.now - DAY * days));
            let worth = should_switch_to(&cast.ca(signer), shown.as_ref(), LEAF, now);
            assert_eq!(worth, wanted, "{letters:?}, {days} d, {signer}, {later} d");
        }
        // A week is left of it, and then less.
        for (hours, wanted) in [(0, true), (1, false)] {
            let now = cast.ca('o').info().not_after - LEAF + HOUR * hours;
            let shown = served(&cast, 'n', now);
            assert_eq!(
                should_switch_to(&cast.ca('o'), Some(&shown), LEAF, now),
                wanted
            );
        }
    }

    #[test]
    fn the_next_leaf_is_due_by_either_clock() {
        let cast = Fixtures::new();
        let (wall, stopwatch) = (cast.now, Instant::now());
        let signature = served(&cast, 'y', wall).issued_by.unwrap();
        let two_thirds = LEAF * 2 / 3;
        for (by_wall, by_stopwatch, wanted) in [
            (Duration::ZERO, Duration::ZERO, false),
            (two_thirds - HOUR, two_thirds - HOUR, false),
            (two_thirds + HOUR, two_thirds + HOUR, true),
            // The machine was suspended, or the clock jumped ahead.
            (two_thirds + HOUR, Duration::ZERO, true),
            // The clock was set back.
            (Duration::ZERO, two_thirds + HOUR, true),
            // Its authority has ended.
            (DAY * 400, two_thirds + HOUR, false),
        ] {
            let now = Clocks {
                wall: wall + by_wall,
                monotonic: stopwatch + by_stopwatch,
            };
            assert_eq!(
                signature.is_renewal_due(now),
                wanted,
                "{by_wall:?}, {by_stopwatch:?}"
            );
        }
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_make_the_next_leaf_end_sooner() {
        let cast = Fixtures::new();
        let first = served(&cast, 'y', cast.now);
        let issue = |wall, after| {
            let now = Clocks {
                wall,
                monotonic: Instant::now() + after,
            };
            let last = first.issued_by.as_ref();
            let next =
                ServedCertificate::issue(cast.ca('y'), &["a".into()], LEAF, last, now).unwrap();
            let end = next.certified_key.not_after();
            let days = end.duration_since(cast.now).unwrap().as_secs_f64() / DAY.as_secs_f64();
            (days * 10.0).round() / 10.0
        };
        for (wall, after, wanted) in [
            (cast.now + DAY * 5, DAY * 5, 12.0),
            (cast.now, DAY * 5, 12.0),
            (cast.now - DAY * 9, DAY * 5, 12.0),
            (cast.now + DAY * 20, DAY * 5, 27.0),
        ] {
            assert_eq!(issue(wall, after), wanted, "{wall:?}, {after:?}");
        }
    }
}
