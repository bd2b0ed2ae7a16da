//! An API server in memory: the Secrets and the webhook configuration, with their past revisions, and the client by
//! which a replica reaches them over a network that may fail.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use webhook::certificates::testing_api::{
    Bundle, Cluster, Secret, SecretData, StoreCall, StoreError, Webhooks,
};

/// The limit of the API server for the values of a Secret, in bytes.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go>
pub(crate) const MAX_SECRET_SIZE: usize = 1 << 20;

/// The state of an object from one instant on.
#[derive(Debug, Clone)]
pub(crate) struct Revision<T> {
    pub(crate) since: Instant,
    pub(crate) version: u64,
    pub(crate) value: T,
}

/// The revisions of one object, oldest first; never empty.
#[derive(Debug)]
pub(crate) struct History<T>(VecDeque<Revision<T>>);

/// The webhook configuration.
#[derive(Debug, Clone)]
pub(crate) struct WebhookConfiguration {
    pub(crate) bundles: Vec<(String, Bundle)>,
    /// When a replica last wrote a `caBundle`.
    pub(crate) last_write: Option<Instant>,
}

/// The content of etcd, and what was counted while it was written.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) secret: History<Option<SecretData>>,
    /// The Secret of mode `secret`, which another issuer writes.
    pub(crate) tls_secret: History<Option<SecretData>>,
    pub(crate) webhooks: History<Option<WebhookConfiguration>>,
    /// The value of the annotation `envoy-drainer.dev/rotate`.
    rotate: Option<String>,
    version: u64,
    /// For how long past revisions are kept.
    retention: Duration,
    /// How often another CA became the active one.
    pub(crate) rotations: usize,
    /// Writes by replicas.
    pub(crate) writes: usize,
    /// Writes of the webhook configuration by anyone.
    pub(crate) webhook_writes: usize,
    /// The most certificates that an object ever had.
    pub(crate) max_certificates: usize,
}

/// A handle to the objects; a clone refers to the same objects.
#[derive(Debug, Clone)]
pub(crate) struct MemoryCluster(Rc<RefCell<Objects>>);

/// The mode of a replica, which decides which Secret it reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ReplicaMode {
    #[default]
    SelfManaged,
    Secret,
}

/// The network between a replica and the API server.
pub(crate) trait Network {
    /// Carries a request to the API server; a call that fails here has no effect.
    async fn send(&self, call: StoreCall) -> Result<(), StoreError>;

    /// Carries a response to the replica; a call that fails here has had its effect.
    async fn receive(&self, call: StoreCall) -> Result<(), StoreError>;

    /// The instant as of which a Secret is read: now, or earlier for a stale read.
    fn read_time(&self) -> Instant;

    /// The API server's clock at an instant; `None` if it does not record when a `caBundle` was written.
    fn server_time(&self, instant: Instant) -> Option<SystemTime>;

    /// Whether a replica is ready, so that the webhook's Service has an endpoint.
    fn has_endpoint(&self) -> bool;

    /// Notifies the watches of a change.
    fn notify(&self);

    /// Waits for a notification.
    async fn changed(&self);
}

/// A replica's client of the API server.
#[derive(Debug, Clone)]
pub(crate) struct ApiClient<N> {
    pub(crate) cluster: MemoryCluster,
    pub(crate) network: N,
    pub(crate) mode: Rc<Cell<ReplicaMode>>,
}

/// The instant that long ago, or now if there is none.
pub(crate) fn instant_before(age: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(age).unwrap_or(now)
}

// === impl History ===

impl<T> History<T> {
    fn new(version: u64, value: T) -> Self {
        Self(VecDeque::from([Revision {
            since: Instant::now(),
            version,
            value,
        }]))
    }

    pub(crate) fn latest(&self) -> &Revision<T> {
        self.0.back().expect("a history is never empty")
    }

    /// The revisions that were current at `oldest` or later.
    pub(crate) fn since(&self, oldest: Instant) -> impl Iterator<Item = &Revision<T>> {
        let first = self.0.iter().rposition(|state| state.since <= oldest);
        self.0.iter().skip(first.unwrap_or(0))
    }

