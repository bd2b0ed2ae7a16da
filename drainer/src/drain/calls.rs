//! The calls that change Envoy: what it has accepted, which one is next, and whether its health may be failed.

use tokio::time::Instant;

use super::health_failure::FailHealthWhen;
use super::progress::DrainPhase;
use crate::envoy::admin_call::{AdminCall, CallError};

/// What Envoy was told: all that the drainer knows of whether it has failed Envoy's health.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EnvoyCalls {
    /// `/healthcheck/fail` of the last drain.
    health: CallState,
    /// `/drain_listeners` of the last drain.
    listeners: CallState,
    /// When that drain fails health; by default at once.
    pub(crate) fail_health_when: FailHealthWhen,
    /// That drain spares the app's own calls, on OUTBOUND listeners.
    pub(crate) spares_outbound: bool,
    /// This process has called `/healthcheck/fail`, perhaps without a response, and Envoy was not live since.
    pub(crate) is_health_failed: bool,
    /// From when health is restored if it is failed, perhaps by an earlier process. `None` in a drain, and once Envoy is live.
    pub(crate) restore_at: Option<Instant>,
}

/// The state of a call to Envoy that is retried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum CallState {
    /// Not made, or without a response.
    #[default]
    Pending,
    /// Accepted at this time.
    Accepted(Instant),
    /// Rejected, which a retry does not change.
    Rejected,
}

// === impl EnvoyCalls ===

impl EnvoyCalls {
    /// Begins the calls of a drain, which fails health at once unless that is decided otherwise.
    pub(crate) fn begin_drain(&mut self) {
        *self = Self {
            is_health_failed: self.is_health_failed,
            ..Self::default()
        };
    }

    /// Lets the calls of the drain be made again, since another process of Envoy is to be told.
    pub(crate) fn make_again(&mut self) {
        (self.health, self.listeners) = (CallState::Pending, CallState::Pending);
    }

    /// Notes how Envoy has responded to a call at `now`, if it has.
    pub(crate) fn note(&mut self, call: AdminCall, result: &Result<(), CallError>, now: Instant) {
        let state = match result {
            Ok(()) => CallState::Accepted(now),
            Err(error) if error.is_rejection() => CallState::Rejected,
            Err(_) => return,
        };
        match call {
            AdminCall::FailHealth => self.health = state,
            AdminCall::DrainListeners | AdminCall::DrainInboundListeners => self.listeners = state,
            AdminCall::RestoreHealth if result.is_ok() => _ = self.note_live(),
            AdminCall::RestoreHealth => {}
        }
    }

    /// Notes that Envoy is live. Returns true if it has accepted `/healthcheck/fail`: it is another Envoy, or another caller
    /// of the admin interface has restored its health.
    pub(crate) fn note_live(&mut self) -> bool {
        (self.is_health_failed, self.restore_at) = (false, None);
        matches!(self.health, CallState::Accepted(_))
    }

    /// Returns true if a call of the drain was rejected.
    pub(crate) fn is_rejected(&self) -> bool {
        [self.health, self.listeners].contains(&CallState::Rejected)
    }

    /// Returns when the drain failed Envoy's health, if it kept it at first.
    pub(crate) fn late_failure_at(&self) -> Option<Instant> {
        match self.health {
            CallState::Accepted(at) if self.fail_health_when != FailHealthWhen::AtOnce => Some(at),
            _ => None,
        }
    }

    /// Returns true if the drain has not failed Envoy's health, and does not do so at its start.
    pub(crate) fn is_health_kept(&self) -> bool {
        self.health == CallState::Pending && self.fail_health_when != FailHealthWhen::AtOnce
    }

    /// Returns true if health is kept until no client connects any more, and the exit rules count only from then.
    pub(crate) fn is_kept_until_quiet(&self) -> bool {
        self.is_health_kept() && matches!(self.fail_health_when, FailHealthWhen::Quiet(_))
    }

    /// Decides which call is due at `now` in this phase; the other parameters are those of [`FailHealthWhen::is_due`].
    ///
    /// `/drain_listeners` comes second where both are due, and only when the pod ends, since nothing undoes it.
    pub(crate) fn next(
        &self,
        now: Instant,
        no_http3_since: Option<Instant>,
        is_quiet: bool,
        phase: DrainPhase,
    ) -> Option<AdminCall> {
        use AdminCall::{DrainInboundListeners, DrainListeners, FailHealth};
        use DrainPhase::{Draining, SoftDraining};
        let when = self.fail_health_when;
        let is_rejected = self.listeners == CallState::Rejected && when != FailHealthWhen::AtEnd;
        let is_time = when.is_due(now, no_http3_since, is_quiet) || is_rejected;
        let is_health_due = self.health == CallState::Pending && is_time;
        let are_listeners_due = self.listeners == CallState::Pending;
        match phase {
            SoftDraining | Draining if is_health_due => Some(FailHealth),
            Draining if are_listeners_due && self.spares_outbound => Some(DrainInboundListeners),
            Draining if are_listeners_due => Some(DrainListeners),
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
        use DrainPhase::{Delaying, Draining, SoftDraining};
        use FailHealthWhen::AtEnd;
        let now = Instant::now();
        let accepted = Accepted(now);
        let at_once = FailHealthWhen::AtOnce;
        let later = FailHealthWhen::At(now + Duration::from_secs(1));
        let due = FailHealthWhen::At(now);
        let table = [
            // (when health fails, its call, that of the listeners, phase, next call)
            (at_once, Pending, Pending, Draining, Some(FailHealth)),
            (at_once, accepted, Pending, Draining, Some(DrainListeners)),
            (at_once, Rejected, Pending, Draining, Some(DrainListeners)),
            (at_once, accepted, accepted, Draining, None),
            (at_once, accepted, Rejected, Draining, None),
            (at_once, Pending, Pending, Delaying, None),
            (at_once, Pending, Pending, SoftDraining, Some(FailHealth)),
            (at_once, accepted, Pending, SoftDraining, None),
            (later, Pending, Pending, Draining, Some(DrainListeners)),
            (later, Pending, accepted, Draining, None),
            (later, Pending, Rejected, Draining, Some(FailHealth)),
            (due, Pending, accepted, Draining, Some(FailHealth)),
            (due, Pending, Pending, Draining, Some(FailHealth)),
            (due, accepted, accepted, Draining, None),
            (AtEnd, Pending, accepted, Draining, None),
            (AtEnd, Pending, Rejected, Draining, None),
        ];
        for (fail_health_when, health, listeners, phase, want) in table {
            let calls = EnvoyCalls {
                health,
                listeners,
                fail_health_when,
                ..EnvoyCalls::default()
            };
            let next = calls.next(now, None, false, phase);
            assert_eq!(next, want, "{calls:?}, {phase}");
        }
        let mut sparing = EnvoyCalls {
            fail_health_when: FailHealthWhen::Quiet(now + Duration::from_secs(30)),
            spares_outbound: true,
            ..EnvoyCalls::default()
        };
        let next = |calls: &EnvoyCalls, is_quiet| calls.next(now, None, is_quiet, Draining);
        assert_eq!(
            next(&sparing, false),
            Some(AdminCall::DrainInboundListeners)
        );
        sparing.note(AdminCall::DrainInboundListeners, &Ok(()), now);
        assert!(sparing.is_kept_until_quiet());
        assert_eq!(
            (next(&sparing, false), next(&sparing, true)),
            (None, Some(FailHealth))
        );
        sparing.note(FailHealth, &Ok(()), now);
        assert!(!sparing.is_kept_until_quiet());
        assert_eq!(next(&sparing, true), None);
    }
}
