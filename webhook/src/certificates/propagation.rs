//! The observed `caBundle`s, and since when each CA has been in all of them: how far trust in it has propagated.

use std::collections::HashMap;
use std::mem;
use std::time::{Duration, SystemTime};

use pki::bundle::Bundle;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

/// The `caBundle` of each of our webhooks, and since when each certificate has been in all of them.
///
/// That is measured by this process's monotonic clock, not by the times that others wrote: their clocks may be minutes
/// off, and the activation delay is two minutes.
#[derive(Debug, Default)]
pub(super) struct ObservedBundles {
    pub(super) bundles: Vec<Bundle>,
    /// When a replica last changed a bundle, by the API server's clock, if known.
    pub(super) written_at: Option<SystemTime>,
    first_observed: Option<Instant>,
    last_observed: Option<Instant>,
    /// Since when there have been no bundles.
    missing_since: Option<Instant>,
    /// The certificates that are in every bundle.
    since: HashMap<CertificateDer<'static>, Instant>,
}

/// Multiple of the activation delay that allows for clock skew with the API server.
const CLOCK_SKEW_FACTOR: u32 = 4;

// === impl ObservedBundles ===

impl ObservedBundles {
    /// Records what was read at `now`: no bundles if there are no webhooks, and when they were `written`, if known.
    pub(super) fn observe(
        &mut self,
        bundles: Vec<Bundle>,
        written: Option<SystemTime>,
        now: Instant,
    ) {
        self.first_observed.get_or_insert(now);
        self.last_observed = Some(now);
        self.bundles = bundles;
        self.written_at = written;
        let mut previous = mem::take(&mut self.since);
        let Some((one, others)) = self.bundles.split_first() else {
            self.missing_since.get_or_insert(now);
            return;
        };
        self.missing_since = None;
        let is_in_all = |der: &&CertificateDer<'_>| others.iter().all(|other| other.contains(der));
        self.since = one
            .iter()
            .filter(is_in_all)
            .map(|der| (der.clone(), previous.remove(der).unwrap_or(now)))
            .collect();
    }

    /// For how long there have been no bundles.
    pub(super) fn missing_for(&self) -> Duration {
        match (self.missing_since, self.last_observed) {
            (Some(since), Some(last)) => last.duration_since(since),
            _ => Duration::ZERO,
        }
    }

    /// The certificates that are in any bundle.
    pub(super) fn union(&self) -> Bundle {
        let bundles = self.bundles.iter();
        bundles.fold(Bundle::default(), Bundle::union)
    }

    /// Returns true if every API server trusts `anchors`, as far as this process can know: it has observed them in
    /// every bundle for `delay`.
    ///
    /// Or if the bundles hold nothing else and this process uses nothing else (`in_use`), so that there is no trust
    /// that could be lost. Other replicas use nothing else either, since each adds to the bundles what it uses.
    pub(super) fn is_propagated(&self, anchors: &Bundle, in_use: &Bundle, delay: Duration) -> bool {
        let (Some(since), Some(last)) = (self.since(anchors), self.last_observed) else {
            return false;
        };
        let mut bundles = self.bundles.iter().chain([in_use]);
        let is_alone = bundles.all(|bundle| anchors.contains_all(bundle));
        is_alone || last.duration_since(since) >= delay
    }

    /// As [`Self::is_propagated`] for anchors in use, but also true for a process that has just started if nothing has
    /// changed for long: the anchors were there at the first observation, and no replica has changed a bundle for
    /// [`CLOCK_SKEW_FACTOR`] times `delay`, by this wall clock and the API server's.
    pub(super) fn is_probably_propagated(
        &self,
        anchors: &Bundle,
        delay: Duration,
        now: SystemTime,
    ) -> bool {
        let since = self.since(anchors);
        let since_first = since.is_some() && since == self.first_observed;
        let age = self.written_at.map(|written| now.duration_since(written));
        let is_unchanged = matches!(age, Some(Ok(age)) if age >= delay * CLOCK_SKEW_FACTOR);
        since_first && is_unchanged || self.is_propagated(anchors, anchors, delay)
    }

