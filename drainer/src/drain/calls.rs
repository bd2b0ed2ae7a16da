//! The calls by which a drain changes Envoy: which one is next, decided from what Envoy has accepted.

use tokio::time::Instant;

use super::health_failure::FailHealthWhen;
use crate::envoy::admin_call::AdminCall;

/// The calls of one drain that change Envoy. By default, health is failed at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DrainCalls {
    /// `/healthcheck/fail`.
    pub(crate) health: CallState,
    /// `/drain_listeners`.
    pub(crate) listeners: CallState,
    /// When health is failed.
    pub(crate) fail_health_when: FailHealthWhen,
}

/// The state of a call to Envoy that is retried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CallState {
    /// Not made, or without a response.
    #[default]
    Pending,
    Accepted,
    /// Rejected, which a retry does not change.
    Rejected,
}

/// A stage of a drain, which decides what it may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainStage {
    /// Envoy is a healthy endpoint: nothing.
    Serving,
    /// The pod may live on: what can be undone.
    Soft,
    /// The pod ends: everything.
    Full,
}

// === impl DrainCalls ===

impl DrainCalls {
    /// Returns true if Envoy has responded to one of them.
    pub(crate) fn have_begun(&self) -> bool {
        [self.health, self.listeners] != [CallState::Pending; 2]
    }

    /// Returns true if the drain has not failed Envoy's health, and does not do so at its start.
    pub(crate) fn is_health_kept(&self) -> bool {
        self.health == CallState::Pending && self.fail_health_when != FailHealthWhen::AtOnce
    }

    /// Decides which call is due at `now`; `no_http3_since` as in [`FailHealthWhen::is_due`].
    ///
    /// `/drain_listeners` comes second where both are due, since nothing undoes it.
    pub(crate) fn next(
        &self,
        now: Instant,
        no_http3_since: Option<Instant>,
        stage: DrainStage,
    ) -> Option<AdminCall> {
        let is_health_due = self.fail_health_when.is_due(now, no_http3_since)
            || self.listeners == CallState::Rejected;
        match (self.health, self.listeners) {
            _ if stage == DrainStage::Serving => None,
            (CallState::Pending, _) if is_health_due => Some(AdminCall::FailHealth),
            (_, CallState::Pending) if stage == DrainStage::Full => Some(AdminCall::DrainListeners),
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
        use AdminCall::{DrainListeners, FailHealth};
        use CallState::{Accepted, Pending, Rejected};
        use DrainStage::{Full, Serving, Soft};
        let now = Instant::now();
        let at_once = FailHealthWhen::AtOnce;
        let later = FailHealthWhen::At(now + Duration::from_secs(1));
        let due = FailHealthWhen::At(now);
        let table = [
            // (when health fails, its call, that of the listeners, stage, next call)
            (at_once, Pending, Pending, Full, Some(FailHealth)),
            (at_once, Accepted, Pending, Full, Some(DrainListeners)),
            (at_once, Rejected, Pending, Full, Some(DrainListeners)),
            (at_once, Accepted, Accepted, Full, None),
            (at_once, Accepted, Rejected, Full, None),
            (at_once, Pending, Pending, Serving, None),
            (at_once, Pending, Pending, Soft, Some(FailHealth)),
            (at_once, Accepted, Pending, Soft, None),
            (later, Pending, Pending, Full, Some(DrainListeners)),
            (later, Pending, Accepted, Full, None),
            (later, Pending, Rejected, Full, Some(FailHealth)),
            (due, Pending, Accepted, Full, Some(FailHealth)),
            (due, Pending, Pending, Full, Some(FailHealth)),
            (due, Accepted, Accepted, Full, None),
        ];
        for (fail_health_when, health, listeners, stage, want) in table {
            let calls = DrainCalls {
                health,
                listeners,
                fail_health_when,
            };
            let next = calls.next(now, None, stage);
            assert_eq!(next, want, "{calls:?}, {stage:?}");
        }
    }
}
