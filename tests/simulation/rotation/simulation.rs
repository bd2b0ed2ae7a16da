//! A cluster, its replicas, and the time that passes.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};
use webhook::certificates::testing_api::{Bundle, SecretData};

use crate::rotation::cluster::{ApiClient, Connectivity, Etcd, ReplicaMode, WebhookConfiguration};
use crate::rotation::faults::{ClockJump, Faults, damaged_secret, with_empty_bundles};
use crate::rotation::issuer::ExternalIssuer;
use crate::rotation::replica::{Release, Replica};
use crate::rotation::replica_slot::ReplicaSlot;
use crate::rotation::rng::Rng;
use crate::rotation::trust::TrustChecker;
use crate::rotation::{DAY, HOUR, MINUTE};

/// How far API servers may be behind: the default activation delay.
const LAG: Duration = Duration::from_secs(120);

/// How old a state may be that a replica reads.
const STALENESS: Duration = MINUTE;

/// How long it may take until spoilt bundles are mended: a few ticks, as a call may fail.
const REPAIR_TIME: Duration = Duration::from_secs(5 * 60);

/// How long it may take until a leaked CA is in no bundle any more: the next one is published and activated,
/// and every replica follows.
const REPLACEMENT_TIME: Duration = Duration::from_secs(20 * 60);

/// So many certificates may be in an object: what our own may be at most, and a few of somebody else.
const MAX_CERTIFICATES: usize = 40;

/// So many writes may follow from one thing that befalls, and as many from none.
const MAX_WRITES_PER_FAULT: usize = 40;

/// One run.
#[derive(Debug)]
pub(crate) struct Simulation {
    rng: Rng,
    faults: Faults,
    etcd: Rc<RefCell<Etcd>>,
    trust_checker: Rc<TrustChecker>,
    api: ApiClient,
    slots: Vec<ReplicaSlot>,
    backups: Vec<SecretData>,
    secret_losses: usize,
    issuer: ExternalIssuer,
    issue_at: Instant,
    /// The other half of a change of somebody else's Secret, and when it comes.
    pending_issue: Option<(Instant, SecretData)>,
    recreate_at: Option<Instant>,
    /// CAs whose keys have leaked, and when no bundle may have them any more.
    leaked_cas: Option<(Instant, Bundle)>,
    release: Release,
    upgrades: usize,
    /// All that befell.
    fault_count: usize,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct SimulationReport {
    rotations: usize,
    secret_losses: usize,
    upgrades: usize,
    writes: usize,
    max_certificates: usize,
    checks: u64,
    elapsed: Duration,
}

// === impl World ===

impl Simulation {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let chance = Rng::new(seed);
        let etcd = Etcd::new(&["pods", "workloads"], LAG + STALENESS);
        let etcd = Rc::new(RefCell::new(etcd));
        // 2026, so that certificates pass 2050 on their way.
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let replicas = faults.replicas;
        let trust = Rc::new(TrustChecker::new(Rc::clone(&etcd), epoch, LAG, replicas));
        let api = ApiClient::new(
            Rc::clone(&etcd),
            Rc::clone(&trust),
            chance.clone(),
            replicas,
            STALENESS,
        );
        let slots = (0..replicas).map(|number| {
            let replica = Replica {
                number,
                api: api.for_replica(number),
                trust_checker: Rc::clone(&trust),
                rng: chance.clone(),
                clock_skew: Rc::new(chance.offset_within(5 * MINUTE).into()),
                release: Rc::default(),
                next_release: Rc::default(),
                restart_requested: Rc::default(),
                is_running: Rc::default(),
            };
            let slot = ReplicaSlot::new(&replica);
            spawn_local(replica.run());
            slot
        });
        Self {
            slots: slots.collect(),
            rng: chance,
            faults,
            etcd,
            trust_checker: trust,
            api,
            backups: Vec::new(),
            secret_losses: 0,
            issuer: ExternalIssuer::new(epoch),
            issue_at: Instant::now(),
            pending_issue: None,
            recreate_at: None,
            leaked_cas: None,
            release: Release::default(),
            upgrades: 0,
            fault_count: 0,
        }
    }

