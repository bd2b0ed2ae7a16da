//! An API in memory: one Secret, one webhook configuration, and all that can go wrong with calls.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use webhook::certificates::testing_api::{
    Bundle, Cluster, Secret, SecretData, StoreCall, StoreError, Webhooks,
};

use crate::rotation::MINUTE;
use crate::rotation::rng::Rng;
use crate::rotation::trust::TrustChecker;

/// The state of an object from one instant on.
#[derive(Debug, Clone)]
pub(crate) struct Revision<T> {
    pub(crate) since: Instant,
    pub(crate) version: u64,
    pub(crate) value: T,
}

/// The webhook configuration.
#[derive(Debug, Clone)]
pub(crate) struct WebhookConfiguration {
    pub(crate) bundles: Vec<(String, Bundle)>,
    /// When a replica last wrote it.
    pub(crate) last_write: Option<Instant>,
}

/// What etcd holds, and held for as long as anybody may read it.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) secret: VecDeque<Revision<Option<SecretData>>>,
    /// Somebody else's Secret, of mode `secret`.
    pub(crate) tls_secret: VecDeque<Revision<Option<SecretData>>>,
    pub(crate) webhooks: VecDeque<Revision<Option<WebhookConfiguration>>>,
    /// How often an operator has requested a rotation.
    rotation_requests: usize,
    version: u64,
    /// How often another authority began to sign.
    pub(crate) rotations: usize,
    /// What replicas wrote.
    pub(crate) writes: usize,
    /// Somebody wrote over what it had not read.
    pub(crate) has_lost_update: bool,
    /// The most certificates that an object ever had.
    pub(crate) max_certificates: usize,
    /// Nobody of ours is to blame for states that came and went within these times.
    exempt_periods: Vec<(Instant, Instant)>,
    /// For how long old states are read.
    retention: Duration,
}

/// In which mode a replica runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ReplicaMode {
    #[default]
    SelfManaged,
    Secret,
}

/// What becomes of a replica's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Connectivity {
    /// They take their time.
    #[default]
    Connected,
    /// They never come back.
    Disconnected,
    /// Writes are sent much later: the replica was suspended after it had decided.
    Suspended,
}

/// One replica's way to the API.
#[derive(Debug, Clone)]
pub(crate) struct ApiClient {
    etcd: Rc<RefCell<Etcd>>,
    rng: Rng,
    /// Rings in every replica, later or sooner.
    pub(crate) notifiers: Rc<Vec<Notify>>,
    replica: usize,
    pub(crate) connectivity: Rc<Cell<Connectivity>>,
    staleness: Duration,
    /// Whose Secret is read.
    pub(crate) mode: Rc<Cell<ReplicaMode>>,
    /// Reaches every replica after each write: its tick, which is more often than is worth to run
    /// while nothing happens.
    pub(crate) tick_notifiers: Rc<Vec<Notify>>,
    trust_checker: Rc<TrustChecker>,
}

// === impl Etcd ===

impl Etcd {
    pub(crate) fn new(webhooks: &[&str], memory: Duration) -> Self {
        let since = Instant::now();
        let webhooks = webhooks.iter().copied();
        Self {
            secret: VecDeque::from([Revision {
                since,
                version: 1,
                value: Some(SecretData::new()),
            }]),
            tls_secret: VecDeque::from([Revision {
                since,
                version: 1,
                value: None,
            }]),
            webhooks: VecDeque::from([Revision {
                since,
                version: 2,
                value: Some(WebhookConfiguration {
                    bundles: webhooks
                        .map(|name| (name.to_owned(), Bundle::default()))
                        .collect(),
                    last_write: None,
                }),
            }]),
            rotation_requests: 0,
            version: 2,
            rotations: 0,
            writes: 0,
            has_lost_update: false,
            max_certificates: 0,
            exempt_periods: Vec::new(),
            retention: memory,
        }
    }

    pub(crate) fn write_secret(&mut self, value: Option<SecretData>) {
        self.version += 1;
        let signer = |value: &Option<SecretData>| value.as_ref()?.get("signer.crt").cloned();
        let before = self.secret.back().and_then(|last| signer(&last.value));
        let after = signer(&value);
        self.rotations += usize::from(after.is_some() && after != before);
        let listed = value.as_ref().and_then(|data| data.get("ca.crt"));
        self.max_certificates = listed.map_or(self.max_certificates, |pem| {
            self.max_certificates
                .max(count_certificates(&Bundle::read(pem)))
        });
        push_revision(&mut self.secret, self.version, value, self.retention);
    }

