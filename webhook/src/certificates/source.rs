//! Where the certificate comes from while the server serves.

use std::convert::Infallible;
use std::error::Error;

use tracing::{error, info};

use super::authority::Authority;
use super::cluster::Cluster;
use super::files::Files;
use super::identity::Identity;
use super::self_made::SelfMade;
use super::serving::Serving;
use crate::report::{Kind, Report};

/// Where identities come from.
#[derive(Debug)]
pub enum Source<C> {
    /// A Secret in the cluster that this webhook serves.
    Cluster(Box<Authority<C>>),
    /// Two PEM files that somebody else renews.
    Files(Files),
    /// A certificate authority in this process's memory.
    SelfMade(Box<SelfMade>),
}

/// Shows each identity that `source` brings, for as long as it is polled. A bad one is told and the
/// old one stays.
pub async fn follow<C: Cluster>(
    source: Source<C>,
    serving: &Serving,
    report: &Report,
) -> Infallible {
    match source {
        Source::Cluster(authority) => authority.run(serving, report).await,
        Source::Files(mut files) => loop {
            show(files.next().await, serving, report);
        },
        Source::SelfMade(mut self_made) => loop {
            show(self_made.next().await, serving, report);
        },
    }
}

fn show(
    next: Result<Identity, impl Error + Send + Sync + 'static>,
    serving: &Serving,
    report: &Report,
) {
    report.certificate_reloaded(next.is_ok());
    match next {
        Ok(identity) => {
            report.certificate_ends(Kind::Leaf, identity.not_after());
            serving.replace(identity);
            info!("Certificate replaced");
        }
        Err(error) => {
            let error = format!("{:#}", anyhow::Error::from(error));
            error!(error, "Certificate kept, the new one cannot be used");
        }
    }
}

// === impl Source ===

impl<C: Cluster> Source<C> {
    /// The cluster that identities come from, if they do.
    #[must_use]
    pub fn cluster(&self) -> Option<&C> {
        match self {
            Self::Cluster(authority) => Some(authority.cluster()),
            Self::Files(_) | Self::SelfMade(_) => None,
        }
    }
}
