//! Where the certificate comes from while the server serves.

use std::convert::Infallible;
use std::error::Error;

use tracing::{error, info};

use super::cluster::Cluster;
use super::files::Files;
use super::in_memory::InMemoryCa;
use super::pki::certified_key::CertifiedKeyPair;
use super::reconciler::CertificateReconciler;
use super::resolver::CertResolver;
use crate::metrics::{CertificateKind, Metrics};

/// Where identities come from.
#[derive(Debug)]
pub enum CertificateSource<C> {
    /// A Secret in the cluster that this webhook serves.
    Cluster(Box<CertificateReconciler<C>>),
    /// Two PEM files that somebody else renews.
    Files(Files),
    /// A certificate authority in this process's memory.
    InMemory(Box<InMemoryCa>),
}

/// Shows each identity that `source` brings, for as long as it is polled. A bad one is told and the
/// old one stays.
pub async fn run<C: Cluster>(
    source: CertificateSource<C>,
    serving: &CertResolver,
    report: &Metrics,
) -> Infallible {
    match source {
        CertificateSource::Cluster(authority) => authority.run(serving, report).await,
        CertificateSource::Files(mut files) => loop {
            serve(files.next().await, serving, report);
        },
        CertificateSource::InMemory(mut self_made) => loop {
            serve(self_made.next_leaf().await, serving, report);
        },
    }
}

fn serve(
    next: Result<CertifiedKeyPair, impl Error + Send + Sync + 'static>,
    serving: &CertResolver,
    report: &Metrics,
) {
    report.count_certificate_reload(next.is_ok());
    match next {
        Ok(identity) => {
            report.set_not_after(CertificateKind::Leaf, identity.not_after());
            serving.set(identity);
            info!("Certificate replaced");
        }
        Err(error) => {
            let error = format!("{:#}", anyhow::Error::from(error));
            error!(error, "Certificate kept, the new one cannot be used");
        }
    }
}

// === impl CertificateSource ===

impl<C: Cluster> CertificateSource<C> {
    /// The cluster that identities come from, if they do.
    #[must_use]
    pub fn cluster(&self) -> Option<&C> {
        match self {
            Self::Cluster(authority) => Some(authority.cluster()),
            Self::Files(_) | Self::InMemory(_) => None,
        }
    }
}
