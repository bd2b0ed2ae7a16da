//! One replica, tick by tick.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{advance, timeout};
use webhook::certificates::testing_api::{
    Bundle, CertResolver, CertificateReconciler, CertifiedKeyPair, Lifetimes, Metrics, Mode,
    ReconcileResult, SecretData,
};
use webhook::clock::wall_clock;
use webhook::metrics::{Registry, registry};

use crate::reconcile::memory_cluster::MemoryCluster;

pub(crate) const SERVER_NAME: &str = "envoy-drainer.envoy-drainer.svc";

/// A replica and its clock.
pub(crate) struct Replica {
    reconciler: CertificateReconciler<MemoryCluster>,
    pub(crate) resolver: CertResolver,
    metrics: Metrics,
    pub(crate) registry: Registry,
    pub(crate) now: SystemTime,
    cluster: MemoryCluster,
}

// === impl Replica ===

impl Replica {
    /// One of mode `self`.
    pub(crate) fn self_managed(etcd: &MemoryCluster) -> Self {
        let names = vec![SERVER_NAME.to_owned()];
        Self::new(etcd, names, Mode::SelfManaged(Lifetimes::default()))
    }

    /// One of mode `secret`.
    pub(crate) fn from_tls_secret(etcd: &MemoryCluster) -> Self {
        let activation_delay = Lifetimes::default().activation_delay();
        Self::new(etcd, Vec::new(), Mode::Secret { activation_delay })
    }

    fn new(etcd: &MemoryCluster, names: Vec<String>, mode: Mode) -> Self {
        let mut registry = registry();
        Self {
            reconciler: CertificateReconciler::new(etcd.clone(), names, mode),
            resolver: CertResolver::empty(),
            metrics: Metrics::register(&mut registry),
            registry,
            now: wall_clock(),
            cluster: etcd.clone(),
        }
    }

    pub(crate) async fn reconcile(&mut self) -> ReconcileResult {
        self.reconciler
            .reconcile(self.now, &self.resolver, &self.metrics)
            .await
    }

    /// Ticks until nothing is left to do.
    ///
    /// # Panics
    /// When something fails.
    pub(crate) async fn reconcile_until_stable(&mut self) {
        for _ in 0..10 {
            let tick = self.reconcile().await;
            assert!(tick.failures.is_empty(), "{:?}", tick.failures);
            if !tick.changed {
                return;
            }
        }
        panic!("it writes on and on");
    }

    /// Ticks as the product does, for so long.
    pub(crate) async fn run(self, time: Duration) -> CertResolver {
        let Self {
            reconciler: authority,
            resolver: serving,
            metrics: report,
            ..
        } = self;
        let _ = timeout(time, authority.run(&serving, &report)).await;
        serving
    }

    /// Lets time pass on both clocks.
    pub(crate) async fn advance_clocks(&mut self, time: Duration) {
        self.now += time;
        advance(time).await;
    }

    pub(crate) fn served_certificate(&self) -> Arc<CertifiedKeyPair> {
        self.resolver.current().expect("something is shown")
    }

    /// The authorities in the Secret.
    pub(crate) fn secret_cas(&self) -> Bundle {
        let secret = self.cluster.secret.borrow();
        let data: Option<&SecretData> = secret.as_ref();
        let listed = data.and_then(|data| data.get("ca.crt"));
        listed.map_or_else(Bundle::default, |pem| Bundle::read(pem))
    }
}
