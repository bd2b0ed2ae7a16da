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

use crate::MINUTE;
use crate::chance::Chance;
use crate::trust::Trust;

/// The state of an object from one instant on.
#[derive(Debug, Clone)]
pub(crate) struct State<T> {
    pub(crate) since: Instant,
    pub(crate) version: u64,
    pub(crate) value: T,
}

/// The webhook configuration.
#[derive(Debug, Clone)]
pub(crate) struct Configuration {
    pub(crate) bundles: Vec<(String, Bundle)>,
    /// When a replica last wrote it.
    pub(crate) written: Option<Instant>,
}

/// What etcd holds, and held for as long as anybody may read it.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) secret: VecDeque<State<Option<SecretData>>>,
    /// Somebody else's Secret, of mode `secret`.
    pub(crate) given: VecDeque<State<Option<SecretData>>>,
    pub(crate) webhooks: VecDeque<State<Option<Configuration>>>,
    /// How often an operator has requested a rotation.
    requests: usize,
    version: u64,
    /// How often another authority began to sign.
    pub(crate) rotations: usize,
    /// What replicas wrote.
    pub(crate) writes: usize,
    /// Somebody wrote over what it had not read.
    pub(crate) overwritten: bool,
    /// The most certificates that an object ever had.
    pub(crate) most: usize,
    /// Nobody of ours is to blame for states that came and went within these times.
    excused: Vec<(Instant, Instant)>,
    /// For how long old states are read.
    memory: Duration,
}

/// In which mode a replica runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ModeOf {
    #[default]
    Own,
    Given,
}

/// What becomes of a replica's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// They take their time.
    #[default]
    Open,
    /// They never come back.
    Cut,
    /// Writes are sent much later: the replica was suspended after it had decided.
    Suspended,
}

/// One replica's way to the API.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    etcd: Rc<RefCell<Etcd>>,
    chance: Chance,
    /// Rings in every replica, later or sooner.
    pub(crate) bells: Rc<Vec<Notify>>,
    replica: usize,
    pub(crate) way: Rc<Cell<Way>>,
    staleness: Duration,
    /// Whose Secret is read.
    pub(crate) mode: Rc<Cell<ModeOf>>,
    /// Reaches every replica after each write: its tick, which is more often than is worth to run
    /// while nothing happens.
    pub(crate) clocks: Rc<Vec<Notify>>,
    trust: Rc<Trust>,
}

// === impl Etcd ===

impl Etcd {
    pub(crate) fn new(webhooks: &[&str], memory: Duration) -> Self {
        let since = Instant::now();
        let webhooks = webhooks.iter().copied();
        Self {
            secret: VecDeque::from([State {
                since,
                version: 1,
                value: Some(SecretData::new()),
            }]),
            given: VecDeque::from([State {
                since,
                version: 1,
                value: None,
            }]),
            webhooks: VecDeque::from([State {
                since,
                version: 2,
                value: Some(Configuration {
                    bundles: webhooks
                        .map(|name| (name.to_owned(), Bundle::default()))
                        .collect(),
                    written: None,
                }),
            }]),
            requests: 0,
            version: 2,
            rotations: 0,
            writes: 0,
            overwritten: false,
            most: 0,
            excused: Vec::new(),
            memory,
        }
    }

    pub(crate) fn write_secret(&mut self, value: Option<SecretData>) {
        self.version += 1;
        let signer = |value: &Option<SecretData>| value.as_ref()?.get("signer.crt").cloned();
        let before = self.secret.back().and_then(|last| signer(&last.value));
        let after = signer(&value);
        self.rotations += usize::from(after.is_some() && after != before);
        let listed = value.as_ref().and_then(|data| data.get("ca.crt"));
        self.most = listed.map_or(self.most, |pem| self.most.max(many(&Bundle::read(pem))));
        push(&mut self.secret, self.version, value, self.memory);
    }