    fn push(&mut self, version: u64, value: T, retention: Duration) {
        let since = Instant::now();
        self.0.push_back(Revision {
            since,
            version,
            value,
        });
        // The one that was current when the retention period began is still needed.
        while self
            .0
            .get(1)
            .is_some_and(|next| next.since + retention < since)
        {
            self.0.pop_front();
        }
    }
}

// === impl WebhookConfiguration ===

impl WebhookConfiguration {
    /// A configuration as the chart installs it: without a `caBundle`.
    pub(crate) fn without_bundles(webhooks: &[&str]) -> Self {
        let webhooks = webhooks.iter();
        Self {
            bundles: webhooks
                .map(|name| ((*name).to_owned(), Bundle::default()))
                .collect(),
            last_write: None,
        }
    }
}

// === impl Objects ===

impl Objects {
    fn write_secret(&mut self, value: Option<SecretData>) {
        let active = |value: &Option<SecretData>| value.as_ref()?.get("active.crt").cloned();
        let (before, after) = (active(&self.secret.latest().value), active(&value));
        self.rotations += usize::from(after.is_some() && after != before);
        if let Some(pem) = value.as_ref().and_then(|data| data.get("ca.crt")) {
            self.count_certificates(&Bundle::read(pem));
        }
        self.version += 1;
        self.secret.push(self.version, value, self.retention);
    }

    fn write_tls_secret(&mut self, value: Option<SecretData>) {
        self.version += 1;
        self.tls_secret.push(self.version, value, self.retention);
    }

    fn write_webhooks(&mut self, value: Option<WebhookConfiguration>) {
        for (_, bundle) in value.iter().flat_map(|value| &value.bundles) {
            self.count_certificates(bundle);
        }
        self.version += 1;
        self.webhook_writes += 1;
        self.webhooks.push(self.version, value, self.retention);
    }

    fn count_certificates(&mut self, bundle: &Bundle) {
        self.max_certificates = self.max_certificates.max(bundle.iter().count());
    }

    fn create_secret(&mut self) {
        if self.secret.latest().value.is_none() {
            self.writes += 1;
            self.write_secret(Some(SecretData::new()));
        }
    }

    fn replace_secret(&mut self, old: &Secret, data: SecretData) -> Result<(), StoreError> {
        let call = StoreCall::WriteSecret;
        let latest = self.secret.latest();
        if latest.version.to_string() != old.resource_version || latest.value.is_none() {
            return Err(StoreError::Conflict { call });
        }
        if data.values().map(Vec::len).sum::<usize>() > MAX_SECRET_SIZE {
            let source = "data: Too long".into();
            return Err(StoreError::Other { call, source });
        }
        self.writes += 1;
        self.write_secret(Some(data));
        Ok(())
    }

    fn apply_bundles(&mut self, webhooks: &Webhooks) -> Result<(), StoreError> {
        let call = StoreCall::WriteBundles;
        let latest = self.webhooks.latest();
        if latest.version.to_string() != webhooks.resource_version || latest.value.is_none() {
            return Err(StoreError::Conflict { call });
        }
        self.writes += 1;
        self.write_webhooks(Some(WebhookConfiguration {
            bundles: webhooks.bundles.clone(),
            last_write: Some(Instant::now()),
        }));
        Ok(())
    }
}

// === impl MemoryCluster ===

impl MemoryCluster {
    /// An empty Secret, no TLS Secret, and webhooks of these names without a `caBundle`.
    pub(crate) fn new(webhooks: &[&str], retention: Duration) -> Self {
        let webhooks = WebhookConfiguration::without_bundles(webhooks);
        Self(Rc::new(RefCell::new(Objects {
            secret: History::new(1, Some(SecretData::new())),
            tls_secret: History::new(1, None),
            webhooks: History::new(2, Some(webhooks)),
            rotate: None,
            version: 2,
            retention,
            rotations: 0,
            writes: 0,
            webhook_writes: 0,
            max_certificates: 0,
        })))
    }

