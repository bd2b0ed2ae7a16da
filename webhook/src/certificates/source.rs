//! The source of the certificate that the server serves.

use std::convert::Infallible;
use std::future;

use super::cluster::Cluster;
use super::metrics::Metrics;
use super::reconciler::CertificateReconciler;
use super::resolver::CertResolver;

/// Where the certificate comes from.
#[derive(Debug)]
pub(crate) enum CertificateSource<C> {
    /// A Secret in the cluster whose pods this webhook admits.
    Cluster(Box<CertificateReconciler<C>>),
    /// A CA in this process's memory.
    InMemory,
}

// === impl CertificateSource ===

impl<C: Cluster> CertificateSource<C> {
    /// Keeps the certificate of `resolver` up to date, for as long as it is polled. One in memory is never renewed.
    pub(crate) async fn run(self, resolver: &CertResolver, metrics: &Metrics) -> Infallible {
        match self {
            Self::Cluster(reconciler) => reconciler.run(resolver, metrics).await,
            Self::InMemory => future::pending().await,
        }
    }

    /// The cluster, if the certificate comes from one.
    pub(crate) fn cluster(&self) -> Option<&C> {
        match self {
            Self::Cluster(reconciler) => Some(reconciler.cluster()),
            Self::InMemory => None,
        }
    }
}