    /// Annotates the Secret.
    pub(crate) fn request_rotation(&mut self) {
        self.requests += 1;
        let held = self.secret.back().and_then(|last| last.value.clone());
        self.write_secret(held);
    }

    pub(crate) fn give(&mut self, value: SecretData) {
        self.version += 1;
        push(&mut self.given, self.version, Some(value), self.memory);
    }

    pub(crate) fn write_webhooks(&mut self, value: Option<Configuration>) {
        self.version += 1;
        let bundles = value.iter().flat_map(|value| &value.bundles);
        let largest = bundles.map(|(_, bundle)| many(bundle)).max();
        self.most = self.most.max(largest.unwrap_or_default());
        push(&mut self.webhooks, self.version, value, self.memory);
    }

    fn rotate(&self) -> Option<String> {
        (self.requests > 0).then(|| self.requests.to_string())
    }

    /// A replica writes, and whether it had read what it writes over.
    fn wrote(&mut self, read: bool) {
        self.writes += 1;
        self.overwritten |= !read;
    }

    /// Somebody else is about to spoil the bundles, and this is how long mending may take.
    pub(crate) fn excuse(&mut self, mending: Duration) {
        let now = Instant::now();
        self.excused.push((now, now + mending));
    }

    /// The states of the webhooks that an API server which is `lag` behind may act upon.
    pub(crate) fn acted_upon(
        &self,
        lag: Duration,
    ) -> impl Iterator<Item = &State<Option<Configuration>>> {
        let now = Instant::now();
        let ends = self.webhooks.iter().skip(1).map(|next| next.since);
        let ends: Vec<_> = ends.chain([now]).collect();
        let excused = move |state: &State<_>, end| {
            let mut excused = self.excused.iter();
            excused.any(|(from, until)| state.since >= *from && end <= *until)
        };
        let first = self.webhooks.len() - read(&self.webhooks, before(lag)).count();
        let states = self.webhooks.iter().zip(ends).skip(first);
        states.filter_map(move |(state, end)| (!excused(state, end)).then_some(state))
    }
}

fn many(bundle: &Bundle) -> usize {
    bundle.iter().count()
}

