//! A Secret and a webhook configuration in memory, and calls that fail when they are told to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;
use webhook::certificates::testing_api::{
    Bundle, Cluster, Secret, SecretData, StoreCall, StoreError, Webhooks,
};

/// How much a Secret holds at most, in bytes of its values.
pub(crate) const MAX_SECRET_SIZE: usize = 1 << 20;

/// What there is; all copies are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryCluster {
    pub(crate) secret: Rc<RefCell<Option<SecretData>>>,
    pub(crate) bundles: Rc<RefCell<Option<Vec<Bundle>>>>,
    /// The Secret's annotation.
    pub(crate) rotate: Rc<RefCell<Option<String>>>,
    /// Why the Secret cannot be written.
    pub(crate) write_rejection: Rc<RefCell<Option<String>>>,
    /// Which calls fail.
    pub(crate) failing_calls: Rc<RefCell<Vec<StoreCall>>>,
    /// Which call panics.
    pub(crate) panicking_call: Rc<Cell<Option<StoreCall>>>,
    /// Rings in every replica.
    pub(crate) notifier: Rc<Notify>,
    secret_version: Rc<Cell<u64>>,
    webhooks_version: Rc<Cell<u64>>,
}

// === impl Etcd ===

impl MemoryCluster {
    /// An empty Secret, and two webhooks that nobody trusts.
    pub(crate) fn new() -> Self {
        let this = Self::default();
        this.clear();
        this
    }

    /// Empties the Secret and every bundle at once.
    pub(crate) fn clear(&self) {
        self.secret.replace(Some(SecretData::new()));
        self.bundles.replace(Some(vec![Bundle::default(); 2]));
        increment(&self.secret_version);
        increment(&self.webhooks_version);
    }

    pub(crate) fn delete_secret(&self) {
        self.secret.replace(None);
    }

    pub(crate) fn write_data(&self, data: SecretData) {
        self.secret.replace(Some(data));
        increment(&self.secret_version);
    }

    /// Adds these to what all webhooks trust, as any writer of the configuration can.
    pub(crate) fn add_to_bundles(&self, more: &Bundle) {
        let trusted = self.bundle().union(more);
        self.bundles.replace(Some(vec![trusted; 2]));
        increment(&self.webhooks_version);
    }

    /// How often the configuration was written.
    pub(crate) fn bundle_writes(&self) -> u64 {
        self.webhooks_version.get()
    }

    /// Requests a rotation.
    pub(crate) fn request_rotation(&self, value: &str) {
        self.rotate.replace(Some(value.to_owned()));
        increment(&self.secret_version);
    }

    /// What all webhooks trust.
    #[track_caller]
    pub(crate) fn bundle(&self) -> Bundle {
        let bundles = self.bundles.borrow();
        let [one, other] = bundles.as_deref().unwrap() else {
            panic!("two webhooks");
        };
        assert_eq!(one, other);
        one.clone()
    }

    fn check_call(&self, call: StoreCall) -> Result<(), StoreError> {
        assert_ne!(self.panicking_call.get(), Some(call), "a bug, on purpose");
        if self.failing_calls.borrow().contains(&call) {
            return Err(StoreError::Timeout { call });
        }
        Ok(())
    }

    fn check_version(
        &self,
        call: StoreCall,
        read: &str,
        version: &Cell<u64>,
    ) -> Result<(), StoreError> {
        self.check_call(call)?;
        if version.get().to_string() != read {
            return Err(StoreError::Conflict { call });
        }
        increment(version);
        Ok(())
    }
}

fn increment(version: &Cell<u64>) {
    version.set(version.get() + 1);
}

impl Cluster for MemoryCluster {
    async fn secret(&self) -> Result<Option<Secret>, StoreError> {
        self.check_call(StoreCall::ReadSecret)?;
        let data = self.secret.borrow().clone();
        Ok(data.map(|data| Secret {
            resource_version: self.secret_version.get().to_string(),
            data,
            rotate: self.rotate.borrow().clone(),
            unwritable_reason: self.write_rejection.borrow().clone(),
        }))
    }

    async fn create_secret(&self) -> Result<(), StoreError> {
        self.check_call(StoreCall::WriteSecret)?;
        self.secret.borrow_mut().get_or_insert_default();
        increment(&self.secret_version);
        Ok(())
    }

    async fn write_secret(
        &self,
        version: &str,
        keys: BTreeMap<String, Option<Vec<u8>>>,
    ) -> Result<(), StoreError> {
        self.check_version(StoreCall::WriteSecret, version, &self.secret_version)?;
        let mut secret = self.secret.borrow_mut();
        let data = secret.as_mut().expect("it was read");
        let mut written = data.clone();
        for (key, value) in keys {
            match value {
                Some(value) => written.insert(key, value),
                None => written.remove(&key),
            };
        }
        // https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go
        if written.values().map(Vec::len).sum::<usize>() > MAX_SECRET_SIZE {
            return Err(StoreError::Other {
                call: StoreCall::WriteSecret,
                source: "data: Too long".into(),
            });
        }
        *data = written;
        Ok(())
    }

    async fn webhooks(&self) -> Result<Option<Webhooks>, StoreError> {
        self.check_call(StoreCall::ReadWebhooks)?;
        let bundles = self.bundles.borrow().clone();
        Ok(bundles.map(|bundles| Webhooks {
            resource_version: self.webhooks_version.get().to_string(),
            bundles: bundles
                .into_iter()
                .enumerate()
                .map(|(number, bundle)| (number.to_string(), bundle))
                .collect(),
            written_at: None,
        }))
    }

    async fn write_bundles(&self, webhooks: &Webhooks) -> Result<(), StoreError> {
        self.check_version(
            StoreCall::WriteBundles,
            &webhooks.resource_version,
            &self.webhooks_version,
        )?;
        let bundles = webhooks.bundles.iter().map(|(_, bundle)| bundle.clone());
        self.bundles.replace(Some(bundles.collect()));
        Ok(())
    }

    async fn changed(&self) {
        self.notifier.notified().await;
    }
}