    /// Goes on until the authority was replaced so often, and then until all is quiet.
    ///
    /// # Panics
    /// When trust was broken, or rotations do not come about, or all is not well in the end.
    pub(crate) async fn run(mut self, rotations: usize) -> SimulationReport {
        let start = Instant::now();
        let step = self.faults.shortest_interval() / 10;
        while self.etcd.borrow().rotations < rotations {
            let before = (self.etcd.borrow().writes, self.fault_count);
            sleep(self.rng.duration_up_to(2 * step)).await;
            self.inject_faults(step);
            self.assert_healthy(before);
            let most = 400 * DAY * u32::try_from(rotations).unwrap();
            assert!(start.elapsed() < most, "authorities are not replaced");
        }
        self.run_until_stable().await;
        let etcd = self.etcd.borrow();
        SimulationReport {
            rotations: etcd.rotations,
            secret_losses: self.secret_losses,
            upgrades: self.upgrades,
            writes: etcd.writes,
            max_certificates: etcd.max_certificates,
            checks: self.trust_checker.checks.get(),
            elapsed: start.elapsed(),
        }
    }

    #[track_caller]
    fn assert_healthy(&self, (writes, befallen): (usize, usize)) {
        if let Some(breach) = &*self.trust_checker.violation.borrow() {
            panic!("{breach}");
        }
        let etcd = self.etcd.borrow();
        assert!(!etcd.has_lost_update, "what nobody had read");
        assert!(
            etcd.max_certificates <= MAX_CERTIFICATES,
            "{} certificates",
            etcd.max_certificates
        );
        let (writes, befallen) = (etcd.writes - writes, self.fault_count - befallen);
        // What befell just before may still have its way.
        assert!(
            writes <= MAX_WRITES_PER_FAULT * (befallen + 2),
            "{writes} writes"
        );
    }

    /// Lets all come to rest: every replica is ready, and in the end nothing is left but what signs.
    async fn run_until_stable(&mut self) {
        // The last cut is over, and half a change is whole.
        for _ in 0..14 {
            sleep(HOUR / 2).await;
            self.finish_pending();
            self.continue_rollout();
        }
        sleep(20 * DAY).await;
        self.assert_healthy((self.etcd.borrow().writes, self.fault_count));
        let ready = self.trust_checker.ready_replicas();
        assert_eq!(ready, self.slots.len(), "ready in the end");
        if self.release.mode == ReplicaMode::Secret {
            let issued = self.issuer.ca_bundle();
            let mut bundles = self.bundles().into_iter();
            assert!(bundles.all(|bundle| bundle.contains_all(&issued)));
            return;
        }
        self.assert_cas_known();
        // Another may have begun to sign just now.
        for _ in 0..3 {
            let before = self.ca_certificates();
            let writes = self.etcd.borrow().writes;
            sleep(17 * DAY).await;
            if self.ca_certificates() != before || before.next.is_some() {
                continue;
            }
            self.assert_single_ca(&before);
            let quiet = self.etcd.borrow().writes;
            sleep(3 * DAY).await;
            if self.ca_certificates() == before {
                assert_eq!(self.etcd.borrow().writes, quiet, "writes for nothing");
            }
            assert!(
                quiet - writes <= MAX_WRITES_PER_FAULT,
                "{} writes",
                quiet - writes
            );
            self.assert_healthy((quiet, self.fault_count));
            return;
        }
        panic!("authorities are replaced again and again");
    }

    /// A CA whose key has leaked is trusted no more when its time is over.
    #[track_caller]
    fn assert_leaked_cas_removed(&mut self) {
        let now = Instant::now();
        if let Some((_, leaked)) = self.leaked_cas.take_if(|(at, _)| *at <= now) {
            for bundle in self.bundles() {
                let left = leaked.filter(|der| bundle.contains(der));
                assert!(left.is_empty(), "{left:?} of {leaked:?}");
            }
        }
    }