    pub(crate) fn objects(&self) -> Ref<'_, Objects> {
        self.0.borrow()
    }

    pub(crate) fn secret(&self) -> Option<SecretData> {
        self.objects().secret.latest().value.clone()
    }

    /// Replaces the data of the Secret; `None` deletes it.
    pub(crate) fn set_secret(&self, value: Option<SecretData>) {
        self.0.borrow_mut().write_secret(value);
    }

    pub(crate) fn tls_secret(&self) -> Option<SecretData> {
        self.objects().tls_secret.latest().value.clone()
    }

    pub(crate) fn set_tls_secret(&self, value: Option<SecretData>) {
        self.0.borrow_mut().write_tls_secret(value);
    }

    /// Annotates the Secret, as an operator who wants another CA does.
    pub(crate) fn request_rotation(&self, value: &str) {
        let mut objects = self.0.borrow_mut();
        objects.rotate = Some(value.to_owned());
        let data = objects.secret.latest().value.clone();
        objects.write_secret(data);
    }

    pub(crate) fn webhooks(&self) -> Option<WebhookConfiguration> {
        self.objects().webhooks.latest().value.clone()
    }

    /// Replaces the webhook configuration; `None` deletes it.
    pub(crate) fn set_webhooks(&self, value: Option<WebhookConfiguration>) {
        self.0.borrow_mut().write_webhooks(value);
    }

    /// The `caBundle` of each webhook; empty without a configuration.
    pub(crate) fn bundles(&self) -> Vec<Bundle> {
        let bundles = self.webhooks().into_iter().flat_map(|found| found.bundles);
        bundles.map(|(_, bundle)| bundle).collect()
    }
}

// === impl ApiClient ===

impl<N: Network> Cluster for ApiClient<N> {
    async fn secret(&self) -> Result<Option<Secret>, StoreError> {
        self.network.send(StoreCall::ReadSecret).await?;
        let read_time = self.network.read_time();
        let state = {
            let objects = self.cluster.objects();
            let history = match self.mode.get() {
                ReplicaMode::SelfManaged => &objects.secret,
                ReplicaMode::Secret => &objects.tls_secret,
            };
            history.since(read_time).next().cloned()
        };
        self.network.receive(StoreCall::ReadSecret).await?;
        let objects = self.cluster.objects();
        let state = state.expect("a history is never empty");
        Ok(state.value.map(|data| Secret {
            resource_version: state.version.to_string(),
            data,
            rotate: objects.rotate.clone(),
        }))
    }

    async fn create_secret(&self) -> Result<(), StoreError> {
        self.network.send(StoreCall::WriteSecret).await?;
        self.cluster.0.borrow_mut().create_secret();
        self.network.notify();
        self.network.receive(StoreCall::WriteSecret).await
    }

    async fn write_secret(&self, old: &Secret, data: SecretData) -> Result<(), StoreError> {
        self.network.send(StoreCall::WriteSecret).await?;
        self.cluster.0.borrow_mut().replace_secret(old, data)?;
        self.network.notify();
        self.network.receive(StoreCall::WriteSecret).await
    }

    async fn webhooks(&self) -> Result<Option<Webhooks>, StoreError> {
        self.network.send(StoreCall::ReadWebhooks).await?;
        let state = self.cluster.objects().webhooks.latest().clone();
        self.network.receive(StoreCall::ReadWebhooks).await?;
        Ok(state.value.map(|configuration| Webhooks {
            resource_version: state.version.to_string(),
            bundles: configuration.bundles,
            written_at: configuration
                .last_write
                .and_then(|at| self.network.server_time(at)),
        }))
    }

    async fn write_bundles(&self, webhooks: &Webhooks) -> Result<(), StoreError> {
        self.network.send(StoreCall::WriteBundles).await?;
        self.cluster.0.borrow_mut().apply_bundles(webhooks)?;
        self.network.notify();
        self.network.receive(StoreCall::WriteBundles).await
    }

    async fn has_endpoint(&self) -> bool {
        self.network.has_endpoint()
    }

    async fn changed(&self) {
        self.network.changed().await;
    }
}
