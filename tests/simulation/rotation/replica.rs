//! One replica of the webhook: it starts, ticks, is cut off, has a clock of its own, and is restarted.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout};
use webhook::certificates::testing_api::{
    CertResolver, CertificateReconciler, Cluster, Lifetimes, Metrics, Mode,
};
use webhook::metrics::registry;

use crate::rotation::cluster::{ApiClient, ReplicaMode};
use crate::rotation::rng::Rng;
use crate::rotation::trust::{SERVER_NAME, TrustChecker};
use crate::rotation::{HOUR, MINUTE};

/// The longest time between two ticks of the product.
const TICK: Duration = MINUTE;

/// What happens to a replica from outside.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) number: usize,
    pub(crate) api: ApiClient,
    pub(crate) trust_checker: Rc<TrustChecker>,
    pub(crate) rng: Rng,
    /// How far its clock is off, in seconds.
    pub(crate) clock_skew: Rc<Cell<i64>>,
    /// What it runs.
    pub(crate) release: Rc<Cell<Release>>,
    /// What it starts as the next time.
    pub(crate) next_release: Rc<Cell<Release>>,
    /// Told to restart.
    pub(crate) restart_requested: Rc<Cell<bool>>,
    /// It runs.
    pub(crate) is_running: Rc<Cell<bool>>,
}

/// What the chart was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) mode: ReplicaMode,
    pub(crate) lifetimes: Lifetimes,
}

// === impl Release ===

impl Default for Release {
    fn default() -> Self {
        Self {
            mode: ReplicaMode::SelfManaged,
            lifetimes: Lifetimes::default(),
        }
    }
}

impl Release {
    /// The same of the other mode.
    pub(crate) fn with_other_mode(self) -> Self {
        let mode = match self.mode {
            ReplicaMode::SelfManaged => ReplicaMode::Secret,
            ReplicaMode::Secret => ReplicaMode::SelfManaged,
        };
        Self { mode, ..self }
    }

    /// The same with the default lifetimes, or with half of them.
    pub(crate) fn with_other_lifetimes(self) -> Self {
        let whole = Lifetimes::default();
        let half = Lifetimes::try_new(whole.ca() / 2, whole.leaf() / 2, whole.activation_delay());
        let half = half.unwrap();
        let lifetimes = if self.lifetimes == whole { half } else { whole };
        Self { lifetimes, ..self }
    }
}

// === impl Replica ===

impl Replica {
    /// One life after the other.
    pub(crate) async fn run(self) {
        loop {
            let serving = Arc::new(CertResolver::empty());
            self.trust_checker.replicas.borrow_mut()[self.number] = Some(Arc::clone(&serving));
            self.is_running.set(true);
            self.run_once(&serving).await;
            self.is_running.set(false);
            self.trust_checker.replicas.borrow_mut()[self.number] = None;
            sleep(self.rng.duration_up_to(5 * MINUTE)).await;
        }
    }

    async fn run_once(&self, serving: &CertResolver) {
        let report = Metrics::register(&mut registry());
        let release = self.next_release.get();
        let lifetimes = release.lifetimes;
        self.release.set(release);
        self.api.mode.set(release.mode);
        let mode = match release.mode {
            ReplicaMode::SelfManaged => Mode::SelfManaged(lifetimes),
            ReplicaMode::Secret => Mode::Secret {
                activation_delay: lifetimes.activation_delay(),
            },
        };
        let mut authority =
            CertificateReconciler::new(self.api.clone(), vec![SERVER_NAME.to_owned()], mode);
        let mut active_until = Instant::now();
        self.restart_requested.set(false);
        let mut failures = 0;
        while !self.restart_requested.get() {
            let tick = authority.reconcile(self.clock(), serving, &report).await;
            self.trust_checker.check();
            if tick.is_converged() {
                failures = 0;
                self.wait_for_next_tick(&mut active_until).await;
            } else if tick.failures.is_empty() {
                sleep(Duration::from_millis(20)).await;
            } else {
                // As the product, and less often where nothing comes of it for hours.
                failures = (failures + 1).min(35_u32);
                let hours = TICK * failures.saturating_sub(5);
                sleep(self.rng.duration_up_to(Duration::from_secs(1) + hours)).await;
            }
        }
    }

    /// Waits as the product does, but that it sleeps through the hours in which nothing happens.
    async fn wait_for_next_tick(&self, active_until: &mut Instant) {
        let clock = &self.api.tick_notifiers[self.number];
        if Instant::now() >= *active_until {
            let quiet = self.rng.duration_up_to(24 * HOUR);
            if timeout(quiet, clock.notified()).await.is_err() {
                return;
            }
            *active_until = Instant::now() + 10 * MINUTE;
        }
        let _ = timeout(self.rng.duration_up_to(TICK), self.api.changed()).await;
    }

    fn clock(&self) -> SystemTime {
        let now = self.trust_checker.now();
        let skew = self.clock_skew.get();
        let off = Duration::from_secs(skew.unsigned_abs());
        if skew < 0 { now - off } else { now + off }
    }
}
