//! A CA in this process's memory, which issues the certificate where there is no cluster: in tests, the demo and on one's
//! own machine.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use pki::ca::Ca;
use pki::certified_key::CertifiedKeyPair;
use pki::clock::wall_clock;
use pki::leaf;
use tokio::time::sleep;
use tracing::{error, info};

use super::metrics::{CertificateKind, Metrics};
use super::resolver::CertResolver;

/// The CA is never renewed, since it ends with this process.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

const LEAF_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How often the wall clock is compared with the renewal time. One long sleep would not count the hours in which the
/// machine is suspended.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The CA, and the names of its leaves.
#[derive(Debug)]
pub struct InMemoryCa {
    ca: Ca,
    names: Vec<String>,
    renew_at: SystemTime,
}

// === impl InMemoryCa ===

impl InMemoryCa {
    /// Creates a CA, and its first leaf for `names`.
    ///
    /// # Errors
    /// When a name is invalid, or the system has no randomness.
    pub fn try_new(
        names: Vec<String>,
        now: SystemTime,
    ) -> anyhow::Result<(Self, CertifiedKeyPair)> {
        let ca = Ca::try_new(now, CA_LIFETIME)
            .with_context(|| format!("cannot issue a certificate for {}", names.join(", ")))?;
        let mut this = Self {
            ca,
            names,
            renew_at: now,
        };
        let first = this.renew(now)?;
        Ok((this, first))
    }

    /// The certificate of the CA, PEM.
    pub fn ca_pem(&self) -> &str {
        self.ca.pem()
    }

    /// Renews the leaf whenever it is due, for as long as it is polled. After an error the old leaf is served, and the
    /// renewal is retried.
    pub(super) async fn run(mut self, resolver: &CertResolver, metrics: &Metrics) -> Infallible {
        loop {
            let next = self.next_leaf().await;
            metrics.count_reload(next.is_ok());
            match next {
                Ok(certified_key) => {
                    metrics.set_not_after(CertificateKind::Leaf, certified_key.not_after());
                    resolver.set(certified_key);
                    info!("Renewed certificate");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    error!(error, "Failed to renew certificate: serving the old one");
                }
            }
        }
    }

    /// Waits until the leaf is due, and issues the next.
    async fn next_leaf(&mut self) -> anyhow::Result<CertifiedKeyPair> {
        loop {
            sleep(CLOCK_CHECK_INTERVAL).await;
            let now = wall_clock();
            if now >= self.renew_at {
                return self.renew(now);
            }
        }
    }

    fn renew(&mut self, now: SystemTime) -> anyhow::Result<CertifiedKeyPair> {
        let certified_key = leaf::issue(&self.ca, &self.names, now, LEAF_LIFETIME)?;
        self.renew_at = leaf::renewal_time(now, certified_key.not_after());
        Ok(certified_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaf_is_renewed_before_it_expires() {
        let now = wall_clock();
        let (mut ca, first) = InMemoryCa::try_new(vec!["localhost".into()], now).unwrap();
        let due = ca.renew_at;
        assert!(now < due && due < first.not_after());
        let second = ca.renew(due).unwrap();
        assert!(second.not_after() > first.not_after());
        assert!(ca.renew_at > first.not_after());
    }

    #[tokio::test(start_paused = true)]
    async fn due_leaf_is_renewed_once() {
        let now = wall_clock();
        let (mut ca, _) = InMemoryCa::try_new(vec!["localhost".into()], now).unwrap();
        ca.renew_at = now;
        tokio::time::timeout(CLOCK_CHECK_INTERVAL * 2, ca.next_leaf())
            .await
            .unwrap()
            .unwrap();
        let early = tokio::time::timeout(CLOCK_CHECK_INTERVAL * 10, ca.next_leaf()).await;
        assert!(early.is_err(), "renewed again at once");
    }
}
