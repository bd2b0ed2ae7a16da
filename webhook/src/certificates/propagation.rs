//! What API servers trust: the `caBundle`s as they were last read, and since when.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use super::pki::bundle::Bundle;

/// The `caBundle` of every webhook of ours, and since when each certificate has been in all of them.
///
/// That is measured by this process's own stopwatch, not by times that others wrote: their clocks
/// may be minutes off, and the API servers' delay is two.
#[derive(Debug, Default)]
pub struct ObservedBundles {
    bundles: Vec<Bundle>,
    written_at: Option<SystemTime>,
    window: Option<ObservationWindow>,
    certificates: Vec<ObservedCertificate>,
}

/// So many delays ago is not lately by a clock that is minutes ahead either.
const CLOCK_SKEW_FACTOR: u32 = 4;

#[derive(Debug, Clone, Copy)]
struct ObservationWindow {
    first: Instant,
    last: Instant,
}

#[derive(Debug)]
struct ObservedCertificate {
    certificate: CertificateDer<'static>,
    since: Instant,
}

// === impl ObservedBundles ===

impl ObservedBundles {
    /// Takes what was read at `now`, no bundles where there are no webhooks, and when they were
    /// `written`, as far as that is known.
    pub fn observe(&mut self, bundles: Vec<Bundle>, written: Option<SystemTime>, now: Instant) {
        let first = self.window.map_or(now, |look| look.first);
        self.window = Some(ObservationWindow { first, last: now });
        self.bundles = bundles;
        self.written_at = written;
        let Some((one, others)) = self.bundles.split_first() else {
            self.certificates.clear();
            return;
        };
        let everywhere =
            one.filter(|certificate| others.iter().all(|bundle| bundle.contains(certificate)));
        self.certificates
            .retain(|seen| everywhere.contains(&seen.certificate));
        for certificate in everywhere.iter() {
            if !self
                .certificates
                .iter()
                .any(|seen| seen.certificate == *certificate)
            {
                self.certificates.push(ObservedCertificate {
                    certificate: certificate.clone(),
                    since: now,
                });
            }
        }
    }

    /// The bundles.
    #[must_use]
    pub fn bundles(&self) -> &[Bundle] {
        &self.bundles
    }

    /// When a replica last changed a bundle, by the API server's clock, as far as that is known.
    #[must_use]
    pub fn written_at(&self) -> Option<SystemTime> {
        self.written_at
    }

    /// What any of them has.
    #[must_use]
    pub fn union(&self) -> Bundle {
        let bundles = self.bundles.iter();
        bundles.fold(Bundle::default(), Bundle::union)
    }

    /// Returns true if every API server has learnt to trust `anchors`, as far as this process saw
    /// itself: it found them in every webhook's bundle for `delay`.
    ///
    /// Or they are alone: nothing else is in there, and nothing else is `in_use` by this process, so
    /// that nothing was trusted before them that could be lost. That others use nothing else either
    /// is told by the bundles, since every replica asks them for what it shows.
    #[must_use]
    pub fn is_propagated(&self, anchors: &Bundle, in_use: &Bundle, delay: Duration) -> bool {
        let (Some(since), Some(look)) = (self.since(anchors), self.window) else {
            return false;
        };
        let alone = self
            .bundles
            .iter()
            .chain([in_use])
            .all(|bundle| anchors.contains_all(bundle));
        alone || look.last.duration_since(since) >= delay
    }

    /// Like [`Live::has_settled`] while they are in use, or true if they were there before this process
    /// was, and by the wall clock nobody has written a bundle lately. Only then does the wall clock
    /// count, and with a margin, since it is compared with the API server's.
    #[must_use]
    pub fn is_probably_propagated(
        &self,
        anchors: &Bundle,
        delay: Duration,
        now: SystemTime,
    ) -> bool {
        let at_first = match (self.since(anchors), self.window) {
            (Some(since), Some(look)) => since == look.first,
            _ => false,
        };
        let ago = self.written_at.map(|written| now.duration_since(written));
        let long_ago = matches!(ago, Some(Ok(ago)) if ago >= delay * CLOCK_SKEW_FACTOR);
        at_first && long_ago || self.is_propagated(anchors, anchors, delay)
    }

    /// Since when all of `anchors` have been in every bundle.
    fn since(&self, anchors: &Bundle) -> Option<Instant> {
        let since = |anchor: &CertificateDer<'_>| {
            let seen = self
                .certificates
                .iter()
                .find(|seen| seen.certificate == *anchor);
            seen.map(|seen| seen.since)
        };
        // No anchors are trusted by nobody.
        let each: Option<Vec<_>> = anchors.iter().map(since).collect();
        each?.into_iter().max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_secs(120);

    fn bundle(names: &str) -> Bundle {
        let certificates = names.bytes().map(|name| CertificateDer::from(vec![name]));
        certificates.collect()
    }

