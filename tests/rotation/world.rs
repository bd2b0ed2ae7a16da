//! A cluster, its replicas, and the time that passes.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};
use webhook::certificates::testing_api::{Bundle, SecretData};

use crate::chance::Chance;
use crate::cluster::{Api, Configuration, Etcd, ModeOf, Way};
use crate::faults::{Faults, Jump, emptied, lost};
use crate::issuer::Issuer;
use crate::replica::{Release, Replica};
use crate::slot::Slot;
use crate::trust::Trust;
use crate::{DAY, HOUR, MINUTE};

/// How far API servers may be behind: the default activation delay.
const LAG: Duration = Duration::from_secs(120);

/// How old a state may be that a replica reads.
const STALENESS: Duration = MINUTE;

/// How long it may take until spoilt bundles are mended: a few ticks, as a call may fail.
const MENDING: Duration = Duration::from_secs(5 * 60);

/// How long it may take until a leaked CA is in no bundle any more: the next one is published and activated,
/// and every replica follows.
const REPLACING: Duration = Duration::from_secs(20 * 60);

/// So many certificates may be in an object: what our own may be at most, and a few of somebody else.
const MOST: usize = 40;

/// So many writes may follow from one thing that befalls, and as many from none.
const WRITES: usize = 40;

/// One run.
#[derive(Debug)]
pub(crate) struct World {
    chance: Chance,
    faults: Faults,
    etcd: Rc<RefCell<Etcd>>,
    trust: Rc<Trust>,
    api: Api,
    slots: Vec<Slot>,
    backups: Vec<SecretData>,
    losses: usize,
    issuer: Issuer,
    issue_at: Instant,
    /// The other half of a change of somebody else's Secret, and when it comes.
    half_issued: Option<(Instant, SecretData)>,
    recreate_at: Option<Instant>,
    /// CAs whose keys have leaked, and when no bundle may have them any more.
    leaked: Option<(Instant, Bundle)>,
    release: Release,
    upgrades: usize,
    /// All that befell.
    befallen: usize,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Told {
    rotations: usize,
    losses: usize,
    upgrades: usize,
    writes: usize,
    most: usize,
    checks: u64,
    took: Duration,
}

// === impl World ===

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let chance = Chance::new(seed);
        let etcd = Etcd::new(&["pods", "workloads"], LAG + STALENESS);
        let etcd = Rc::new(RefCell::new(etcd));
        // 2026, so that certificates pass 2050 on their way.
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let replicas = faults.replicas;
        let trust = Rc::new(Trust::new(Rc::clone(&etcd), epoch, LAG, replicas));
        let api = Api::new(
            Rc::clone(&etcd),
            Rc::clone(&trust),
            chance.clone(),
            replicas,
            STALENESS,
        );
        let slots = (0..replicas).map(|number| {
            let replica = Replica {
                number,
                api: api.of(number),
                trust: Rc::clone(&trust),
                chance: chance.clone(),
                skew: Rc::new(chance.around(5 * MINUTE).into()),
                release: Rc::default(),
                next_release: Rc::default(),
                killed: Rc::default(),
                alive: Rc::default(),
            };
            let slot = Slot::of(&replica);
            spawn_local(replica.run());
            slot
        });
        Self {
            slots: slots.collect(),
            chance,
            faults,
            etcd,
            trust,
            api,
            backups: Vec::new(),
            losses: 0,
            issuer: Issuer::new(epoch),
            issue_at: Instant::now(),
            half_issued: None,
            recreate_at: None,
            leaked: None,
            release: Release::default(),
            upgrades: 0,
            befallen: 0,
        }
    }

    /// Goes on until the authority was replaced so often, and then until all is quiet.
    ///
    /// # Panics
    /// When trust was broken, or rotations do not come about, or all is not well in the end.
    pub(crate) async fn run(mut self, rotations: usize) -> Told {
        let start = Instant::now();
        let step = self.faults.shortest() / 10;
        while self.etcd.borrow().rotations < rotations {
            let before = (self.etcd.borrow().writes, self.befallen);
            sleep(self.chance.up_to(2 * step)).await;
            self.befall(step);
            self.assert_well(before);
            let most = 400 * DAY * u32::try_from(rotations).unwrap();
            assert!(start.elapsed() < most, "authorities are not replaced");
        }
        self.rest().await;
        let etcd = self.etcd.borrow();
        Told {
            rotations: etcd.rotations,
            losses: self.losses,
            upgrades: self.upgrades,
            writes: etcd.writes,
            most: etcd.most,
            checks: self.trust.checks.get(),
            took: start.elapsed(),
        }
    }

    #[track_caller]
    fn assert_well(&self, (writes, befallen): (usize, usize)) {
        if let Some(breach) = &*self.trust.breach.borrow() {
            panic!("{breach}");
        }
        let etcd = self.etcd.borrow();
        assert!(!etcd.overwritten, "what nobody had read");
        assert!(etcd.most <= MOST, "{} certificates", etcd.most);
        let (writes, befallen) = (etcd.writes - writes, self.befallen - befallen);
        // What befell just before may still have its way.
        assert!(writes <= WRITES * (befallen + 2), "{writes} writes");
    }

    /// Lets all come to rest: every replica is ready, and in the end nothing is left but what signs.
    async fn rest(&mut self) {
        // The last cut is over, and half a change is whole.
        for _ in 0..14 {
            sleep(HOUR / 2).await;
            self.complete();
            self.roll();
        }
        sleep(20 * DAY).await;
        self.assert_well((self.etcd.borrow().writes, self.befallen));
        let ready = self.trust.ready();
        assert_eq!(ready, self.slots.len(), "ready in the end");
        if self.release.mode == ModeOf::Given {
            let issued = self.issuer.anchors();
            let mut bundles = self.bundles().into_iter();
            assert!(bundles.all(|bundle| bundle.contains_all(&issued)));
            return;
        }
        self.assert_known();
        // Another may have begun to sign just now.
        for _ in 0..3 {
            let before = self.signers();
            let writes = self.etcd.borrow().writes;
            sleep(17 * DAY).await;
            if self.signers() != before || before.next.is_some() {
                continue;
            }
            self.assert_alone(&before);
            let quiet = self.etcd.borrow().writes;
            sleep(3 * DAY).await;
            if self.signers() == before {
                assert_eq!(self.etcd.borrow().writes, quiet, "writes for nothing");
            }
            assert!(quiet - writes <= WRITES, "{} writes", quiet - writes);
            self.assert_well((quiet, self.befallen));
            return;
        }
        panic!("authorities are replaced again and again");
    }

    /// A CA whose key has leaked is trusted no more when its time is over.
    #[track_caller]
    fn assert_replaced(&mut self) {
        let now = Instant::now();
        if let Some((_, leaked)) = self.leaked.take_if(|(at, _)| *at <= now) {
            for bundle in self.bundles() {
                let left = leaked.filter(|der| bundle.contains(der));
                assert!(left.is_empty(), "{left:?} of {leaked:?}");
            }
        }
    }

    /// Every authority of ours that is trusted is known.
    #[track_caller]
    fn assert_known(&self) {
        let Signers { listed, .. } = self.signers();
        for bundle in self.bundles() {
            let own = bundle.issued_by_us().valid(self.trust.now());
            assert!(listed.contains_all(&own), "{own:?} of {listed:?}");
        }
    }

    #[track_caller]
    fn assert_alone(&self, signers: &Signers) {
        let signer = signers.signer.clone().expect("one signs");
        assert_eq!(signers.listed, signer, "in the Secret");
        for bundle in self.bundles() {
            assert_eq!(bundle.issued_by_us(), signer, "of ours in a bundle");
            assert!(self.upgrades > 0 || bundle == signer, "{bundle:?}");
        }
    }

    fn bundles(&self) -> Vec<Bundle> {
        let bundles = self.configuration().bundles;
        bundles.into_iter().map(|(_, bundle)| bundle).collect()
    }

    fn configuration(&self) -> Configuration {
        let etcd = self.etcd.borrow();
        let last = etcd.webhooks.back().unwrap().value.clone();
        last.expect("there is a configuration")
    }

    fn secret(&self) -> Option<SecretData> {
        self.etcd.borrow().secret.back().unwrap().value.clone()
    }

    fn signers(&self) -> Signers {
        let data = self.secret().unwrap_or_default();
        let read = |key| data.get(key).map(|pem| Bundle::read(pem));
        Signers {
            signer: read("signer.crt"),
            next: read("next.crt"),
            listed: read("ca.crt").unwrap_or_default(),
        }
    }

    /// Lets happen what may in this time.
    fn befall(&mut self, step: Duration) {
        let chance = self.chance.clone();
        let faults = self.faults.clone();
        let happens = |every: Duration| {
            let times = every.as_secs() / step.as_secs().max(1);
            chance.once_in(times)
        };
        let may = |every: Option<Duration>| every.is_some_and(happens);
        let one = usize::try_from(chance.below(self.slots.len() as u64)).unwrap();
        // A clock that is weeks ahead beside a replica that nobody reaches is more than is claimed.
        let mut jumps = self.slots.iter().filter_map(|slot| slot.jump.get());
        let ahead = jumps.any(Jump::is_ahead);
        let cut = self.slots.iter().any(|slot| slot.way.get() != Way::Open);
        let issued = Instant::now() >= self.issue_at && !cut && !ahead;
        let befallen = self.befallen;
        // One that starts just after somebody else has a new authority must find out that this is new.
        if issued || happens(faults.restart_every) {
            self.slots[one].restart();
            self.befallen += 1;
        } else if happens(faults.cut_every) && !ahead {
            let way = if chance.once_in(2) {
                Way::Cut
            } else {
                Way::Suspended
            };
            self.slots[one].cut_for(way, chance.up_to(6 * HOUR));
            self.befallen += 1;
        } else if happens(faults.jump_every) && !cut && self.slots[one].alive.get() {
            self.slots[one].jump(Jump::any(&chance));
            self.befallen += 1;
        }
        if issued {
            self.issue();
        }
        self.complete();
        self.assert_replaced();
        if happens(faults.lost_every) {
            self.lose_secret();
        }
        // Of what nobody is left to tell, nobody knows.
        let well = self.slots.iter().any(Slot::is_well) && self.recreate_at.is_none();
        if may(faults.spoilt_every) && well {
            let many = 1 + usize::try_from(chance.below(2)).unwrap();
            self.empty(many);
        }
        if may(faults.forced_every) && well {
            self.etcd.borrow_mut().write_secret(Some(SecretData::new()));
            self.losses += 1;
            self.empty(2);
        }
        if may(faults.deleted_every) && well {
            self.etcd.borrow_mut().write_webhooks(None);
            self.recreate_at = Some(Instant::now() + chance.up_to(10 * MINUTE));
            self.befallen += 1;
        }
        if may(faults.leaked_every) && self.leaked.is_none() {
            let held = self.signers().listed;
            self.leaked = Some((Instant::now() + REPLACING, held));
            self.etcd.borrow_mut().request_rotation();
            self.befallen += 1;
        }
        if may(faults.other_mode_every) {
            self.upgrade(self.release.of_other_mode());
        }
        if may(faults.other_lifetimes_every) {
            self.upgrade(self.release.of_other_lifetimes());
        }
        self.roll();
        if self.befallen > befallen {
            self.api.ring();
        }
    }

    fn lose_secret(&mut self) {
        self.losses += 1;
        self.befallen += 1;
        let data = self.secret().unwrap_or_default();
        if self.chance.once_in(2) {
            self.backups.push(data.clone());
        }
        let left = lost(data, &self.backups, &self.chance);
        self.etcd.borrow_mut().write_secret(left);
    }

    /// Renews somebody else's certificate, with a new authority now and then, and not all at once.
    fn issue(&mut self) {
        let now = self.trust.now();
        if self.chance.once_in(3) || now >= self.issuer.old_at {
            self.issuer = Issuer::new(now);
        }
        let whole = self.issuer.issue(now);
        let mut etcd = self.etcd.borrow_mut();
        let mut data = etcd.given.back().unwrap().value.clone();
        let data = data.get_or_insert_default();
        for (key, value) in &whole {
            if self.chance.once_in(2) {
                data.insert(key.clone(), value.clone());
            }
        }
        etcd.give(data.clone());
        let rest = self.chance.up_to(6 * HOUR);
        self.half_issued = Some((Instant::now() + rest, whole));
        // A month before it ends.
        self.issue_at = Instant::now() + 60 * DAY;
    }

    /// Does what is due of what has begun.
    fn complete(&mut self) {
        let now = Instant::now();
        if let Some((_, whole)) = self.half_issued.take_if(|(at, _)| *at <= now) {
            self.etcd.borrow_mut().give(whole);
            self.befallen += 1;
        }
        if self.recreate_at.take_if(|at| *at <= now).is_some() {
            let made = Etcd::new(&["pods", "workloads"], LAG);
            let made = made.webhooks.back().unwrap().value.clone();
            let mut etcd = self.etcd.borrow_mut();
            etcd.excuse(MENDING);
            etcd.write_webhooks(made);
            self.befallen += 1;
        }
    }

    fn upgrade(&mut self, release: Release) {
        self.upgrades += 1;
        self.befallen += 1;
        self.release = release;
    }

    /// Goes on with an upgrade as a Deployment does: one replica, when all others are ready.
    fn roll(&self) {
        if self.trust.ready() < self.slots.len() {
            return;
        }
        let mut slots = self.slots.iter();
        if let Some(old) = slots.find(|slot| slot.release.get() != self.release) {
            old.next_release.set(self.release);
            old.restart();
        }
    }

    /// Empties so many bundles.
    fn empty(&mut self, many: usize) {
        self.befallen += 1;
        let spoilt = emptied(&self.configuration(), many);
        let mut etcd = self.etcd.borrow_mut();
        etcd.excuse(MENDING);
        etcd.write_webhooks(Some(spoilt));
    }
}

/// Our own authorities, as the Secret has them.
#[derive(Debug, PartialEq, Eq)]
struct Signers {
    signer: Option<Bundle>,
    next: Option<Bundle>,
    listed: Bundle,
}

// === impl Told ===

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rotations,
            losses,
            upgrades,
            writes,
            most,
            checks,
            took,
        } = self;
        let years = took.as_secs_f64() / (365.0 * 86400.0);
        write!(
            f,
            "{rotations} rotations in {years:.1} years, {losses} losses of the Secret, {upgrades} \
             upgrades, {writes} writes, {most} certificates at most, {checks} looks"
        )
    }
}