    /// Every authority of ours that is trusted is known.
    #[track_caller]
    fn assert_cas_known(&self) {
        let CaCertificates { all: listed, .. } = self.ca_certificates();
        for bundle in self.bundles() {
            let own = bundle.issued_by_us().valid(self.trust_checker.now());
            assert!(listed.contains_all(&own), "{own:?} of {listed:?}");
        }
    }

    #[track_caller]
    fn assert_single_ca(&self, signers: &CaCertificates) {
        let signer = signers.active.clone().expect("one signs");
        assert_eq!(signers.all, signer, "in the Secret");
        for bundle in self.bundles() {
            assert_eq!(bundle.issued_by_us(), signer, "of ours in a bundle");
            assert!(self.upgrades > 0 || bundle == signer, "{bundle:?}");
        }
    }

    fn bundles(&self) -> Vec<Bundle> {
        let bundles = self.configuration().bundles;
        bundles.into_iter().map(|(_, bundle)| bundle).collect()
    }

    fn configuration(&self) -> WebhookConfiguration {
        let etcd = self.etcd.borrow();
        let last = etcd.webhooks.back().unwrap().value.clone();
        last.expect("there is a configuration")
    }

    fn secret(&self) -> Option<SecretData> {
        self.etcd.borrow().secret.back().unwrap().value.clone()
    }

    fn ca_certificates(&self) -> CaCertificates {
        let data = self.secret().unwrap_or_default();
        let read = |key| data.get(key).map(|pem| Bundle::read(pem));
        CaCertificates {
            active: read("signer.crt"),
            next: read("next.crt"),
            all: read("ca.crt").unwrap_or_default(),
        }
    }

    /// Lets happen what may in this time.
    fn inject_faults(&mut self, step: Duration) {
        let chance = self.rng.clone();
        let faults = self.faults.clone();
        let happens = |every: Duration| {
            let times = every.as_secs() / step.as_secs().max(1);
            chance.one_in(times)
        };
        let may = |every: Option<Duration>| every.is_some_and(happens);
        let one = usize::try_from(chance.below(self.slots.len() as u64)).unwrap();
        // A clock that is weeks ahead beside a replica that nobody reaches is more than is claimed.
        let mut jumps = self.slots.iter().filter_map(|slot| slot.clock_jump.get());
        let ahead = jumps.any(ClockJump::is_ahead);
        let cut = self
            .slots
            .iter()
            .any(|slot| slot.connectivity.get() != Connectivity::Connected);
        let issued = Instant::now() >= self.issue_at && !cut && !ahead;
        let befallen = self.fault_count;
        // One that starts just after somebody else has a new authority must find out that this is new.
        if issued || happens(faults.restart_every) {
            self.slots[one].restart();
            self.fault_count += 1;
        } else if happens(faults.disconnect_every) && !ahead {
            let way = if chance.one_in(2) {
                Connectivity::Disconnected
            } else {
                Connectivity::Suspended
            };
            self.slots[one].disconnect_for(way, chance.duration_up_to(6 * HOUR));
            self.fault_count += 1;
        } else if happens(faults.clock_jump_every) && !cut && self.slots[one].is_running.get() {
            self.slots[one].jump_clock(ClockJump::random(&chance));
            self.fault_count += 1;
        }
        if issued {
            self.renew_external_certificate();
        }
        self.finish_pending();
        self.assert_leaked_cas_removed();
        if happens(faults.secret_loss_every) {
            self.lose_secret();
        }
        // Of what nobody is left to tell, nobody knows.
        let well = self.slots.iter().any(ReplicaSlot::is_healthy) && self.recreate_at.is_none();
        if may(faults.bundle_clear_every) && well {
            let many = 1 + usize::try_from(chance.below(2)).unwrap();
            self.clear_bundles(many);
        }
        if may(faults.force_upgrade_every) && well {
            self.etcd.borrow_mut().write_secret(Some(SecretData::new()));
            self.secret_losses += 1;
            self.clear_bundles(2);
        }
        if may(faults.webhooks_deletion_every) && well {
            self.etcd.borrow_mut().write_webhooks(None);
            self.recreate_at = Some(Instant::now() + chance.duration_up_to(10 * MINUTE));
            self.fault_count += 1;
        }
        if may(faults.key_leak_every) && self.leaked_cas.is_none() {
            let held = self.ca_certificates().all;
            self.leaked_cas = Some((Instant::now() + REPLACEMENT_TIME, held));
            self.etcd.borrow_mut().request_rotation();
            self.fault_count += 1;
        }
        if may(faults.mode_change_every) {
            self.start_upgrade(self.release.with_other_mode());
        }
        if may(faults.lifetimes_change_every) {
            self.start_upgrade(self.release.with_other_lifetimes());
        }
        self.continue_rollout();
        if self.fault_count > befallen {
            self.api.notify();
        }
    }

