//! What the test claims: whoever is called shows what whoever calls trusts.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{Error, RootCertStore};
use tokio::time::Instant;
use webhook::certificates::testing_api::{Bundle, CertResolver, CertifiedKeyPair};

use crate::rotation::cluster::Etcd;

/// The name by which API servers call.
pub(crate) const SERVER_NAME: &str = "envoy-drainer.envoy-drainer.svc";

/// Looks at every replica whenever something may have changed.
#[derive(Debug)]
pub(crate) struct TrustChecker {
    etcd: Rc<RefCell<Etcd>>,
    epoch: (SystemTime, Instant),
    /// How far API servers are behind.
    lag: Duration,
    /// What each replica shows, while it lives.
    pub(crate) replicas: RefCell<Vec<Option<Arc<CertResolver>>>>,
    /// What was verified already: a leaf by the end of its signature, and a version.
    verified: RefCell<HashSet<([u8; 16], u64)>>,
    pub(crate) checks: Cell<u64>,
    /// The first breach.
    pub(crate) violation: RefCell<Option<String>>,
}

// === impl Trust ===

impl TrustChecker {
    pub(crate) fn new(
        etcd: Rc<RefCell<Etcd>>,
        epoch: SystemTime,
        lag: Duration,
        replicas: usize,
    ) -> Self {
        Self {
            etcd,
            epoch: (epoch, Instant::now()),
            lag,
            replicas: RefCell::new(vec![None; replicas]),
            verified: RefCell::default(),
            checks: Cell::default(),
            violation: RefCell::default(),
        }
    }

    /// The right time.
    pub(crate) fn now(&self) -> SystemTime {
        self.wall_clock_at(Instant::now())
    }

    /// The right time at an instant.
    pub(crate) fn wall_clock_at(&self, instant: Instant) -> SystemTime {
        let (epoch, start) = self.epoch;
        epoch + instant.duration_since(start)
    }

    /// How many replicas are ready.
    pub(crate) fn ready_replicas(&self) -> usize {
        let replicas = self.replicas.borrow();
        let ready = replicas.iter().flatten().filter(|one| one.is_ready());
        ready.count()
    }

    /// Looks at what is shown, and at every state of the bundles that an API server may act upon.
    pub(crate) fn check(&self) {
        if self.violation.borrow().is_some() {
            return;
        }
        for (replica, serving) in self.replicas.borrow().iter().enumerate() {
            let ready = serving.iter().filter(|serving| serving.is_ready());
            for shown in ready.filter_map(|serving| serving.current()) {
                if let Err(breach) = self.verify(&shown) {
                    let after = self.epoch.1.elapsed();
                    let breach = format!("replica {replica}, after {after:?}: {breach}");
                    self.violation.borrow_mut().get_or_insert(breach);
                }
            }
        }
    }

    fn verify(&self, shown: &CertifiedKeyPair) -> Result<(), String> {
        self.checks.set(self.checks.get() + 1);
        let now = self.now();
        if shown.not_after() <= now {
            return Err("its certificate has expired".into());
        }
        let leaf = *shown.chain()[0].last_chunk().expect("it has a signature");
        let etcd = self.etcd.borrow();
        for state in etcd.visible_webhooks(self.lag) {
            let webhooks = state.value.iter().flat_map(|value| &value.bundles);
            // Whoever never trusted anybody calls nobody.
            let new = webhooks.clone().all(|(_, bundle)| bundle.is_empty());
            let key = (leaf, state.version);
            if new || self.verified.borrow().contains(&key) {
                continue;
            }
            let mut last = None;
            for (webhook, bundle) in webhooks {
                // Mostly they are all the same.
                if last.replace(bundle) == Some(bundle) {
                    continue;
                }
                verify(shown, bundle, now).map_err(|error| {
                    let version = state.version;
                    format!("{webhook} at version {version} trusts {bundle:?}: {error}")
                })?;
            }
            self.verified.borrow_mut().insert(key);
        }
        Ok(())
    }
}

/// As a client does it.
fn verify(shown: &CertifiedKeyPair, trusted: &Bundle, now: SystemTime) -> Result<(), Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    if roots.is_empty() {
        return Err(Error::General("nothing is trusted".into()));
    }
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()))
        .build()
        .unwrap()
        .verify_server_cert(
            &shown.chain()[0],
            &[],
            &ServerName::try_from(SERVER_NAME).unwrap(),
            &[],
            UnixTime::since_unix_epoch(now),
        )
        .map(drop)
}
