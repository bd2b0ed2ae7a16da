//! Waits until it is clear what terminates: the pod, Envoy alone or the drainer alone.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::{CallState, Drain, ENVOY_ONLY_DRAIN_TIME, STANDBY_INTERVAL};
use crate::envoy::{AdminError, Envoy, or_rejection};
use crate::marker::MarkerReason;
use crate::progress::DrainPhase;
use crate::termination::{AdminState, TerminationScope, TerminationSignals, envoy_only_grace};

/// Timeout of a call while it is undecided what terminates: an Envoy that is slower counts as hung.
const CALL_DEADLINE: Duration = Duration::from_secs(2);

/// Pause before a retry of a call without a response.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// How often the decision is repeated, since an unavailable port wakes no task.
const PORT_CHECK_INTERVAL: Duration = Duration::from_millis(250);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// Waits until it is clear what terminates. Runs [`Drain::standby`] while nothing does.
    pub(super) async fn wait_for_termination(&mut self) -> TerminationScope {
        let mut signals = self.signals.subscribe();
        let mut admin = AdminState::Pending;
        let grace = envoy_only_grace(self.config.timing.wait_for_replacement);
        loop {
            let now = Instant::now();
            let verdict = signals.borrow_and_update().decide(now, admin, grace);
            match verdict {
                None => {
                    tokio::select! {
                        biased;
                        _ = signals.changed() => {}
                        scope = self.standby() => return scope,
                    }
                    continue;
                }
                Some(verdict) if verdict.clear_at <= now => return verdict.scope,
                Some(_) => self.set_phase(DrainPhase::Waiting),
            }
            let is_known = admin == AdminState::Responding;
            tokio::select! {
                biased;
                () = until_decided(&mut signals, admin, grace) => {}
                is_responding = self.check_response_or_restore(is_known) => match is_responding {
                    true => admin = AdminState::Responding,
                    // Retried: it may be busy, or still starting.
                    false => {
                        admin = AdminState::Unresponsive;
                        sleep(RETRY_DELAY).await;
                    }
                },
            }
        }
    }

    /// Returns whether Envoy responds. Never returns if that `is_known`: then it restores Envoy's
    /// health when due, so that repeated calls of Envoy's hook alone do not postpone that.
    async fn check_response_or_restore(&mut self, is_known: bool) -> bool {
        if !is_known {
            return self.is_responding().await;
        }
        loop {
            if self.backoff.is_active(Instant::now()) {
                self.restore_if_due().await;
            }
            sleep(STANDBY_INTERVAL).await;
        }
    }

    async fn is_responding(&mut self) -> bool {
        let polled = timeout(CALL_DEADLINE, self.envoy.poll()).await;
        let is_responding = polled.is_ok_and(|polled| or_rejection(polled).is_ok());
        self.has_responded |= is_responding;
        is_responding
    }

    /// Drains an Envoy that seems to be restarting alone: fails its health, in case the pod
    /// terminates after all, and waits a while for the other signal. When that arrives, even during
    /// a call to Envoy, the pod is terminating: returns the state of the call that fails health.
    /// Returns `None` if Envoy's hook may return.
    pub(super) async fn drain_provisionally(&mut self) -> Option<CallState> {
        self.set_phase(DrainPhase::Restarting);
        let mut signals = self.signals.subscribe();
        let second = signals.wait_for(|signals| signals.drainer_signal_at().is_some());
        let called = Instant::now();
        self.backoff.record_hook(called);
        let may_fail_health = !self.backoff.is_active(called);
        let mut health = CallState::Pending;
        tokio::select! {
            biased;
            _ = second => return Some(health),
            () = self.watch_envoy(may_fail_health, &mut health) => {}
        }
        if may_fail_health {
            let now = Instant::now();
            // An Envoy that restarts is gone by then; one that does not must become healthy again.
            self.restore_at = Some(now + ENVOY_ONLY_DRAIN_TIME);
            self.backoff.record_attempt(now);
        }
        None
    }

    /// Fails Envoy's health, if it may, and waits a while, but not for an Envoy that does not respond.
    async fn watch_envoy(&mut self, may_fail_health: bool, health: &mut CallState) {
        if may_fail_health && !self.fail_health_provisionally(health).await {
            return;
        }
        if !may_fail_health {
            info!(
                "Only Envoy's preStop hook was called again, but Envoy was not restarted after the last \
                 call: leaving Envoy's health as it is"
            );
        }
        tokio::select! {
            biased;
            () = sleep(ENVOY_ONLY_DRAIN_TIME) => {}
            () = self.until_unresponsive() => {}
        }
    }

    /// Fails Envoy's health, in case the pod is terminating. Returns false if Envoy does not respond.
    async fn fail_health_provisionally(&mut self, health: &mut CallState) -> bool {
        self.write_marker(MarkerReason::Provisional);
        match timeout(CALL_DEADLINE, self.envoy.fail_health()).await {
            Ok(Ok(())) => {
                *health = CallState::Accepted;
                info!(
                    "Only Envoy's preStop hook was called: told Envoy to fail its health checks, in case the \
                     pod is terminating"
                );
                true
            }
            Ok(Err(AdminError::Rejected(error))) => {
                warn!(
                    error,
                    "Envoy rejected /healthcheck/fail: its health checks still succeed"
                );
                true
            }
            Ok(Err(AdminError::ConnectionRefused | AdminError::NoResponse(_))) | Err(_) => false,
        }
    }

    /// Waits until Envoy has not responded twice in a row: once may be a glitch.
    async fn until_unresponsive(&mut self) {
        loop {
            sleep(STANDBY_INTERVAL).await;
            if self.backoff.is_active(Instant::now()) {
                self.restore_if_due().await;
            }
            if !self.is_responding().await {
                sleep(RETRY_DELAY).await;
                if !self.is_responding().await {
                    return;
                }
            }
        }
    }
}

/// Waits until it is clear what terminates, as far as that depends on time and signals. Waiting here
/// rather than in [`Drain::wait_for_termination`] does not cancel calls to Envoy before that.
async fn until_decided(
    signals: &mut watch::Receiver<TerminationSignals>,
    admin: AdminState,
    grace: Duration,
) {
    loop {
        let now = Instant::now();
        let verdict = signals.borrow_and_update().decide(now, admin, grace);
        let Some(clear_at) = verdict
            .map(|verdict| verdict.clear_at)
            .filter(|at| now < *at)
        else {
            return;
        };
        tokio::select! {
            biased;
            _ = signals.changed() => {}
            () = sleep_until(clear_at.min(now + PORT_CHECK_INTERVAL)) => {}
        }
    }
}