    fn lose_secret(&mut self) {
        self.secret_losses += 1;
        self.fault_count += 1;
        let data = self.secret().unwrap_or_default();
        if self.rng.one_in(2) {
            self.backups.push(data.clone());
        }
        let left = damaged_secret(data, &self.backups, &self.rng);
        self.etcd.borrow_mut().write_secret(left);
    }

    /// Renews somebody else's certificate, with a new authority now and then, and not all at once.
    fn renew_external_certificate(&mut self) {
        let now = self.trust_checker.now();
        if self.rng.one_in(3) || now >= self.issuer.renewal_time {
            self.issuer = ExternalIssuer::new(now);
        }
        let whole = self.issuer.issue(now);
        let mut etcd = self.etcd.borrow_mut();
        let mut data = etcd.tls_secret.back().unwrap().value.clone();
        let data = data.get_or_insert_default();
        for (key, value) in &whole {
            if self.rng.one_in(2) {
                data.insert(key.clone(), value.clone());
            }
        }
        etcd.write_tls_secret(data.clone());
        let rest = self.rng.duration_up_to(6 * HOUR);
        self.pending_issue = Some((Instant::now() + rest, whole));
        // A month before it ends.
        self.issue_at = Instant::now() + 60 * DAY;
    }

    /// Does what is due of what has begun.
    fn finish_pending(&mut self) {
        let now = Instant::now();
        if let Some((_, whole)) = self.pending_issue.take_if(|(at, _)| *at <= now) {
            self.etcd.borrow_mut().write_tls_secret(whole);
            self.fault_count += 1;
        }
        if self.recreate_at.take_if(|at| *at <= now).is_some() {
            let made = Etcd::new(&["pods", "workloads"], LAG);
            let made = made.webhooks.back().unwrap().value.clone();
            let mut etcd = self.etcd.borrow_mut();
            etcd.exempt(REPAIR_TIME);
            etcd.write_webhooks(made);
            self.fault_count += 1;
        }
    }

    fn start_upgrade(&mut self, release: Release) {
        self.upgrades += 1;
        self.fault_count += 1;
        self.release = release;
    }

    /// Goes on with an upgrade as a Deployment does: one replica, when all others are ready.
    fn continue_rollout(&self) {
        if self.trust_checker.ready_replicas() < self.slots.len() {
            return;
        }
        let mut slots = self.slots.iter();
        if let Some(old) = slots.find(|slot| slot.release.get() != self.release) {
            old.next_release.set(self.release);
            old.restart();
        }
    }

    /// Empties so many bundles.
    fn clear_bundles(&mut self, many: usize) {
        self.fault_count += 1;
        let spoilt = with_empty_bundles(&self.configuration(), many);
        let mut etcd = self.etcd.borrow_mut();
        etcd.exempt(REPAIR_TIME);
        etcd.write_webhooks(Some(spoilt));
    }
}

/// Our own authorities, as the Secret has them.
#[derive(Debug, PartialEq, Eq)]
struct CaCertificates {
    active: Option<Bundle>,
    next: Option<Bundle>,
    all: Bundle,
}

// === impl Told ===

impl fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rotations,
            secret_losses: losses,
            upgrades,
            writes,
            max_certificates: most,
            checks,
            elapsed: took,
        } = self;
        let years = took.as_secs_f64() / (365.0 * 86400.0);
        write!(
            f,
            "{rotations} rotations in {years:.1} years, {losses} losses of the Secret, {upgrades} \
             upgrades, {writes} writes, {most} certificates at most, {checks} looks"
        )
    }
}