    /// Since when all of `anchors` have been in every bundle; `None` for no anchors.
    fn since(&self, anchors: &Bundle) -> Option<Instant> {
        let each: Option<Vec<_>> = anchors.iter().map(|der| self.since.get(der)).collect();
        each?.into_iter().max().copied()
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

    /// Observes bundles in these states, ten seconds apart, and the last one again after `wait`.
    fn observe_all(states: &[&[&str]], wait: Duration) -> ObservedBundles {
        let written = SystemTime::UNIX_EPOCH;
        let mut observed = ObservedBundles::default();
        let mut now = Instant::now();
        let read = |state: &[&str]| state.iter().copied().map(bundle).collect::<Vec<_>>();
        for state in states {
            observed.observe(read(state), Some(written), now);
            now += Duration::from_secs(10);
        }
        if let Some(last) = states.last() {
            observed.observe(
                read(last),
                Some(written),
                now - Duration::from_secs(10) + wait,
            );
        }
        observed
    }

    #[test]
    fn propagated_cas_are_in_every_bundle() {
        for (states, anchors, wanted) in [
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
            let observed = observe_all(states, Duration::ZERO);
            let propagated =
                observed.is_propagated(&bundle(anchors), &Bundle::default(), Duration::ZERO);
            assert_eq!(propagated, wanted, "{anchors} in {states:?}");
        }
    }

    #[test]
    fn propagation_needs_the_whole_delay_or_no_other_ca() {
        let soon = DELAY - Duration::from_secs(1);
        for (states, wait, anchors, propagated, probably) in [
            ([["ab"].as_slice()].as_slice(), DELAY, "a", true, true),
            (&[&["ab"]], soon, "a", false, true),
            (&[&["b"], &["ab"]], soon, "a", false, false),
            (&[&["b"], &["ab"]], DELAY, "a", true, true),
            (&[&["b"], &["ab"]], DELAY, "b", true, true),
            // The later one counts.
            (&[&["b"], &["ab"]], soon, "ab", true, true),
            (&[&["bc"], &["abc"]], soon, "ab", false, false),
            // A gap, even in one bundle, restarts the delay.
            (&[&["ab"], &["b"], &["ab"]], soon, "a", false, false),
            (
                &[&["ab", "ab"], &["ab", "b"], &["ab", "ab"]],
                soon,
                "a",
                false,
                false,
            ),
            // Nothing else is trusted, so nothing else is served.
            (&[&[""], &["a"]], Duration::ZERO, "a", true, true),
            (
                &[&["", "b"], &["a", "ab"]],
                Duration::ZERO,
                "a",
                false,
                false,
            ),
            // Without webhooks nothing propagates.
            (&[&[]], DELAY, "a", false, false),
            (&[], DELAY, "a", false, false),
        ] {
            let observed = observe_all(states, wait);
            let anchors = bundle(anchors);
            let row = format!("{anchors:?} in {states:?} after {wait:?}");
            assert_eq!(
                observed.is_propagated(&anchors, &Bundle::default(), DELAY),
                propagated,
                "{row}"
            );
            assert_eq!(
                observed.is_probably_propagated(
                    &anchors,
                    DELAY,
                    SystemTime::UNIX_EPOCH + DELAY * 4
                ),
                probably,
                "{row}"
            );
        }
    }

    #[test]
    fn ca_in_use_counts_though_the_bundles_lost_it() {
        let soon = DELAY - Duration::from_secs(1);
        for (in_use, wait, wanted) in [
            ("", soon, true),
            ("a", soon, true),
            ("b", soon, false),
            ("ab", soon, false),
            ("b", DELAY, true),
        ] {
            let observed = observe_all(&[&[""], &["a"]], wait);
            let propagated = observed.is_propagated(&bundle("a"), &bundle(in_use), DELAY);
            assert_eq!(propagated, wanted, "{in_use:?} after {wait:?}");
        }
    }

    #[test]
    fn unchanged_bundles_are_probably_propagated() {
        let epoch = SystemTime::UNIX_EPOCH;
        let soon = Duration::from_secs(1);
        for (bundles, written, now, wait, wanted) in [
            ("ab", Some(epoch), epoch + DELAY * 4, soon, true),
            // By a clock that is some minutes ahead.
            ("ab", Some(epoch), epoch + DELAY * 4 - soon, soon, false),
            // The wall clock is behind, so the monotonic clock counts.
            ("ab", Some(epoch + DELAY), epoch, soon, false),
            ("ab", Some(epoch + DELAY), epoch, DELAY, true),
            ("ab", None, epoch + DELAY * 4, soon, false),
            ("ab", None, epoch + DELAY * 4, DELAY, true),
            // There is no other CA.
            ("a", Some(epoch), epoch, soon, true),
        ] {
            let mut observed = ObservedBundles::default();
            let first = Instant::now();
            observed.observe(vec![bundle(bundles)], written, first);
            observed.observe(vec![bundle(bundles)], written, first + wait);
            let probably = observed.is_probably_propagated(&bundle("a"), DELAY, now);
            assert_eq!(
                probably, wanted,
                "{bundles}, {written:?}, {now:?}, {wait:?}"
            );
        }
    }
}
