//! The calls by which a drain changes Envoy: which one is next, decided from what Envoy has accepted.

use tokio::time::Instant;

use crate::health_failure::FailHealthWhen;

/// The calls of one drain that change Envoy.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrainCalls {
    /// `/healthcheck/fail`.
    pub(super) health: CallState,
    /// `/drain_listeners`.
    pub(super) listeners: CallState,
    /// When health is failed.
    pub(super) fail_health_when: FailHealthWhen,
}

/// The state of a call to Envoy that is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallState {
    /// Not made, or without a response.
    Pending,
    Accepted,
    /// Rejected, which a retry does not change.
    Rejected,
}

/// A call that changes Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainCall {
    /// `/healthcheck/fail`.
    FailHealth,
    /// `/drain_listeners`.
    DrainListeners,
}

// === impl DrainCalls ===

impl DrainCalls {
    /// The calls of a drain that fails Envoy's health at once.
    pub(super) fn new() -> Self {
        Self {
            health: CallState::Pending,
            listeners: CallState::Pending,
            fail_health_when: FailHealthWhen::AtOnce,
        }
    }

    /// Returns true if Envoy has responded to one of them.
    pub(super) fn have_begun(&self) -> bool {
        [self.health, self.listeners] != [CallState::Pending; 2]
    }

    /// Returns true if the drain has not failed Envoy's health, and does not do so at its start.
    pub(super) fn is_health_kept(&self) -> bool {
        self.health == CallState::Pending && self.fail_health_when != FailHealthWhen::AtOnce
    }

    /// Decides which call is due at `now`; `no_http3_since` as in [`FailHealthWhen::is_due`].
    ///
    /// `/drain_listeners` comes second where both are due, since nothing undoes it, and only in a pod that is known to
    /// terminate.
    pub(super) fn next(
        &self,
        now: Instant,
        no_http3_since: Option<Instant>,
        is_pod_ending: bool,
    ) -> Option<DrainCall> {
        let is_health_due = self.fail_health_when.is_due(now, no_http3_since)
            || self.listeners == CallState::Rejected;
        match (self.health, self.listeners) {
            (CallState::Pending, _) if is_health_due => Some(DrainCall::FailHealth),
            (_, CallState::Pending) if is_pod_ending => Some(DrainCall::DrainListeners),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn next_call_depends_on_the_pod_and_on_what_envoy_has_accepted() {
        use CallState::{Accepted, Pending, Rejected};
        use DrainCall::{DrainListeners, FailHealth};
        let now = Instant::now();
        let at_once = FailHealthWhen::AtOnce;
        let later = FailHealthWhen::At(now + Duration::from_secs(1));
        let due = FailHealthWhen::At(now);
        let table = [
            // (when health fails, its call, that of the listeners, the pod is terminating, next call)
            (at_once, Pending, Pending, true, Some(FailHealth)),
            (at_once, Accepted, Pending, true, Some(DrainListeners)),
            (at_once, Rejected, Pending, true, Some(DrainListeners)),
            (at_once, Accepted, Accepted, true, None),
            (at_once, Accepted, Rejected, true, None),
            (at_once, Pending, Pending, false, Some(FailHealth)),
            (at_once, Accepted, Pending, false, None),
            (later, Pending, Pending, true, Some(DrainListeners)),
            (later, Pending, Accepted, true, None),
            (later, Pending, Rejected, true, Some(FailHealth)),
            (due, Pending, Accepted, true, Some(FailHealth)),
            (due, Pending, Pending, true, Some(FailHealth)),
            (due, Accepted, Accepted, true, None),
        ];
        for (fail_health_when, health, listeners, is_pod_ending, want) in table {
            let calls = DrainCalls {
                health,
                listeners,
                fail_health_when,
            };
            let next = calls.next(now, None, is_pod_ending);
            assert_eq!(next, want, "{calls:?}, {is_pod_ending}");
        }
    }
}
