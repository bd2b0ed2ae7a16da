//! One replica whose reconciles a test runs one at a time.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pki::clock::wall_clock;
use tokio::time::{advance, timeout};
use webhook::certificates::testing_api::{
    Bundle, CertResolver, CertificateReconciler, CertifiedKeyPair, Lifetimes, Metrics, Mode,
    ReconcileResult, StoreCall,
};
use webhook::metrics::{Registry, registry};

use crate::SERVER_NAME;
use crate::memory_cluster::{ApiClient, MemoryCluster, ReplicaMode};
use crate::reconcile::network::ScriptedNetwork;

/// A replica with its clock and its network.
pub(crate) struct Replica {
    reconciler: CertificateReconciler<ApiClient<ScriptedNetwork>>,
    pub(crate) resolver: CertResolver,
    metrics: Metrics,
    pub(crate) registry: Registry,
    pub(crate) now: SystemTime,
    pub(crate) network: ScriptedNetwork,
    cluster: MemoryCluster,
}

// === impl Replica ===

impl Replica {
    /// A replica in mode `self`.
    pub(crate) fn self_managed(cluster: &MemoryCluster) -> Self {
        let names = vec![SERVER_NAME.to_owned()];
        let mode = Mode::SelfManaged(Lifetimes::default());
        Self::new(cluster, names, mode)
    }

    /// A replica in mode `secret`.
    pub(crate) fn from_tls_secret(cluster: &MemoryCluster) -> Self {
        let activation_delay = Lifetimes::default().activation_delay();
        let mode = Mode::Secret { activation_delay };
        Self::new(cluster, Vec::new(), mode)
    }

    fn new(cluster: &MemoryCluster, names: Vec<String>, mode: Mode) -> Self {
        let replica_mode = match mode {
            Mode::SelfManaged(_) => ReplicaMode::SelfManaged,
            Mode::Secret { .. } => ReplicaMode::Secret,
        };
        let network = ScriptedNetwork::default();
        let client = ApiClient {
            cluster: cluster.clone(),
            network: network.clone(),
            mode: Rc::new(replica_mode.into()),
        };
        let mut registry = registry();
        Self {
            reconciler: CertificateReconciler::new(client, names, mode),
            resolver: CertResolver::default(),
            metrics: Metrics::register(&mut registry),
            registry,
            now: wall_clock(),
            network,
            cluster: cluster.clone(),
        }
    }

    pub(crate) async fn reconcile(&mut self) -> ReconcileResult {
        self.reconciler
            .reconcile(self.now, &self.resolver, &self.metrics)
            .await
    }

    /// Makes these calls fail, and no others.
    pub(crate) fn set_failing_calls(&self, calls: &[StoreCall]) {
        self.network.failing_calls.replace(calls.to_vec());
    }

    /// Reconciles until nothing changes any more.
    ///
    /// # Panics
    /// When a reconcile fails, or the tenth still changes something.
    pub(crate) async fn reconcile_until_stable(&mut self) {
        for _ in 0..10 {
            let result = self.reconcile().await;
            assert!(result.failures.is_empty(), "{:?}", result.failures);
            if !result.changed {
                return;
            }
        }
        panic!("every reconcile changes something");
    }

    /// Runs the product's own loop for this long.
    pub(crate) async fn run(self, duration: Duration) -> CertResolver {
        let Self {
            reconciler,
            resolver,
            metrics,
            ..
        } = self;
        let _ = timeout(duration, reconciler.run(&resolver, &metrics)).await;
        resolver
    }

    /// Advances the wall clock and the monotonic clock.
    pub(crate) async fn advance_clocks(&mut self, duration: Duration) {
        self.now += duration;
        advance(duration).await;
    }

    pub(crate) fn served_certificate(&self) -> Arc<CertifiedKeyPair> {
        self.resolver.current().expect("a certificate is served")
    }

    /// The CAs in the Secret.
    pub(crate) fn secret_cas(&self) -> Bundle {
        let data = self.cluster.secret();
        let pem = data.as_ref().and_then(|data| data.get("ca.crt"));
        pem.map_or_else(Bundle::default, |pem| Bundle::read(pem))
    }
}