    /// Annotates the Secret.
    pub(crate) fn request_rotation(&mut self) {
        self.rotation_requests += 1;
        let held = self.secret.back().and_then(|last| last.value.clone());
        self.write_secret(held);
    }

    pub(crate) fn write_tls_secret(&mut self, value: SecretData) {
        self.version += 1;
        push_revision(
            &mut self.tls_secret,
            self.version,
            Some(value),
            self.retention,
        );
    }

    pub(crate) fn write_webhooks(&mut self, value: Option<WebhookConfiguration>) {
        self.version += 1;
        let bundles = value.iter().flat_map(|value| &value.bundles);
        let largest = bundles.map(|(_, bundle)| count_certificates(bundle)).max();
        self.max_certificates = self.max_certificates.max(largest.unwrap_or_default());
        push_revision(&mut self.webhooks, self.version, value, self.retention);
    }

    fn rotate_annotation(&self) -> Option<String> {
        (self.rotation_requests > 0).then(|| self.rotation_requests.to_string())
    }

    /// A replica writes, and whether it had read what it writes over.
    fn record_write(&mut self, read: bool) {
        self.writes += 1;
        self.has_lost_update |= !read;
    }

    /// Somebody else is about to spoil the bundles, and this is how long mending may take.
    pub(crate) fn exempt(&mut self, mending: Duration) {
        let now = Instant::now();
        self.exempt_periods.push((now, now + mending));
    }

    /// The states of the webhooks that an API server which is `lag` behind may act upon.
    pub(crate) fn visible_webhooks(
        &self,
        lag: Duration,
    ) -> impl Iterator<Item = &Revision<Option<WebhookConfiguration>>> {
        let now = Instant::now();
        let ends = self.webhooks.iter().skip(1).map(|next| next.since);
        let ends: Vec<_> = ends.chain([now]).collect();
        let excused = move |state: &Revision<_>, end| {
            let mut excused = self.exempt_periods.iter();
            excused.any(|(from, until)| state.since >= *from && end <= *until)
        };
        let first =
            self.webhooks.len() - current_since(&self.webhooks, instant_before(lag)).count();
        let states = self.webhooks.iter().zip(ends).skip(first);
        states.filter_map(move |(state, end)| (!excused(state, end)).then_some(state))
    }
}

fn count_certificates(bundle: &Bundle) -> usize {
    bundle.iter().count()
}

fn push_revision<T>(states: &mut VecDeque<Revision<T>>, version: u64, value: T, memory: Duration) {
    let since = Instant::now();
    states.push_back(Revision {
        since,
        version,
        value,
    });
    // The one that was current at the end of the memory is still needed.
    while states
        .get(1)
        .is_some_and(|next| next.since + memory < since)
    {
        states.pop_front();
    }
}

fn instant_before(lag: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(lag).unwrap_or(now)
}

/// The states that were current at `oldest` or later.
fn current_since<T>(
    states: &VecDeque<Revision<T>>,
    oldest: Instant,
) -> impl Iterator<Item = &Revision<T>> {
    let first = states.iter().rposition(|state| state.since <= oldest);
    states.iter().skip(first.unwrap_or(0))
}

// === impl Api ===

impl ApiClient {
    pub(crate) fn new(
        etcd: Rc<RefCell<Etcd>>,
        trust: Rc<TrustChecker>,
        chance: Rng,
        replicas: usize,
        staleness: Duration,
    ) -> Self {
        Self {
            etcd,
            rng: chance,
            notifiers: Rc::new((0..replicas).map(|_| Notify::new()).collect()),
            replica: 0,
            connectivity: Rc::default(),
            staleness,
            mode: Rc::default(),
            tick_notifiers: Rc::new((0..replicas).map(|_| Notify::new()).collect()),
            trust_checker: trust,
        }
    }

    pub(crate) fn for_replica(&self, replica: usize) -> Self {
        Self {
            replica,
            connectivity: Rc::default(),
            mode: Rc::default(),
            ..self.clone()
        }
    }

    /// The way there or back: nothing or milliseconds, sometimes seconds, sometimes for ever.
    async fn transit(&self, call: StoreCall) -> Result<(), StoreError> {
        self.trust_checker.check();
        let most = match self.rng.below(20) {
            0 => 8000,
            1..8 => 50,
            _ => 0,
        };
        if most > 0 {
            sleep(self.rng.duration_up_to(Duration::from_millis(most))).await;
        }
        if self.connectivity.get() == Connectivity::Disconnected || self.rng.one_in(50) {
            return Err(StoreError::Timeout { call });
        }
        Ok(())
    }

