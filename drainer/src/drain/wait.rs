//! Finding out what ends.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::{CallState, Drain, STANDBY_INTERVAL};
use crate::envoy::{AdminError, Envoy, Snapshot};
use crate::marker::MarkerReason;
use crate::progress::DrainPhase;
use crate::termination::{
    AdminState, DRAINER_ONLY_GRACE, Scope, TerminationPlan, TerminationSignals,
};

/// An Envoy that does not answer within this is hung, or as good as.
const CALL_DEADLINE: Duration = Duration::from_secs(2);

/// Between two tries of a call to which Envoy gave no answer.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// How often is decided again what ends, since no task is woken when the port fails a connection.
const PORT_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// How long Envoy goes on, with its health failed, after its hook turned out to be alone.
pub(super) const ENVOY_ONLY_DRAIN_TIME: Duration = Duration::from_secs(10);

// === impl Drain ===

impl<E: Envoy> Drain<E> {
    /// Waits until it is clear what ends. Meanwhile does what is to be done while nothing does.
    pub(super) async fn wait_for_termination(&mut self) -> Scope {
        let mut signals = self.signals.subscribe();
        let mut admin = AdminState::Pending;
        let drainer_hook_released_at = self.drainer_hook_released_at;
        loop {
            match termination_plan(&mut signals, admin, drainer_hook_released_at) {
                TerminationPlan::None => {
                    tokio::select! {
                        biased;
                        _ = signals.changed() => {}
                        end = self.standby() => return end,
                    }
                    continue;
                }
                TerminationPlan::Undecided { .. } => {}
                TerminationPlan::Decided(end) => return end,
            }
            self.set_phase(DrainPhase::Waiting);
            tokio::select! {
                biased;
                () = until_decided(&mut signals, admin, drainer_hook_released_at) => {}
                answers = self.check_response_or_restore(admin == AdminState::Responding) => match answers {
                    true => admin = AdminState::Responding,
                    // Asked again: it may be busy, or still starting.
                    false => {
                        admin = AdminState::Unresponsive;
                        sleep(RETRY_DELAY).await;
                    }
                },
            }
        }
    }

    /// Returns whether Envoy answers. Once that `is_known`, never returns; it restores Envoy's health
    /// then where that is due, so that hooks which come alone again and again do not put that off.
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
        match timeout(CALL_DEADLINE, self.envoy.poll()).await {
            Ok(Snapshot::Counted(_) | Snapshot::InvalidResponse(_)) => {
                self.has_responded = true;
                true
            }
            Ok(Snapshot::NoResponse(_) | Snapshot::ConnectionRefused) | Err(_) => false,
        }
    }

    /// Envoy is restarted alone, as it seems. Fails its health, in case it is the pod that ends,
    /// and waits a while for the other sign. Whenever that comes, a call to Envoy under way or not,
    /// the pod ends: then returns whether Envoy was told to fail its health. Returns `None` if Envoy's
    /// hook may return.
    pub(super) async fn drain_envoy_only(&mut self) -> Option<CallState> {
        self.set_phase(DrainPhase::Restarting);
        let mut signals = self.signals.subscribe();
        let second = signals.wait_for(|who| who.drainer_hook.or(who.sigterm).is_some());
        let may_fail = self.backoff.allows(Instant::now());
        let mut health = CallState::Pending;
        tokio::select! {
            biased;
            _ = second => return Some(health),
            () = self.watch_envoy(may_fail, &mut health) => {}
        }
        if may_fail {
            let now = Instant::now();
            // An Envoy that is restarted is gone by then; one that lives on is to be healthy again.
            self.restore_at = Some(now + ENVOY_ONLY_DRAIN_TIME);
            self.backoff.record_failure(now);
        }
        None
    }

    /// Fails Envoy's health, if it may, and waits a while, but not for one that does not answer.
    async fn watch_envoy(&mut self, may_fail: bool, health: &mut CallState) {
        if may_fail && !self.fail_health_provisionally(health).await {
            return;
        }
        if !may_fail {
            info!(
                "Envoy's hook came alone again, and had not ended Envoy before: leaving its health as \
                 it is"
            );
        }
        tokio::select! {
            biased;
            () = sleep(ENVOY_ONLY_DRAIN_TIME) => {}
            () = self.until_unresponsive() => {}
        }
    }

    /// Fails Envoy's health, in case the pod ends. Returns false if Envoy does not answer.
    async fn fail_health_provisionally(&mut self, health: &mut CallState) -> bool {
        self.write_marker(MarkerReason::Provisional);
        match timeout(CALL_DEADLINE, self.envoy.fail_health()).await {
            Ok(Ok(())) => {
                *health = CallState::Accepted;
                info!("Envoy's hook came alone: failed its health, in case the pod ends");
                true
            }
            Ok(Err(AdminError::Rejected(error))) => {
                warn!(
                    error,
                    "Envoy's hook came alone, and it refuses to fail its health"
                );
                true
            }
            Ok(Err(AdminError::ConnectionRefused | AdminError::NoResponse(_))) | Err(_) => false,
        }
    }

    /// Waits until Envoy has not answered twice in a row: once may be chance.
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

/// What ends by now, where the drainer's own hook returned at `waited` without a drain.
fn termination_plan(
    signals: &mut watch::Receiver<TerminationSignals>,
    admin: AdminState,
    drainer_hook_released_at: Option<Instant>,
) -> TerminationPlan {
    let now = Instant::now();
    let waited = drainer_hook_released_at.is_some_and(|at| now < at + DRAINER_ONLY_GRACE);
    signals.borrow_and_update().plan(now, admin, waited)
}

/// Returns when it is clear what ends, as far as that depends on time and signals. Waiting here rather
/// than in [`Drain::next_end`] leaves calls to Envoy alone until then.
async fn until_decided(
    signals: &mut watch::Receiver<TerminationSignals>,
    admin: AdminState,
    drainer_hook_released_at: Option<Instant>,
) {
    while let TerminationPlan::Undecided { until } =
        termination_plan(signals, admin, drainer_hook_released_at)
    {
        let next = until.min(Instant::now() + PORT_CHECK_INTERVAL);
        tokio::select! {
            biased;
            _ = signals.changed() => {}
            () = sleep_until(next) => {}
        }
    }
}