    /// Looks at bundles in these states, ten seconds apart, and a last time after `wait`.
    fn observe_all(looks: &[&[&str]], wait: Duration) -> ObservedBundles {
        let written = SystemTime::UNIX_EPOCH;
        let mut live = ObservedBundles::default();
        let mut now = Instant::now();
        let read = |look: &[&str]| look.iter().copied().map(bundle).collect::<Vec<_>>();
        for look in looks {
            live.observe(read(look), Some(written), now);
            now += Duration::from_secs(10);
        }
        if let Some(last) = looks.last() {
            live.observe(
                read(last),
                Some(written),
                now - Duration::from_secs(10) + wait,
            );
        }
        live
    }

    #[test]
    fn trusted_is_what_every_webhook_has() {
        for (looks, anchors, wanted) in [
            ([["a", "a"].as_slice()].as_slice(), "a", true),
            (&[&["ab", "ca"]], "a", true),
            (&[&["ab", "ab"]], "ab", true),
            (&[&["a", "b"]], "a", false),
            (&[&["a", ""]], "a", false),
            (&[&["a", "ab"]], "ab", false),
            (&[&["a"]], "", false),
            (&[&[]], "a", false),
            (&[], "a", false),
            (&[&["a"], &["b"]], "a", false),
        ] {
            let live = observe_all(looks, Duration::ZERO);
            let trusts = live.is_propagated(&bundle(anchors), &Bundle::default(), Duration::ZERO);
            assert_eq!(trusts, wanted, "{anchors} in {looks:?}");
        }
    }

    #[test]
    fn settled_is_what_was_seen_for_the_delay_without_a_gap_or_alone() {
        let soon = DELAY - Duration::from_secs(1);
        for (looks, wait, anchors, settled, likely) in [
            ([["ab"].as_slice()].as_slice(), DELAY, "a", true, true),
            (&[&["ab"]], soon, "a", false, true),
            (&[&["b"], &["ab"]], soon, "a", false, false),
            (&[&["b"], &["ab"]], DELAY, "a", true, true),
            (&[&["b"], &["ab"]], DELAY, "b", true, true),
            // The later one decides.
            (&[&["b"], &["ab"]], soon, "ab", true, true),
            (&[&["bc"], &["abc"]], soon, "ab", false, false),
            // A gap, in one webhook even, starts the count anew.
            (&[&["ab"], &["b"], &["ab"]], soon, "a", false, false),
            (
                &[&["ab", "ab"], &["ab", "b"], &["ab", "ab"]],
                soon,
                "a",
                false,
                false,
            ),
            // Nothing but them is trusted, so nothing else was shown.
            (&[&[""], &["a"]], Duration::ZERO, "a", true, true),
            (
                &[&["", "b"], &["a", "ab"]],
                Duration::ZERO,
                "a",
                false,
                false,
            ),
            // Without webhooks there is no news to spread.
            (&[&[]], DELAY, "a", false, false),
            (&[], DELAY, "a", false, false),
        ] {
            let live = observe_all(looks, wait);
            let anchors = bundle(anchors);
            let row = format!("{anchors:?} in {looks:?} after {wait:?}");
            assert_eq!(
                live.is_propagated(&anchors, &Bundle::default(), DELAY),
                settled,
                "{row}"
            );
            assert_eq!(
                live.is_probably_propagated(&anchors, DELAY, SystemTime::UNIX_EPOCH + DELAY * 4),
                likely,
                "{row}"
            );
        }
    }

    #[test]
    fn what_this_process_shows_is_not_alone_though_the_bundles_lost_it() {
        let soon = DELAY - Duration::from_secs(1);
        for (in_use, wait, settled) in [
            ("", soon, true),
            ("a", soon, true),
            ("b", soon, false),
            ("ab", soon, false),
            ("b", DELAY, true),
        ] {
            let live = observe_all(&[&[""], &["a"]], wait);
            let found = live.is_propagated(&bundle("a"), &bundle(in_use), DELAY);
            assert_eq!(found, settled, "{in_use:?} after {wait:?}");
        }
    }

    #[test]
    fn what_was_there_at_first_has_most_likely_settled_unless_it_was_written_lately() {
        let epoch = SystemTime::UNIX_EPOCH;
        let soon = Duration::from_secs(1);
        for (bundles, written, now, wait, likely) in [
            ("ab", Some(epoch), epoch + DELAY * 4, soon, true),
            // By a clock that is some minutes ahead.
            ("ab", Some(epoch), epoch + DELAY * 4 - soon, soon, false),
            // The stopwatch says more than a clock that is behind.
            ("ab", Some(epoch + DELAY), epoch, soon, false),
            ("ab", Some(epoch + DELAY), epoch, DELAY, true),
            ("ab", None, epoch + DELAY * 4, soon, false),
            ("ab", None, epoch + DELAY * 4, DELAY, true),
            // There was nothing before it.
            ("a", Some(epoch), epoch, soon, true),
        ] {
            let mut live = ObservedBundles::default();
            let first = Instant::now();
            live.observe(vec![bundle(bundles)], written, first);
            live.observe(vec![bundle(bundles)], written, first + wait);
            let found = live.is_probably_propagated(&bundle("a"), DELAY, now);
            assert_eq!(found, likely, "{bundles}, {written:?}, {now:?}, {wait:?}");
        }
    }
}
