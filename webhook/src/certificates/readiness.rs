//! When a replica may be called for the first time.

use std::time::Duration;

use tokio::time::Instant;

use super::propagation::ObservedBundles;
use super::serving_policy::{Clocks, ServedCertificate};

/// Without a webhook configuration nobody calls, and who installs the webhook before it may wait for
/// the webhook to be ready.
const NO_WEBHOOKS_GRACE: Duration = Duration::from_secs(30);

/// Whether a replica may be called.
#[derive(Debug, Default)]
pub struct ServingReadiness {
    no_webhooks_since: Option<Instant>,
}

/// Why it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Every API server most likely trusts what it shows.
    Trusted,
    /// There has been no webhook for a while.
    NoWebhookConfiguration,
}

// === impl ServingReadiness ===

impl ServingReadiness {
    /// Tells whether a replica that shows `shown` may be called, just after a look at the webhooks.
    pub fn update(
        &mut self,
        shown: Option<&ServedCertificate>,
        live: &ObservedBundles,
        activation_delay: Duration,
        now: Clocks,
    ) -> Option<Ready> {
        if live.bundles().is_empty() {
            let since = *self.no_webhooks_since.get_or_insert(now.monotonic);
            let uncalled = now.monotonic.duration_since(since) >= NO_WEBHOOKS_GRACE;
            return uncalled.then_some(Ready::NoWebhookConfiguration);
        }
        self.no_webhooks_since = None;
        let shown = shown.filter(|shown| shown.is_valid(now.wall))?;
        live.is_probably_propagated(&shown.anchors, activation_delay, now.wall)
            .then_some(Ready::Trusted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::testing::{DAY, Fixtures, MINUTE};

    #[test]
    fn a_replica_is_ready_when_what_it_shows_is_trusted_or_nobody_calls() {
        let cast = Fixtures::new();
        let stopwatch = Instant::now();
        // Days ago that its leaf was issued; bundles at the first look, then; seconds later; why.
        for (shown, first, then, later, wanted) in [
            (Some(0), "y y", "y y", 0, Some(Ready::Trusted)),
            (Some(0), "yo yo", "yo yo", 0, Some(Ready::Trusted)),
            (Some(0), "o o", "yo yo", 0, None),
            (Some(0), "o o", "yo yo", 119, None),
            (Some(0), "o o", "yo yo", 120, Some(Ready::Trusted)),
            (Some(0), "o o", "yo o", 120, None),
            // It is the first there is.
            (Some(0), "- -", "y y", 0, Some(Ready::Trusted)),
            (None, "y y", "y y", 120, None),
            (Some(8), "y y", "y y", 120, None),
            (Some(0), "", "", 29, None),
            (Some(0), "", "", 30, Some(Ready::NoWebhookConfiguration)),
            (None, "", "", 30, Some(Ready::NoWebhookConfiguration)),
        ] {
            let mut readiness = ServingReadiness::default();
            let now = |later| Clocks {
                wall: cast.now,
                monotonic: stopwatch + Duration::from_secs(later),
            };
            let issued = shown.map(|ago: u32| Clocks {
                wall: cast.now - DAY * ago,
                monotonic: stopwatch,
            });
            let leaf = issued.map(|now| {
                ServedCertificate::issue(cast.ca('y'), &["a".into()], DAY * 7, None, now).unwrap()
            });
            let live = |wait| cast.observed_bundles(first, then, Duration::from_secs(wait));
            let delay = MINUTE * 2;
            readiness.update(leaf.as_ref(), &live(0), delay, now(0));
            let reached = readiness.update(leaf.as_ref(), &live(later), delay, now(later));
            assert_eq!(reached, wanted, "{shown:?}, {first:?}, {then:?}, {later} s");
        }
    }

    #[test]
    fn the_wait_for_webhooks_starts_anew_when_they_go() {
        let cast = Fixtures::new();
        let mut readiness = ServingReadiness::default();
        let start = Instant::now();
        let mut reached = |bundles, later| {
            let now = Clocks {
                wall: cast.now,
                monotonic: start + Duration::from_secs(later),
            };
            readiness.update(
                None,
                &cast.observed_bundles(bundles, bundles, Duration::ZERO),
                MINUTE,
                now,
            )
        };
        assert_eq!(reached("", 0), None);
        assert_eq!(reached("-", 20), None);
        assert_eq!(reached("", 40), None);
        assert_eq!(reached("", 69), None);
        assert_eq!(reached("", 70), Some(Ready::NoWebhookConfiguration));
    }
}
