//! One replica of the webhook: it starts, ticks, is cut off, has a clock of its own, and is restarted.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout};
use webhook::certificates::authority::{Authority, Mode};
use webhook::certificates::cluster::Cluster;
use webhook::certificates::lifetimes::Lifetimes;
use webhook::certificates::serving::Serving;
use webhook::report::Report;

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
    /// In which mode it starts the next time.
    pub(crate) next_mode: Rc<Cell<ModeOf>>,
    /// Told to restart.
    pub(crate) killed: Rc<Cell<bool>>,
}

// === impl Replica ===

impl Replica {
    /// One life after the other.
    pub(crate) async fn run(self) {
        loop {
            let serving = Arc::new(Serving::waiting());
            self.trust.replicas.borrow_mut()[self.number] = Some(Arc::clone(&serving));
            self.live(&serving).await;
            self.trust.replicas.borrow_mut()[self.number] = None;
            sleep(self.chance.up_to(5 * MINUTE)).await;
        }
    }

    async fn live(&self, serving: &Serving) {
        let report = Report::new();
        let lifetimes = Lifetimes::default();
        self.api.mode.set(self.next_mode.get());
        let mode = match self.next_mode.get() {
            ModeOf::Own => Mode::Own {
                names: vec![NAME.to_owned()],
                lifetimes,
            },
            ModeOf::Given => Mode::Given {
                names: vec![NAME.to_owned()],
                activation_delay: lifetimes.activation_delay(),
            },
        };
        let mut authority = Authority::new(self.api.clone(), mode);
        let mut active_until = Instant::now();
        self.killed.set(false);
        let mut failures = 0;
        while !self.killed.get() {
            let tick = authority.tick(self.clock(), serving, &report).await;
            self.trust.check();
            if tick.is_settled() {
                failures = 0;
                self.rest(&mut active_until).await;
            } else if tick.failures.is_empty() {
                sleep(Duration::from_millis(20)).await;
            } else {
                // Less often than the product, where nothing comes of it for hours.
                failures = (failures + 1).min(30);
                sleep(self.chance.up_to(TICK * failures)).await;
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
