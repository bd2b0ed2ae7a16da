//! The claim of the simulation: each ready replica serves a certificate that every API server trusts.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{Error, RootCertStore};
use tokio::time::Instant;
use webhook::certificates::testing_api::{Bundle, CertResolver, CertifiedKeyPair};

use crate::SERVER_NAME;
use crate::memory_cluster::{
    History, MemoryCluster, Revision, WebhookConfiguration, instant_before,
};

/// Verifies the certificates of all replicas whenever something may have changed.
#[derive(Debug)]
pub(crate) struct TrustChecker {
    cluster: MemoryCluster,
    epoch: (SystemTime, Instant),
    /// How far API servers may lag behind etcd.
    lag: Duration,
    /// The resolver of each replica that runs.
    pub(crate) replicas: RefCell<Vec<Option<Arc<CertResolver>>>>,
    /// Pairs verified before: the end of a leaf's signature, and the version of the configuration.
    verified: RefCell<HashSet<([u8; 16], u64)>>,
    pub(crate) checks: Cell<u64>,
    /// Periods for which nothing is claimed: another writer has broken the bundles, and replicas may need so long to
    /// repair them.
    exempt_periods: RefCell<Vec<(Instant, Instant)>>,
    /// When the last outage of an abandoned installation ended. Of bundles that were replaced before, nothing is
    /// claimed: the calls of an API server that lags behind failed anyway.
    outage_end: Cell<Option<Instant>>,
    /// The first certificate that was not trusted.
    pub(crate) violation: RefCell<Option<String>>,
}

// === impl TrustChecker ===

impl TrustChecker {
    pub(crate) fn new(
        cluster: MemoryCluster,
        epoch: SystemTime,
        lag: Duration,
        replicas: usize,
    ) -> Self {
        Self {
            cluster,
            epoch: (epoch, Instant::now()),
            lag,
            replicas: RefCell::new(vec![None; replicas]),
            verified: RefCell::default(),
            checks: Cell::default(),
            exempt_periods: RefCell::default(),
            outage_end: Cell::default(),
            violation: RefCell::default(),
        }
    }

    /// The correct wall-clock time.
    pub(crate) fn now(&self) -> SystemTime {
        self.wall_clock_at(Instant::now())
    }

    /// The correct wall-clock time at an instant.
    pub(crate) fn wall_clock_at(&self, instant: Instant) -> SystemTime {
        let (epoch, start) = self.epoch;
        epoch + instant.duration_since(start)
    }

    /// The number of ready replicas.
    pub(crate) fn ready_replicas(&self) -> usize {
        let replicas = self.replicas.borrow();
        let ready = replicas.iter().flatten().filter(|one| one.is_ready());
        ready.count()
    }

    /// Exempts the revisions of the bundles that are replaced within this period from now.
    pub(crate) fn exempt(&self, period: Duration) {
        let now = Instant::now();
        self.exempt_periods.borrow_mut().push((now, now + period));
    }

    /// Verifies each served certificate by every revision of the bundles that an API server may use.
    pub(crate) fn check(&self) {
        if self.violation.borrow().is_some() {
            return;
        }
        let secret = self.cluster.secret();
        let state = secret.and_then(|mut it| it.remove("state.json"));
        let is_abandoned = state.is_some_and(|it| it.ends_with(b"\"isAbandoned\":true}"));
        if is_abandoned && self.ready_replicas() == 0 {
            self.outage_end.set(Some(Instant::now()));
        }
        for (replica, resolver) in self.replicas.borrow().iter().enumerate() {
            let ready = resolver.iter().filter(|resolver| resolver.is_ready());
            for served in ready.filter_map(|resolver| resolver.current()) {
                if let Err(error) = self.verify(&served) {
                    let elapsed = self.epoch.1.elapsed();
                    let violation = format!("replica {replica}, after {elapsed:?}: {error}");
                    self.violation.borrow_mut().get_or_insert(violation);
                }
            }
        }
    }

    fn verify(&self, served: &CertifiedKeyPair) -> Result<(), String> {
        self.checks.set(self.checks.get() + 1);
        let now = self.now();
        if served.not_after() <= now {
            return Err("its certificate has expired".into());
        }
        let leaf = *served.chain()[0].last_chunk().expect("it has a signature");
        for state in self.visible_revisions(&self.cluster.objects().webhooks) {
            let webhooks = state.value.iter().flat_map(|value| &value.bundles);
            // All are empty before the first replica has written them: no call has succeeded yet.
            let is_new = webhooks.clone().all(|(_, bundle)| bundle.is_empty());
            let key = (leaf, state.version);
            if is_new || self.verified.borrow().contains(&key) {
                continue;
            }
            let mut last = None;
            for (webhook, bundle) in webhooks {
                // The bundles of all webhooks are mostly the same.
                if last.replace(bundle) == Some(bundle) {
                    continue;
                }
                verify(served, bundle, now).map_err(|error| {
                    let version = state.version;
                    format!("{webhook} at version {version} trusts {bundle:?}: {error}")
                })?;
            }
            self.verified.borrow_mut().insert(key);
        }
        Ok(())
    }

    /// The revisions that an API server which lags may use, but for those of an exempt period.
    fn visible_revisions<'a>(
        &self,
        webhooks: &'a History<Option<WebhookConfiguration>>,
    ) -> Vec<&'a Revision<Option<WebhookConfiguration>>> {
        let exempt_periods = self.exempt_periods.borrow();
        let revisions: Vec<_> = webhooks.since(instant_before(self.lag)).collect();
        let ends = revisions.iter().skip(1).map(|next| next.since);
        let ends: Vec<_> = ends.chain([Instant::now()]).collect();
        let is_exempt = |since: Instant, end: Instant| {
            let mut periods = exempt_periods.iter();
            self.outage_end.get().is_some_and(|outage| end <= outage)
                || periods.any(|(from, until)| since >= *from && end <= *until)
        };
        let with_ends = revisions.into_iter().zip(ends);
        let visible = with_ends.filter(|(revision, end)| !is_exempt(revision.since, *end));
        visible.map(|(revision, _)| revision).collect()
    }
}

/// Verifies a certificate as a client does.
fn verify(served: &CertifiedKeyPair, trusted: &Bundle, now: SystemTime) -> Result<(), Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    if roots.is_empty() {
        return Err(Error::General("no CA is trusted".into()));
    }
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()))
        .build()
        .unwrap()
        .verify_server_cert(
            &served.chain()[0],
            &[],
            &ServerName::try_from(SERVER_NAME).unwrap(),
            &[],
            UnixTime::since_unix_epoch(now),
        )
        .map(drop)
}
