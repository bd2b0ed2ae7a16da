//! A cluster, its replicas, and what befalls them.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};
use webhook::certificates::bundle::Bundle;
use webhook::certificates::cluster::Data;

use crate::chance::Chance;
use crate::cluster::{Api, Etcd, ModeOf};
use crate::issuer::Issuer;
use crate::replica::Replica;
use crate::trust::Trust;
use crate::{DAY, HOUR, MINUTE};

/// How far API servers may be behind: the default activation delay.
const LAG: Duration = Duration::from_secs(120);

/// How long it may take until spoilt bundles are mended: a few ticks, as a call may fail.
const MENDING: Duration = Duration::from_secs(5 * 60);

/// How old a state may be that a replica reads.
const STALENESS: Duration = MINUTE;

/// How often what happens, on average; `None` for never.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    /// A replica is restarted.
    pub(crate) restart_every: Duration,
    /// A replica reaches nothing for up to six hours.
    pub(crate) cut_every: Duration,
    /// A replica's clock jumps, for up to six hours.
    pub(crate) jump_every: Duration,
    /// The Secret is deleted, emptied, spoilt, or an old one is restored.
    pub(crate) lost_every: Duration,
    /// Somebody empties a `caBundle`.
    pub(crate) spoilt_every: Option<Duration>,
    /// Somebody empties the Secret and every `caBundle` at once, as `helm upgrade --force` does.
    pub(crate) forced_every: Option<Duration>,
    /// The release is upgraded to the other mode, replica by replica.
    pub(crate) other_mode_every: Option<Duration>,
}

/// One run.
#[derive(Debug)]
pub(crate) struct World {
    chance: Chance,
    faults: Faults,
    etcd: Rc<RefCell<Etcd>>,
    trust: Rc<Trust>,
    api: Api,
    slots: Vec<Slot>,
    backups: Vec<Data>,
    losses: usize,
    issuer: Issuer,
    issue_at: Instant,
    mode: ModeOf,
    upgrades: usize,
}

