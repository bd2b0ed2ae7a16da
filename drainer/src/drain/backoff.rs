//! How often Envoy's hook alone may have Envoy's health failed.
//!
//! The hook's path holds a token, which readers of the pod know. Envoy's hook without the drainer's
//! means that Envoy is restarted alone; where Envoy then lives on, somebody else has called it. The
//! health of an Envoy that was not restarted is failed for such a call only after a growing while.

use std::time::Duration;

use tokio::time::Instant;

/// After the first time, and then twice as long each time.
const MIN_PAUSE: Duration = Duration::from_secs(60);

const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// All is forgotten when no hook came alone for so long. As long as the longest pause, so that
/// waiting for it gains a caller nothing.
const RESET_AFTER: Duration = MAX_PAUSE;

/// How long no hook may have come alone for one to be believed.
const RECENT_HOOK_WINDOW: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// How often health was failed for a hook that did not end Envoy.
    failures: u32,
    /// Until when health is not failed again.
    blocked_until: Option<Instant>,
    /// When a hook last came alone.
    last_hook_at: Option<Instant>,
}

// === impl Backoff ===

impl Backoff {
    /// Returns true if health may be failed for a hook that has come alone, at `now`.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        if !self.has_failures(now) {
            *self = Self::default();
        }
        self.last_hook_at = Some(now);
        !self.is_active(now)
    }

    /// Returns true if a hook that came alone did not end Envoy, and that is not forgotten yet.
    pub(super) fn has_failures(&self, now: Instant) -> bool {
        let is_recent = |last| now < last + RESET_AFTER;
        self.failures > 0 && self.last_hook_at.is_some_and(is_recent)
    }

    /// Returns true while health may not be failed again.
    pub(super) fn is_active(&self, now: Instant) -> bool {
        self.blocked_until.is_some_and(|until| now < until)
    }

    /// Returns true if no hook has come alone for a while.
    pub(super) fn has_no_recent_hook(&self, now: Instant) -> bool {
        self.last_hook_at
            .is_none_or(|last| now >= last + RECENT_HOOK_WINDOW)
    }

    /// Health was failed, and the hook returned at `now`. Returns how long that will not be done again,
    /// unless Envoy turns out to be [`restarted`](Self::restarted).
    pub(super) fn record_failure(&mut self, now: Instant) -> Duration {
        let pause = MIN_PAUSE.saturating_mul(1 << self.failures.min(6));
        let pause = pause.min(MAX_PAUSE);
        self.failures += 1;
        self.blocked_until = Some(now + pause);
        pause
    }

    /// Another Envoy has started since: the kubelet had called the hook.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn pauses_double_up_to_an_hour() {
        let mut now = Instant::now();
        let mut backoff = Backoff::default();
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(backoff.allows(now));
            assert_eq!(backoff.record_failure(now), minutes * MINUTE);
            // Hooks go on coming.
            now += minutes * MINUTE - MINUTE / 2;
            assert!(backoff.has_no_recent_hook(now));
            assert!(!backoff.allows(now), "{minutes}");
            assert!(
                !backoff.has_no_recent_hook(now + RECENT_HOOK_WINDOW - Duration::from_nanos(1))
            );
            now += MINUTE / 2;
        }
    }

    #[test]
    fn a_restart_or_a_quiet_hour_resets_it() {
        let now = Instant::now();
        let failed = || {
            let mut backoff = Backoff::default();
            assert!(backoff.allows(now));
            backoff.record_failure(now);
            assert!(backoff.allows(now + MINUTE));
            backoff.record_failure(now + MINUTE);
            backoff
        };
        let mut restarted = failed();
        restarted.reset();
        assert!(restarted.allows(now + MINUTE));
        assert_eq!(restarted.record_failure(now + MINUTE), MINUTE);
        for (minutes, pause) in [(60, 4), (61, 1)] {
            let mut backoff = failed();
            let later = now + minutes * MINUTE;
            assert!(backoff.allows(later));
            assert_eq!(backoff.record_failure(later), pause * MINUTE, "{minutes}");
        }
    }
}