fn push<T>(states: &mut VecDeque<State<T>>, version: u64, value: T, memory: Duration) {
    let since = Instant::now();
    states.push_back(State {
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

fn before(lag: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(lag).unwrap_or(now)
}

/// The states that were current at `oldest` or later.
fn read<T>(states: &VecDeque<State<T>>, oldest: Instant) -> impl Iterator<Item = &State<T>> {
    let first = states.iter().rposition(|state| state.since <= oldest);
    states.iter().skip(first.unwrap_or(0))
}

// === impl Api ===

impl Api {
    pub(crate) fn new(
        etcd: Rc<RefCell<Etcd>>,
        trust: Rc<Trust>,
        chance: Chance,
        replicas: usize,
        staleness: Duration,
    ) -> Self {
        Self {
            etcd,
            chance,
            bells: Rc::new((0..replicas).map(|_| Notify::new()).collect()),
            replica: 0,
            way: Rc::default(),
            staleness,
            mode: Rc::default(),
            clocks: Rc::new((0..replicas).map(|_| Notify::new()).collect()),
            trust,
        }
    }

    pub(crate) fn of(&self, replica: usize) -> Self {
        Self {
            replica,
            way: Rc::default(),
            mode: Rc::default(),
            ..self.clone()
        }
    }

    /// The way there or back: nothing or milliseconds, sometimes seconds, sometimes for ever.
    async fn travel(&self, call: StoreCall) -> Result<(), StoreError> {
        self.trust.check();
        let most = match self.chance.below(20) {
            0 => 8000,
            1..8 => 50,
            _ => 0,
        };
        if most > 0 {
            sleep(self.chance.up_to(Duration::from_millis(most))).await;
        }
        if self.way.get() == Way::Cut || self.chance.once_in(50) {
            return Err(StoreError::Timeout { call });
        }
        Ok(())
    }

    /// The way of what was decided.
    async fn send(&self, call: StoreCall) -> Result<(), StoreError> {
        while self.way.get() == Way::Suspended {
            sleep(self.chance.up_to(10 * MINUTE)).await;
        }
        self.travel(call).await
    }

    /// Returns a state that was current not long ago: mostly the last one.
    fn find<T: Clone>(&self, states: &VecDeque<State<T>>) -> State<T> {
        let oldest = if self.chance.once_in(10) {
            before(self.chance.up_to(self.staleness))
        } else {
            Instant::now()
        };
        read(states, oldest)
            .next()
            .expect("there is a state")
            .clone()
    }

    /// Rings everywhere, but where the event is lost.
    pub(crate) fn ring(&self) {
        for bell in self.bells.iter() {
            if !self.chance.once_in(10) {
                bell.notify_one();
            }
        }
        for clock in self.clocks.iter() {
            clock.notify_one();
        }
        self.trust.check();
    }
}

impl Cluster for Api {
    async fn secret(&self) -> Result<Option<Secret>, StoreError> {
        self.travel(StoreCall::ReadSecret).await?;
        let state = match self.mode.get() {
            ModeOf::Own => self.find(&self.etcd.borrow().secret),
            ModeOf::Given => self.find(&self.etcd.borrow().given),
        };
        self.travel(StoreCall::ReadSecret).await?;
        Ok(state.value.map(|data| Secret {
            resource_version: state.version.to_string(),
            data,
            rotate: self.etcd.borrow().rotate(),
            unwritable_reason: None,
        }))
    }

    async fn create_secret(&self) -> Result<(), StoreError> {
        self.send(StoreCall::WriteSecret).await?;
        {
            let mut etcd = self.etcd.borrow_mut();
            if etcd.secret.back().is_some_and(|last| last.value.is_none()) {
                etcd.wrote(true);
                etcd.write_secret(Some(SecretData::new()));
            }
        }
        self.ring();
        self.travel(StoreCall::WriteSecret).await
    }

    async fn write_secret(
        &self,
        version: &str,
        keys: BTreeMap<String, Option<Vec<u8>>>,
    ) -> Result<(), StoreError> {
        let call = StoreCall::WriteSecret;
        self.send(call).await?;
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
            etcd.wrote(last.version.to_string() == version);
            etcd.write_secret(Some(data));
        }
        self.ring();
        // An answer may be lost of what was done.
        self.travel(call).await
    }

    async fn webhooks(&self) -> Result<Option<Webhooks>, StoreError> {
        self.travel(StoreCall::ReadWebhooks).await?;
        let last = self.etcd.borrow().webhooks.back().cloned();
        let state = last.expect("there is a state");
        self.travel(StoreCall::ReadWebhooks).await?;
        Ok(state.value.map(|configuration| Webhooks {
            resource_version: state.version.to_string(),
            bundles: configuration.bundles,
            // The API server's clock is right.
            written_at: configuration.written.map(|at| self.trust.at(at)),
        }))
    }

    async fn write_bundles(&self, webhooks: &Webhooks) -> Result<(), StoreError> {
        let call = StoreCall::WriteBundles;
        self.send(call).await?;
        {
            let mut etcd = self.etcd.borrow_mut();
            let last = etcd.webhooks.back().expect("there is a state");
            let read = last.version.to_string() == webhooks.resource_version;
            if !read || last.value.is_none() {
                return Err(StoreError::Conflict { call });
            }
            etcd.wrote(read);
            etcd.write_webhooks(Some(Configuration {
                bundles: webhooks.bundles.clone(),
                written: Some(Instant::now()),
            }));
        }
        self.ring();
        self.travel(call).await
    }

    async fn changed(&self) {
        self.bells[self.replica].notified().await;
    }
}