/// What a replica's fate is told by.
#[derive(Debug)]
struct Slot {
    cut: Rc<Cell<bool>>,
    skew: Rc<Cell<i64>>,
    next_mode: Rc<Cell<ModeOf>>,
    mode: Rc<Cell<ModeOf>>,
    killed: Rc<Cell<bool>>,
    jumped: Rc<Cell<bool>>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Told {
    rotations: usize,
    losses: usize,
    upgrades: usize,
    checks: u64,
    took: Duration,
}

// === impl Faults ===

impl Default for Faults {
    /// Much more than ever happens.
    fn default() -> Self {
        Self {
            restart_every: 10 * DAY,
            cut_every: 30 * DAY,
            jump_every: 30 * DAY,
            lost_every: 700 * DAY,
            spoilt_every: None,
            forced_every: None,
            other_mode_every: None,
        }
    }
}

// === impl World ===

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let chance = Chance::new(seed);
        let etcd = Etcd::new(&["pods", "workloads"], LAG + STALENESS);
        let etcd = Rc::new(RefCell::new(etcd));
        // 2026, so that certificates pass 2050 on their way.
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let trust = Rc::new(Trust::new(Rc::clone(&etcd), epoch, LAG, 3));
        let api = Api::new(
            Rc::clone(&etcd),
            Rc::clone(&trust),
            chance.clone(),
            3,
            STALENESS,
        );
        let mut slots = Vec::new();
        for number in 0..3 {
            let replica = Replica {
                number,
                api: api.of(number),
                trust: Rc::clone(&trust),
                chance: chance.clone(),
                skew: Rc::new(Cell::new(chance.around(5 * MINUTE))),
                next_mode: Rc::default(),
                killed: Rc::default(),
            };
            slots.push(Slot {
                cut: Rc::clone(&replica.api.cut),
                skew: Rc::clone(&replica.skew),
                next_mode: Rc::clone(&replica.next_mode),
                mode: Rc::clone(&replica.api.mode),
                killed: Rc::clone(&replica.killed),
                jumped: Rc::default(),
            });
            spawn_local(replica.run());
        }
        Self {
            chance,
            faults,
            etcd,
            trust,
            api,
            slots,
            backups: Vec::new(),
            losses: 0,
            issuer: Issuer::new(epoch),
            issue_at: Instant::now(),
            mode: ModeOf::Own,
            upgrades: 0,
        }
    }

    /// Goes on until the authority was replaced so often, and then for some quiet hours.
    ///
    /// # Panics
    /// When trust was broken, or rotations do not come about, or a replica is not well in the end.
    pub(crate) async fn run(mut self, rotations: usize) -> Told {
        let start = Instant::now();
        let step = self.faults.shortest() / 10;
        while self.etcd.borrow().rotations < rotations {
            sleep(self.chance.up_to(2 * step)).await;
            self.befall(step);
            self.assert_trusted();
            let most = 400 * DAY * u32::try_from(rotations).unwrap();
            assert!(start.elapsed() < most, "authorities are not replaced");
        }
        // The last cut and the last jump are over.
        sleep(7 * HOUR).await;
        self.assert_trusted();
        let replicas = self.trust.replicas.borrow();
        let ready = replicas.iter().flatten().filter(|one| one.is_ready());
        assert_eq!(ready.count(), 3, "ready in the end");
        Told {
            rotations: self.etcd.borrow().rotations,
            losses: self.losses,
            upgrades: self.upgrades,
            checks: self.trust.checks.get(),
            took: start.elapsed(),
        }
    }

    #[track_caller]
    fn assert_trusted(&self) {
        if let Some(breach) = &*self.trust.breach.borrow() {
            panic!("{breach}");
        }
    }

    /// Lets happen what may in this time.
    fn befall(&mut self, step: Duration) {
        let Self { chance, faults, .. } = self;
        let happens = |every: Duration| {
            let times = every.as_secs() / step.as_secs().max(1);
            chance.once_in(times)
        };
        let now = Instant::now();
        let one = usize::try_from(chance.below(3)).unwrap();
        let lasts = chance.up_to(6 * HOUR);
        // A clock that is weeks ahead beside a replica that nobody reaches is more than is claimed.
        let jumped = self.slots.iter().any(|slot| slot.jumped.get());
        let cut = self.slots.iter().any(|slot| slot.cut.get());
        let issued = now >= self.issue_at && !cut && !jumped;
        // One that starts just after somebody else has a new authority must find out that this is new.
        if issued || happens(faults.restart_every) {
            self.slots[one].killed.set(true);
        }
        if happens(faults.cut_every) && !jumped {
            self.slots[one].cut_for(lasts);
        } else if happens(faults.jump_every) && !cut {
            let jump = match chance.below(3) {
                0 => chance.around(40 * MINUTE),
                1 => chance.around(12 * HOUR),
                _ => chance.around(20 * DAY).abs(),
            };
            let after = chance.around(5 * MINUTE);
            self.slots[one].jump_for(lasts, jump, after);
        }
        let lost = happens(faults.lost_every);
        let spoilt = faults.spoilt_every.is_some_and(happens);
        let forced = faults.forced_every.is_some_and(happens);
        let upgraded = faults.other_mode_every.is_some_and(happens);
        if issued {
            self.issue();
        }
        if lost {
            self.lose_secret();
        }
        if spoilt {
            self.spoil_bundle();
        }
        if forced {
            self.force();
        }
        if upgraded {
            self.upgrade();
        }
        self.roll();
    }

    fn lose_secret(&mut self) {
        self.losses += 1;
        let chance = &self.chance;
        let last = self.etcd.borrow().secret.back().unwrap().value.clone();
        let data = last.unwrap_or_default();
        if chance.once_in(2) {
            self.backups.push(data.clone());
        }
        let value = match chance.below(4) {
            0 => None,
            1 => Some(Data::new()),
            2 => {
                let mut data = data;
                let keys: Vec<_> = data.keys().cloned().collect();
                let spoilt = chance.below(keys.len() as u64);
                if let Some(key) = keys.get(usize::try_from(spoilt).unwrap()) {
                    data.insert(key.clone(), b"junk".to_vec());
                }
                Some(data)
            }
            _ => {
                let old = chance.below(self.backups.len() as u64);
                self.backups.get(usize::try_from(old).unwrap()).cloned()
            }
        };
        self.etcd.borrow_mut().write_secret(value);
        self.api.ring();
    }

    /// Renews somebody else's certificate, with a new authority now and then.
    fn issue(&mut self) {
        let now = self.trust.now();
        if self.chance.once_in(3) || now >= self.issuer.old_at {
            self.issuer = Issuer::new(now);
        }
        self.etcd.borrow_mut().give(self.issuer.issue(now));
        self.api.ring();
        // A month before it ends.
        self.issue_at = Instant::now() + 60 * DAY;
    }

    fn upgrade(&mut self) {
        self.upgrades += 1;
        self.mode = match self.mode {
            ModeOf::Own => ModeOf::Given,
            ModeOf::Given => ModeOf::Own,
        };
    }

    /// Goes on with an upgrade as a Deployment does: one replica, when all others are ready.
    fn roll(&self) {
        let serving = self.trust.replicas.borrow();
        let ready = serving.iter().flatten().filter(|one| one.is_ready());
        if ready.count() < self.slots.len() {
            return;
        }
        if let Some(old) = self.slots.iter().find(|slot| slot.mode.get() != self.mode) {
            old.next_mode.set(self.mode);
            old.killed.set(true);
        }
    }

    fn spoil_bundle(&mut self) {
        {
            let mut etcd = self.etcd.borrow_mut();
            etcd.excuse(MENDING);
            let mut spoilt = etcd.webhooks.back().unwrap().value.clone().unwrap();
            spoilt.bundles[0].1 = Bundle::default();
            etcd.write_webhooks(Some(spoilt));
        }
        self.api.ring();
    }

    fn force(&mut self) {
        self.losses += 1;
        {
            let mut etcd = self.etcd.borrow_mut();
            etcd.excuse(MENDING);
            etcd.write_secret(Some(Data::new()));
            let mut spoilt = etcd.webhooks.back().unwrap().value.clone().unwrap();
            for (_, bundle) in &mut spoilt.bundles {
                *bundle = Bundle::default();
            }
            etcd.write_webhooks(Some(spoilt));
        }
        self.api.ring();
    }
}

