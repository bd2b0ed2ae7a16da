//! An unreliable network: calls are delayed, fail before or after their effect, and read stale Secrets.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use webhook::certificates::testing_api::{StoreCall, StoreError};

use crate::MINUTE;
use crate::memory_cluster::{Network, instant_before};
use crate::rotation::rng::Rng;
use crate::rotation::trust::TrustChecker;

/// Whether a replica's calls reach the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Connectivity {
    /// They do, after a delay.
    #[default]
    Connected,
    /// They time out.
    Disconnected,
    /// Writes are sent much later: the replica was suspended after it had decided to write.
    Suspended,
}

/// The network of one replica.
#[derive(Debug, Clone)]
pub(crate) struct UnreliableNetwork {
    rng: Rng,
    replica: usize,
    pub(crate) connectivity: Rc<Cell<Connectivity>>,
    /// How old a Secret may be when it is read.
    staleness: Duration,
    /// Notifies the watch of each replica.
    notifiers: Rc<Vec<Notify>>,
    /// Wakes every replica after each write for its periodic reconcile, which would take too long to simulate at its
    /// usual rate while nothing happens.
    pub(crate) tick_notifiers: Rc<Vec<Notify>>,
    trust_checker: Rc<TrustChecker>,
}

// === impl UnreliableNetwork ===

impl UnreliableNetwork {
    pub(crate) fn new(
        trust_checker: Rc<TrustChecker>,
        rng: Rng,
        replicas: usize,
        staleness: Duration,
    ) -> Self {
        let notifiers = || Rc::new((0..replicas).map(|_| Notify::new()).collect());
        Self {
            rng,
            replica: 0,
            connectivity: Rc::default(),
            staleness,
            notifiers: notifiers(),
            tick_notifiers: notifiers(),
            trust_checker,
        }
    }

    /// The same network for another replica, with a connection of its own.
    pub(crate) fn for_replica(&self, replica: usize) -> Self {
        Self {
            replica,
            connectivity: Rc::default(),
            ..self.clone()
        }
    }

    /// Takes no time or milliseconds, sometimes seconds; sometimes fails.
    async fn transit(&self, call: StoreCall) -> Result<(), StoreError> {
        self.trust_checker.check();
        let max_milliseconds = match self.rng.below(20) {
            0 => 8000,
            1..8 => 50,
            _ => 0,
        };
        if max_milliseconds > 0 {
            let max = Duration::from_millis(max_milliseconds);
            sleep(self.rng.duration_up_to(max)).await;
        }
        if self.connectivity.get() == Connectivity::Disconnected || self.rng.one_in(50) {
            return Err(StoreError::Timeout { call });
        }
        Ok(())
    }
}

impl Network for UnreliableNetwork {
    async fn send(&self, call: StoreCall) -> Result<(), StoreError> {
        let is_write = matches!(call, StoreCall::WriteSecret | StoreCall::WriteBundles);
        while is_write && self.connectivity.get() == Connectivity::Suspended {
            sleep(self.rng.duration_up_to(10 * MINUTE)).await;
        }
        self.transit(call).await
    }

    async fn receive(&self, call: StoreCall) -> Result<(), StoreError> {
        self.transit(call).await
    }

    fn read_time(&self) -> Instant {
        if self.rng.one_in(10) {
            instant_before(self.rng.duration_up_to(self.staleness))
        } else {
            Instant::now()
        }
    }

    fn server_time(&self, instant: Instant) -> Option<SystemTime> {
        Some(self.trust_checker.wall_clock_at(instant))
    }

    fn has_endpoint(&self) -> bool {
        self.trust_checker.ready_replicas() > 0
    }

    /// Notifies every watch but those that miss the event.
    fn notify(&self) {
        for notifier in self.notifiers.iter() {
            if !self.rng.one_in(10) {
                notifier.notify_one();
            }
        }
        for notifier in self.tick_notifiers.iter() {
            notifier.notify_one();
        }
        self.trust_checker.check();
    }

    async fn changed(&self) {
        self.notifiers[self.replica].notified().await;
    }
}
