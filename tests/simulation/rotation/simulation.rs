//! A cluster with its replicas, into which faults are injected until enough rotations have happened.

use std::fmt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};
use webhook::certificates::testing_api::{Bundle, SecretData};

use crate::memory_cluster::{ApiClient, MemoryCluster, Network, ReplicaMode, WebhookConfiguration};
use crate::rotation::faults::{ClockJump, Fault, Faults, damaged_secret, with_empty_bundles};
use crate::rotation::issuer::ExternalIssuer;
use crate::rotation::network::{Connectivity, UnreliableNetwork};
use crate::rotation::release::Release;
use crate::rotation::replica::Replica;
use crate::rotation::replica_slot::ReplicaSlot;
use crate::rotation::rng::Rng;
use crate::rotation::trust::TrustChecker;
use crate::{DAY, HOUR, MINUTE};

const WEBHOOKS: [&str; 2] = ["pods", "workloads"];

/// How far API servers may lag behind etcd: the default activation delay.
const LAG: Duration = Duration::from_secs(120);

/// How old a Secret may be when a replica reads it.
const STALENESS: Duration = MINUTE;

/// How long the repair of broken bundles may take: a few reconciles, as a call may fail.
const REPAIR_TIME: Duration = Duration::from_secs(5 * 60);

/// How long it may take until no bundle has a leaked CA any more: the next one is published and activated, and every
/// replica issues a leaf by it.
const REPLACEMENT_TIME: Duration = Duration::from_secs(20 * 60);

/// The most certificates of an object: the limit of our own, and a few of other issuers.
const MAX_CERTIFICATES: usize = 40;

/// The most writes after one fault, and without a fault.
const MAX_WRITES_PER_FAULT: usize = 40;

/// One simulation.
#[derive(Debug)]
pub(crate) struct Simulation {
    rng: Rng,
    faults: Faults,
    cluster: MemoryCluster,
    trust_checker: Rc<TrustChecker>,
    network: UnreliableNetwork,
    slots: Vec<Rc<ReplicaSlot>>,
    backups: Vec<SecretData>,
    secret_losses: usize,
    issuer: ExternalIssuer,
    issue_at: Instant,
    /// The second half of a change of the TLS Secret, and when it is written.
    pending_issue: Option<(Instant, SecretData)>,
    /// When the deleted webhook configuration is created again.
    recreate_at: Option<Instant>,
    /// The time from which no bundle may have these CAs, whose keys have leaked.
    leaked_cas: Option<(Instant, Bundle)>,
    release: Release,
    upgrades: usize,
    key_leaks: usize,
    fault_count: usize,
}

/// The result of a simulation.
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

// === impl Simulation ===