    /// The way of what was decided.
    async fn transit_write(&self, call: StoreCall) -> Result<(), StoreError> {
        while self.connectivity.get() == Connectivity::Suspended {
            sleep(self.rng.duration_up_to(10 * MINUTE)).await;
        }
        self.transit(call).await
    }

    /// Returns a state that was current not long ago: mostly the last one.
    fn read_revision<T: Clone>(&self, states: &VecDeque<Revision<T>>) -> Revision<T> {
        let oldest = if self.rng.one_in(10) {
            instant_before(self.rng.duration_up_to(self.staleness))
        } else {
            Instant::now()
        };
        current_since(states, oldest)
            .next()
            .expect("there is a state")
            .clone()
    }

    /// Rings everywhere, but where the event is lost.
    pub(crate) fn notify(&self) {
        for bell in self.notifiers.iter() {
            if !self.rng.one_in(10) {
                bell.notify_one();
            }
        }
        for clock in self.tick_notifiers.iter() {
            clock.notify_one();
        }
        self.trust_checker.check();
    }
}

impl Cluster for ApiClient {
    async fn secret(&self) -> Result<Option<Secret>, StoreError> {
        self.transit(StoreCall::ReadSecret).await?;
        let state = match self.mode.get() {
            ReplicaMode::SelfManaged => self.read_revision(&self.etcd.borrow().secret),
            ReplicaMode::Secret => self.read_revision(&self.etcd.borrow().tls_secret),
        };
        self.transit(StoreCall::ReadSecret).await?;
        Ok(state.value.map(|data| Secret {
            resource_version: state.version.to_string(),
            data,
            rotate: self.etcd.borrow().rotate_annotation(),
            unwritable_reason: None,
        }))
    }

    async fn create_secret(&self) -> Result<(), StoreError> {
        self.transit_write(StoreCall::WriteSecret).await?;
        {
            let mut etcd = self.etcd.borrow_mut();
            if etcd.secret.back().is_some_and(|last| last.value.is_none()) {
                etcd.record_write(true);
                etcd.write_secret(Some(SecretData::new()));
            }
        }
        self.notify();
        self.transit(StoreCall::WriteSecret).await
    }

    async fn write_secret(
        &self,
        version: &str,
        keys: BTreeMap<String, Option<Vec<u8>>>,
    ) -> Result<(), StoreError> {
        let call = StoreCall::WriteSecret;
        self.transit_write(call).await?;
        {
            let mut etcd = self.etcd.borrow_mut();
            let last = etcd.secret.back().expect("there is a state").clone();
            let conflict = last.version.to_string() != version;
            let Some(mut data) = last.value.filter(|_| !conflict) else {
                return Err(StoreError::Conflict { call });
            };
            for (key, value) in keys {
                match value {
                    Some(value) => data.insert(key, value),
                    None => data.remove(&key),
                };
            }
            etcd.record_write(last.version.to_string() == version);
            etcd.write_secret(Some(data));
        }
        self.notify();
        // An answer may be lost of what was done.
        self.transit(call).await
    }

    async fn webhooks(&self) -> Result<Option<Webhooks>, StoreError> {
        self.transit(StoreCall::ReadWebhooks).await?;
        let last = self.etcd.borrow().webhooks.back().cloned();
        let state = last.expect("there is a state");
        self.transit(StoreCall::ReadWebhooks).await?;
        Ok(state.value.map(|configuration| Webhooks {
            resource_version: state.version.to_string(),
            bundles: configuration.bundles,
            // The API server's clock is right.
            written_at: configuration
                .last_write
                .map(|at| self.trust_checker.wall_clock_at(at)),
        }))
    }

    async fn write_bundles(&self, webhooks: &Webhooks) -> Result<(), StoreError> {
        let call = StoreCall::WriteBundles;
        self.transit_write(call).await?;
        {
            let mut etcd = self.etcd.borrow_mut();
            let last = etcd.webhooks.back().expect("there is a state");
            let read = last.version.to_string() == webhooks.resource_version;
            if !read || last.value.is_none() {
                return Err(StoreError::Conflict { call });
            }
            etcd.record_write(read);
            etcd.write_webhooks(Some(WebhookConfiguration {
                bundles: webhooks.bundles.clone(),
                last_write: Some(Instant::now()),
            }));
        }
        self.notify();
        self.transit(call).await
    }

    async fn changed(&self) {
        self.notifiers[self.replica].notified().await;
    }
}
