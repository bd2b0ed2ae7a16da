//! One replica of the webhook, which reconciles by a clock of its own and is restarted now and then.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout};
use webhook::certificates::testing_api::{
    CertResolver, CertificateReconciler, Cluster, Metrics, Mode,
};
use webhook::metrics::registry;

use crate::memory_cluster::{ApiClient, ReplicaMode};
use crate::rotation::network::UnreliableNetwork;
use crate::rotation::replica_slot::ReplicaSlot;
use crate::rotation::rng::Rng;
use crate::rotation::trust::TrustChecker;
use crate::{HOUR, MINUTE, SERVER_NAME};

/// The product's longest interval between two reconciles.
const RECONCILE_INTERVAL: Duration = MINUTE;

/// A replica, and the slot by which faults reach it.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) number: usize,
    pub(crate) api: ApiClient<UnreliableNetwork>,
    pub(crate) trust_checker: Rc<TrustChecker>,
    pub(crate) rng: Rng,
    pub(crate) slot: Rc<ReplicaSlot>,
}

// === impl Replica ===

impl Replica {
    /// Runs the replica, and starts it again after each restart.
    pub(crate) async fn run(self) {
        loop {
            let resolver = Arc::new(CertResolver::default());
            self.trust_checker.replicas.borrow_mut()[self.number] = Some(Arc::clone(&resolver));
            self.slot.is_running.set(true);
            self.run_once(&resolver).await;
            self.slot.is_running.set(false);
            self.trust_checker.replicas.borrow_mut()[self.number] = None;
            sleep(self.rng.duration_up_to(5 * MINUTE)).await;
        }
    }

    async fn run_once(&self, resolver: &CertResolver) {
        let metrics = Metrics::register(&mut registry());
        let release = self.slot.next_release.get();
        let lifetimes = release.lifetimes;
        self.slot.release.set(release);
        self.api.mode.set(release.mode);
        let mode = match release.mode {
            ReplicaMode::SelfManaged => Mode::SelfManaged(lifetimes),
            ReplicaMode::Secret => Mode::Secret {
                activation_delay: lifetimes.activation_delay(),
            },
        };
        let names = vec![SERVER_NAME.to_owned()];
        let mut reconciler = CertificateReconciler::new(self.api.clone(), names, mode);
        let mut active_until = Instant::now();
        self.slot.restart_requested.set(false);
        let mut failures = 0;
        while !self.slot.restart_requested.get() {
            let result = reconciler.reconcile(self.clock(), resolver, &metrics).await;
            self.trust_checker.check();
            if result.is_converged() {
                failures = 0;
                self.wait_for_next_reconcile(&mut active_until).await;
            } else if result.failures.is_empty() {
                sleep(Duration::from_millis(20)).await;
            } else {
                // Backs off as the product does, and further during hours of failures.
                failures = (failures + 1).min(35_u32);
                let backoff = RECONCILE_INTERVAL * failures.saturating_sub(5);
                sleep(self.rng.duration_up_to(Duration::from_secs(1) + backoff)).await;
            }
        }
    }

    /// Waits as the product does, but skips the reconciles of hours in which nothing changes.
    async fn wait_for_next_reconcile(&self, active_until: &mut Instant) {
        let notifier = &self.api.network.tick_notifiers[self.number];
        if Instant::now() >= *active_until {
            let quiet_period = self.rng.duration_up_to(24 * HOUR);
            if timeout(quiet_period, notifier.notified()).await.is_err() {
                return;
            }
            *active_until = Instant::now() + 10 * MINUTE;
        }
        let _ = timeout(
            self.rng.duration_up_to(RECONCILE_INTERVAL),
            self.api.changed(),
        )
        .await;
    }

    fn clock(&self) -> SystemTime {
        let now = self.trust_checker.now();
        let skew = self.slot.clock_skew.get();
        let offset = Duration::from_secs(skew.unsigned_abs());
        if skew < 0 { now - offset } else { now + offset }
    }
}