// === impl Faults ===

impl Faults {
    fn shortest(&self) -> Duration {
        let Self {
            restart_every,
            cut_every,
            jump_every,
            lost_every,
            spoilt_every,
            forced_every,
            other_mode_every,
        } = self;
        [restart_every, cut_every, jump_every, lost_every]
            .into_iter()
            .chain(spoilt_every)
            .chain(forced_every)
            .chain(other_mode_every)
            .copied()
            .min()
            .unwrap_or_default()
    }
}

// === impl Slot ===

impl Slot {
    /// Cuts it off, for so long.
    fn cut_for(&self, lasts: Duration) {
        self.cut.set(true);
        let cut = Rc::clone(&self.cut);
        spawn_local(async move {
            sleep(lasts).await;
            cut.set(false);
        });
    }

    /// Sets its clock off, for so long, by so many seconds, and by so many from then on.
    fn jump_for(&self, lasts: Duration, jump: i64, after: i64) {
        self.jumped.set(true);
        self.skew.set(jump);
        let (jumped, skew) = (Rc::clone(&self.jumped), Rc::clone(&self.skew));
        spawn_local(async move {
            sleep(lasts).await;
            jumped.set(false);
            skew.set(after);
        });
    }
}

// === impl Told ===

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rotations,
            losses,
            upgrades,
            checks,
            took,
        } = self;
        let years = took.as_secs_f64() / (365.0 * 86400.0);
        write!(
            f,
            "{rotations} rotations in {years:.1} years, {losses} losses of the Secret, \
             {upgrades} upgrades to the other mode, {checks} looks"
        )
    }
}
