//! The backoff for failing Envoy's health when Envoy's hook is called without the drainer's.
//!
//! That means a restart of Envoy alone. If Envoy then keeps running, the caller was not the kubelet:
//! the hook's path holds a token, which anyone who can read the pod knows. Such calls fail the health
//! of the same Envoy again only after a growing pause.

use std::time::Duration;

use tokio::time::Instant;

/// Pause after the first call; doubled each time.
const MIN_PAUSE: Duration = Duration::from_secs(60);

const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// The backoff is reset after this long without such a call. It is as long as the longest pause, so that a
/// caller gains nothing by waiting for the reset.
const RESET_AFTER: Duration = MAX_PAUSE;

/// Envoy's hook counts as evidence of the pod's termination again after this long without such a call.
const RECENT_HOOK_WINDOW: Duration = Duration::from_secs(30);

/// The backoff state of one Envoy.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// How often health was failed for a call of Envoy's hook alone since Envoy's last restart.
    attempts: u32,
    /// Until when health is not failed again.
    blocked_until: Option<Instant>,
    /// When Envoy's hook was last called alone.
    last_hook_at: Option<Instant>,
}

// === impl Backoff ===

impl Backoff {
    /// Records a call of Envoy's hook alone at `now`, which may fail health unless the backoff [is
    /// active](Self::is_active).
    pub(super) fn record_hook(&mut self, now: Instant) {
        if !self.has_recent_attempts(now) {
            self.reset();
        }
        self.last_hook_at = Some(now);
    }

    /// Returns true if health was failed for the hook alone without a restart of Envoy since, and the last call of
    /// the hook was less than [`RESET_AFTER`] ago.
    pub(super) fn has_recent_attempts(&self, now: Instant) -> bool {
        let is_recent = |last| now < last + RESET_AFTER;
        self.attempts > 0 && self.last_hook_at.is_some_and(is_recent)
    }

    /// Returns true while health may not be failed again.
    pub(super) fn is_active(&self, now: Instant) -> bool {
        self.blocked_until.is_some_and(|until| now < until)
    }

    /// Returns true if Envoy's hook was not called alone within [`RECENT_HOOK_WINDOW`].
    pub(super) fn has_no_recent_hook(&self, now: Instant) -> bool {
        self.last_hook_at
            .is_none_or(|last| now >= last + RECENT_HOOK_WINDOW)
    }

    /// Records that health was failed for a hook that returned at `now`. Health is not failed again for a
    /// while, unless a restart of Envoy [resets](Self::reset) the backoff.
    pub(super) fn record_attempt(&mut self, now: Instant) {
        let pause = MIN_PAUSE.saturating_mul(1 << self.attempts.min(6));
        let pause = pause.min(MAX_PAUSE);
        self.attempts += 1;
        self.blocked_until = Some(now + pause);
    }

    /// Resets the backoff: Envoy was restarted, so the kubelet had called the hook.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Calls the hook.
    fn may_fail_health(backoff: &mut Backoff, now: Instant) -> bool {
        backoff.record_hook(now);
        !backoff.is_active(now)
    }

    #[test]
    fn pauses_double_up_to_an_hour() {
        let mut now = Instant::now();
        let mut backoff = Backoff::default();
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(may_fail_health(&mut backoff, now));
            backoff.record_attempt(now);
            assert_eq!(backoff.blocked_until, Some(now + minutes * MINUTE));
            // Calls continue.
            now += minutes * MINUTE - MINUTE / 2;
            assert!(backoff.has_no_recent_hook(now));
            assert!(!may_fail_health(&mut backoff, now), "{minutes}");
            assert!(
                !backoff.has_no_recent_hook(now + RECENT_HOOK_WINDOW - Duration::from_nanos(1))
            );
            now += MINUTE / 2;
        }
    }

    #[test]
    fn restart_or_an_hour_without_calls_resets() {
        let now = Instant::now();
        let called_twice = || {
            let mut backoff = Backoff::default();
            assert!(may_fail_health(&mut backoff, now));
            backoff.record_attempt(now);
            assert!(may_fail_health(&mut backoff, now + MINUTE));
            backoff.record_attempt(now + MINUTE);
            backoff
        };
        let mut restarted = called_twice();
        restarted.reset();
        assert!(may_fail_health(&mut restarted, now + MINUTE));
        restarted.record_attempt(now + MINUTE);
        assert_eq!(restarted.blocked_until, Some(now + 2 * MINUTE));
        for (minutes, pause) in [(60, 4), (61, 1)] {
            let mut backoff = called_twice();
            let later = now + minutes * MINUTE;
            assert!(may_fail_health(&mut backoff, later));
            backoff.record_attempt(later);
            let until = later + pause * MINUTE;
            assert_eq!(backoff.blocked_until, Some(until), "{minutes}");
        }
    }
}