impl Simulation {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let rng = Rng::new(seed);
        let cluster = MemoryCluster::new(&WEBHOOKS, LAG + STALENESS);
        // In 2026, so that certificates pass 2050, from which X.509 encodes dates differently.
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        let replicas = faults.replicas;
        let trust_checker = TrustChecker::new(cluster.clone(), epoch, LAG, replicas);
        let trust_checker = Rc::new(trust_checker);
        let network =
            UnreliableNetwork::new(Rc::clone(&trust_checker), rng.clone(), replicas, STALENESS);
        let slots = (0..replicas).map(|number| {
            let network = network.for_replica(number);
            let clock_skew = rng.offset_within(5 * MINUTE);
            let slot = ReplicaSlot::new(Rc::clone(&network.connectivity), clock_skew);
            let slot = Rc::new(slot);
            let replica = Replica {
                number,
                api: ApiClient {
                    cluster: cluster.clone(),
                    network,
                    mode: Rc::default(),
                },
                trust_checker: Rc::clone(&trust_checker),
                rng: rng.clone(),
                slot: Rc::clone(&slot),
            };
            spawn_local(replica.run());
            slot
        });
        Self {
            slots: slots.collect(),
            rng,
            faults,
            cluster,
            trust_checker,
            network,
            backups: Vec::new(),
            secret_losses: 0,
            issuer: ExternalIssuer::new(epoch),
            issue_at: Instant::now(),
            pending_issue: None,
            recreate_at: None,
            leaked_cas: None,
            release: Release::default(),
            upgrades: 0,
            key_leaks: 0,
            fault_count: 0,
        }
    }

    /// Injects faults until the CA was replaced this often, and then runs until nothing changes any more.
    ///
    /// # Panics
    /// When a served certificate was not trusted, there are no rotations, or the cluster does not become stable.
    pub(crate) async fn run(mut self, rotations: usize) -> SimulationReport {
        let start = Instant::now();
        let step = self.faults.shortest_interval() / 10;
        while self.cluster.objects().rotations < rotations {
            let before = (self.cluster.objects().writes, self.fault_count);
            sleep(self.rng.duration_up_to(2 * step)).await;
            self.inject_faults(step);
            self.assert_healthy(before);
            let limit = 400 * DAY * u32::try_from(rotations).unwrap();
            assert!(start.elapsed() < limit, "the CA is not rotated");
        }
        self.run_until_stable().await;
        let objects = self.cluster.objects();
        SimulationReport {
            rotations: objects.rotations,
            secret_losses: self.secret_losses,
            upgrades: self.upgrades,
            writes: objects.writes,
            max_certificates: objects.max_certificates,
            checks: self.trust_checker.checks.get(),
            elapsed: start.elapsed(),
        }
    }

    #[track_caller]
    fn assert_healthy(&self, (writes, fault_count): (usize, usize)) {
        if let Some(violation) = &*self.trust_checker.violation.borrow() {
            panic!("{violation}");
        }
        let objects = self.cluster.objects();
        let certificates = objects.max_certificates;
        assert!(
            certificates <= MAX_CERTIFICATES,
            "{certificates} certificates"
        );
        let (writes, faults) = (objects.writes - writes, self.fault_count - fault_count);
        // Earlier faults may still cause writes.
        assert!(
            writes <= MAX_WRITES_PER_FAULT * (faults + 2),
            "{writes} writes"
        );
    }

    /// Runs without faults until every replica is ready and only the active CA is left.
    async fn run_until_stable(&mut self) {
        // Until the last jump of a clock has ended, every pending change is complete, and every replica has been
        // upgraded. No external certificate is renewed meanwhile: the last one is valid for a month.
        for _ in 0..50 {
            sleep(DAY / 2).await;
            self.finish_pending();
            self.continue_rollout();
        }
        self.assert_healthy((self.cluster.objects().writes, self.fault_count));
        let ready = self.trust_checker.ready_replicas();
        assert_eq!(ready, self.slots.len(), "not every replica is ready");
        if self.release.mode == ReplicaMode::Secret {
            let external = self.issuer.ca_bundle();
            let mut bundles = self.bundles().into_iter();
            assert!(bundles.all(|bundle| bundle.contains_all(&external)));
            return;
        }
        self.assert_cas_known();
        // A regular rotation may be under way.
        for _ in 0..3 {
            let before = self.ca_certificates();
            let writes = self.cluster.objects().writes;
            sleep(17 * DAY).await;
            if self.ca_certificates() != before || before.next.is_some() {
                continue;
            }
            self.assert_single_ca(&before);
            let stable_writes = self.cluster.objects().writes;
            sleep(3 * DAY).await;
            if self.ca_certificates() == before {
                let writes = self.cluster.objects().writes;
                assert_eq!(writes, stable_writes, "writes without a change");
            }
            let writes = stable_writes - writes;
            assert!(writes <= MAX_WRITES_PER_FAULT, "{writes} writes");
            self.assert_healthy((stable_writes, self.fault_count));
            return;
        }
        panic!("the CA is rotated again and again");
    }

    /// Asserts that a CA whose key has leaked is in no bundle after its replacement time.
    #[track_caller]
    fn assert_leaked_cas_removed(&mut self) {
        let now = Instant::now();
        if let Some((_, leaked)) = self.leaked_cas.take_if(|(at, _)| *at <= now) {
            for bundle in self.bundles() {
                assert!(
                    leaked.without(&bundle) == leaked,
                    "{bundle:?} has one of {leaked:?}"
                );
            }
        }
    }

    /// Asserts that the Secret lists every CA of ours that a bundle has.
    #[track_caller]
    fn assert_cas_known(&self) {
        let CaCertificates { all: known, .. } = self.ca_certificates();
        for bundle in self.bundles() {
            let own = bundle.issued_by_us();
            let own = own.without(&own.expired(self.trust_checker.now()));
            assert!(known.contains_all(&own), "{own:?} of {known:?}");
        }
    }

    #[track_caller]
    fn assert_single_ca(&self, certificates: &CaCertificates) {
        let active = certificates.active.clone().expect("a CA is active");
        assert_eq!(certificates.all, active, "in the Secret");
        for bundle in self.bundles() {
            assert_eq!(bundle.issued_by_us(), active, "in a bundle");
            assert!(self.upgrades > 0 || bundle == active, "{bundle:?}");
        }
    }

    fn bundles(&self) -> Vec<Bundle> {
        let bundles = self.cluster.bundles();
        assert_eq!(bundles.len(), WEBHOOKS.len(), "no webhook configuration");
        bundles
    }

    fn ca_certificates(&self) -> CaCertificates {
        let data = self.cluster.secret().unwrap_or_default();
        let read = |key| data.get(key).map(|pem| Bundle::read(pem));
        CaCertificates {
            active: read("active.crt"),
            next: read("next.crt"),
            all: read("ca.crt").unwrap_or_default(),
        }
    }

    /// Injects the faults of one step, each with the probability of its interval.
    fn inject_faults(&mut self, step: Duration) {
        let rng = self.rng.clone();
        let faults = self.faults.clone();
        let happens = |fault: Fault| {
            let is_due = |every: Duration| rng.one_in(every.as_secs() / step.as_secs().max(1));
            faults.interval(fault).is_some_and(is_due)
        };
        let one = usize::try_from(rng.below(self.slots.len() as u64)).unwrap();
        // Nothing is promised for a clock that is weeks ahead while another replica is disconnected.
        let mut jumps = self.slots.iter().filter_map(|slot| slot.clock_jump.get());
        let is_ahead = jumps.any(ClockJump::is_ahead);
        let mut connectivity = self.slots.iter().map(|slot| slot.connectivity.get());
        let is_disconnected = connectivity.any(|it| it != Connectivity::Connected);
        let is_issue_due = Instant::now() >= self.issue_at && !is_disconnected && !is_ahead;
        let fault_count = self.fault_count;
        // A replica that starts just after the external CA has changed must notice that it is new.
        if is_issue_due || happens(Fault::Restart) {
            self.slots[one].restart();
            self.fault_count += 1;
        } else if happens(Fault::Disconnect) && !is_ahead {
            let connectivity = if rng.one_in(2) {
                Connectivity::Disconnected
            } else {
                Connectivity::Suspended
            };
            self.slots[one].disconnect_for(connectivity, rng.duration_up_to(6 * HOUR));
            self.fault_count += 1;
        } else if happens(Fault::ClockJump) && !is_disconnected && self.slots[one].is_running.get()
        {
            self.slots[one].jump_clock(ClockJump::random(&rng));
            self.fault_count += 1;
        }
        if is_issue_due {
            self.renew_external_certificate();
        }
        self.finish_pending();
        self.assert_leaked_cas_removed();
        if happens(Fault::SecretLoss) {
            self.lose_secret();
        }
        // Some replica must know the state that is lost.
        let is_recoverable =
            self.slots.iter().any(|slot| slot.is_healthy()) && self.recreate_at.is_none();
        if happens(Fault::BundleClear) && is_recoverable {
            let count = 1 + usize::try_from(rng.below(2)).unwrap();
            self.clear_bundles(count);
        }
        if happens(Fault::ForceUpgrade) && is_recoverable {
            self.cluster.set_secret(Some(SecretData::new()));
            self.secret_losses += 1;
            self.clear_bundles(2);
        }
        if happens(Fault::WebhooksDeletion) && is_recoverable {
            self.cluster.set_webhooks(None);
            self.recreate_at = Some(Instant::now() + rng.duration_up_to(10 * MINUTE));
            self.fault_count += 1;
        }
        if happens(Fault::KeyLeak) && self.leaked_cas.is_none() {
            let leaked = self.ca_certificates().all;
            self.leaked_cas = Some((Instant::now() + REPLACEMENT_TIME, leaked));
            self.key_leaks += 1;
            self.cluster.request_rotation(&self.key_leaks.to_string());
            self.fault_count += 1;
        }
        if happens(Fault::ModeChange) {
            self.start_upgrade(self.release.with_other_mode());
        }
        if happens(Fault::LifetimesChange) {
            self.start_upgrade(self.release.with_other_lifetimes());
        }
        if happens(Fault::NamespaceDeletion) && self.recreate_at.is_none() {
            self.cluster.set_secret(None);
            self.slots.iter().for_each(|slot| slot.restart());
            self.secret_losses += 1;
            self.fault_count += 1;
        }
        self.continue_rollout();
        if self.fault_count > fault_count {
            self.network.notify();
        }
    }

    fn lose_secret(&mut self) {
        self.secret_losses += 1;
        self.fault_count += 1;
        let data = self.cluster.secret().unwrap_or_default();
        if self.rng.one_in(2) {
            self.backups.push(data.clone());
        }
        let damaged = damaged_secret(data, &self.backups, &self.rng);
        self.cluster.set_secret(damaged);
    }

    /// Renews the external certificate, now and then by a new CA, and writes the keys of the Secret in two parts.
    fn renew_external_certificate(&mut self) {
        let now = self.trust_checker.now();
        if self.rng.one_in(3) || now >= self.issuer.renewal_time {
            self.issuer = ExternalIssuer::new(now);
        }
        let complete = self.issuer.issue(now);
        let mut data = self.cluster.tls_secret().unwrap_or_default();
        for (key, value) in &complete {
            if self.rng.one_in(2) {
                data.insert(key.clone(), value.clone());
            }
        }
        self.cluster.set_tls_secret(Some(data));
        let delay = self.rng.duration_up_to(6 * HOUR);
        self.pending_issue = Some((Instant::now() + delay, complete));
        // A month before it expires.
        self.issue_at = Instant::now() + 60 * DAY;
    }

    /// Completes the changes that are due.
    fn finish_pending(&mut self) {
        let now = Instant::now();
        if let Some((_, complete)) = self.pending_issue.take_if(|(at, _)| *at <= now) {
            self.cluster.set_tls_secret(Some(complete));
            self.fault_count += 1;
        }
        if self.recreate_at.take_if(|at| *at <= now).is_some() {
            self.trust_checker.exempt(REPAIR_TIME);
            let configuration = WebhookConfiguration::without_bundles(&WEBHOOKS);
            self.cluster.set_webhooks(Some(configuration));
            self.fault_count += 1;
        }
    }

    fn start_upgrade(&mut self, release: Release) {
        self.upgrades += 1;
        self.fault_count += 1;
        self.release = release;
    }

    /// Continues an upgrade as a Deployment does: restarts one replica when all are ready.
    fn continue_rollout(&self) {
        if self.trust_checker.ready_replicas() < self.slots.len() {
            return;
        }
        let mut slots = self.slots.iter();
        if let Some(old) = slots.find(|slot| slot.release.get() != self.release) {
            old.next_release.set(self.release);
            old.restart();
            self.network.notify();
        }
    }

    /// Empties this many bundles.
    fn clear_bundles(&mut self, count: usize) {
        self.fault_count += 1;
        let configuration = self.cluster.webhooks().expect("there is a configuration");
        self.trust_checker.exempt(REPAIR_TIME);
        let cleared = with_empty_bundles(&configuration, count);
        self.cluster.set_webhooks(Some(cleared));
    }
}

/// The CAs of the Secret.
#[derive(Debug, PartialEq, Eq)]
struct CaCertificates {
    active: Option<Bundle>,
    next: Option<Bundle>,
    all: Bundle,
}

// === impl SimulationReport ===

impl fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rotations,
            secret_losses,
            upgrades,
            writes,
            max_certificates,
            checks,
            elapsed,
        } = self;
        let years = elapsed.as_secs_f64() / (365.0 * 86400.0);
        write!(
            f,
            "{rotations} rotations in {years:.1} years, {secret_losses} losses of the Secret, {upgrades} \
             upgrades, {writes} writes, at most {max_certificates} certificates, {checks} checks"
        )
    }
}
