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

use crate::chance::Chance;
use crate::cluster::{Api, ModeOf};
use crate::trust::{NAME, Trust};
use crate::{HOUR, MINUTE};

/// The longest time between two ticks of the product.
const TICK: Duration = MINUTE;

/// What happens to a replica from outside.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) number: usize,
    pub(crate) api: Api,
    pub(crate) trust: Rc<Trust>,
    pub(crate) chance: Chance,
    /// How far its clock is off, in seconds.
    pub(crate) skew: Rc<Cell<i64>>,
    /// What it runs.
    pub(crate) release: Rc<Cell<Release>>,
    /// What it starts as the next time.
    pub(crate) next_release: Rc<Cell<Release>>,
    /// Told to restart.
    pub(crate) killed: Rc<Cell<bool>>,
    /// It runs.
    pub(crate) alive: Rc<Cell<bool>>,
}

/// What the chart was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) mode: ModeOf,
    pub(crate) lifetimes: Lifetimes,
}

// === impl Release ===

impl Default for Release {
    fn default() -> Self {
        Self {
            mode: ModeOf::Own,
            lifetimes: Lifetimes::default(),
        }
    }
}

impl Release {
    /// The same of the other mode.
    pub(crate) fn of_other_mode(self) -> Self {
        let mode = match self.mode {
            ModeOf::Own => ModeOf::Given,
            ModeOf::Given => ModeOf::Own,
        };
        Self { mode, ..self }
    }

    /// The same with the default lifetimes, or with half of them.
    pub(crate) fn of_other_lifetimes(self) -> Self {
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
            self.trust.replicas.borrow_mut()[self.number] = Some(Arc::clone(&serving));
            self.alive.set(true);
            self.live(&serving).await;
            self.alive.set(false);
            self.trust.replicas.borrow_mut()[self.number] = None;
            sleep(self.chance.up_to(5 * MINUTE)).await;
        }
    }

    async fn live(&self, serving: &CertResolver) {
        let report = Metrics::register(&mut registry());
        let release = self.next_release.get();
        let lifetimes = release.lifetimes;
        self.release.set(release);
        self.api.mode.set(release.mode);
        let mode = match release.mode {
            ModeOf::Own => Mode::SelfManaged(lifetimes),
            ModeOf::Given => Mode::Secret {
                activation_delay: lifetimes.activation_delay(),
            },
        };
        let mut authority =
            CertificateReconciler::new(self.api.clone(), vec![NAME.to_owned()], mode);
        let mut active_until = Instant::now();
        self.killed.set(false);
        let mut failures = 0;
        while !self.killed.get() {
            let tick = authority.reconcile(self.clock(), serving, &report).await;
            self.trust.check();
            if tick.is_converged() {
                failures = 0;
                self.rest(&mut active_until).await;
            } else if tick.failures.is_empty() {
                sleep(Duration::from_millis(20)).await;
            } else {
                // As the product, and less often where nothing comes of it for hours.
                failures = (failures + 1).min(35_u32);
                let hours = TICK * failures.saturating_sub(5);
                sleep(self.chance.up_to(Duration::from_secs(1) + hours)).await;
            }
        }
    }

    /// Waits as the product does, but that it sleeps through the hours in which nothing happens.
    async fn rest(&self, active_until: &mut Instant) {
        let clock = &self.api.clocks[self.number];
        if Instant::now() >= *active_until {
            let quiet = self.chance.up_to(24 * HOUR);
            if timeout(quiet, clock.notified()).await.is_err() {
                return;
            }
            *active_until = Instant::now() + 10 * MINUTE;
        }
        let _ = timeout(self.chance.up_to(TICK), self.api.changed()).await;
    }

    fn clock(&self) -> SystemTime {
        let now = self.trust.now();
        let skew = self.skew.get();
        let off = Duration::from_secs(skew.unsigned_abs());
        if skew < 0 { now - off } else { now + off }
    }
}
