//! One replica, tick by tick.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{advance, timeout};
use webhook::certificates::testing_api::{
    Bundle, CertResolver, CertificateReconciler, CertifiedKeyPair, Lifetimes, Metrics, Mode,
    ReconcileResult, SecretData,
};
use webhook::clock::wall_clock;
use webhook::metrics;

use crate::etcd::Etcd;

pub(crate) const NAME: &str = "envoy-drainer.envoy-drainer.svc";

/// A replica and its clock.
pub(crate) struct Replica {
    authority: CertificateReconciler<Etcd>,
    pub(crate) serving: CertResolver,
    report: Metrics,
    /// The text of its metrics.
    pub(crate) metrics: Box<dyn Fn() -> String>,
    pub(crate) now: SystemTime,
    etcd: Etcd,
}

// === impl Replica ===

impl Replica {
    /// One of mode `self`.
    pub(crate) fn own(etcd: &Etcd) -> Self {
        let names = vec![NAME.to_owned()];
        Self::of(etcd, names, Mode::SelfManaged(Lifetimes::default()))
    }

    /// One of mode `secret`.
    pub(crate) fn given(etcd: &Etcd) -> Self {
        let activation_delay = Lifetimes::default().activation_delay();
        Self::of(etcd, Vec::new(), Mode::Secret { activation_delay })
    }

    fn of(etcd: &Etcd, names: Vec<String>, mode: Mode) -> Self {
        let mut registry = metrics::registry();
        Self {
            authority: CertificateReconciler::new(etcd.clone(), names, mode),
            serving: CertResolver::empty(),
            report: Metrics::register(&mut registry),
            metrics: Box::new(move || metrics::encode(&registry)),
            now: wall_clock(),
            etcd: etcd.clone(),
        }
    }

    pub(crate) async fn tick(&mut self) -> ReconcileResult {
        self.authority
            .reconcile(self.now, &self.serving, &self.report)
            .await
    }

    /// Ticks until nothing is left to do.
    ///
    /// # Panics
    /// When something fails.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..10 {
            let tick = self.tick().await;
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
            authority,
            serving,
            report,
            ..
        } = self;
        let _ = timeout(time, authority.run(&serving, &report)).await;
        serving
    }

    /// Lets time pass on both clocks.
    pub(crate) async fn wait(&mut self, time: Duration) {
        self.now += time;
        advance(time).await;
    }

    pub(crate) fn shown(&self) -> Arc<CertifiedKeyPair> {
        self.serving.current().expect("something is shown")
    }

    /// The authorities in the Secret.
    pub(crate) fn listed(&self) -> Bundle {
        let secret = self.etcd.secret.borrow();
        let data: Option<&SecretData> = secret.as_ref();
        let listed = data.and_then(|data| data.get("ca.crt"));
        listed.map_or_else(Bundle::default, |pem| Bundle::read(pem))
    }
}
