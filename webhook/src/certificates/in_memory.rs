//! Certificates from an authority in this process's memory: for a machine without a cluster.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::pki::ca::Ca;
use super::pki::certified_key::CertifiedKeyPair;
use super::pki::leaf;
use super::pki::leaf::IssueError;
use crate::clock::wall_clock;

/// The authority lives in this process only, so no process may outlive it.
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

const LEAF_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The pause between two looks at the wall clock. One long sleep would miss the hours in which the
/// machine was suspended.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// An authority and the names it signs leaves for.
#[derive(Debug)]
pub struct InMemoryCa {
    ca: Ca,
    names: Vec<String>,
    renew_at: SystemTime,
}

// === impl InMemoryCa ===

impl InMemoryCa {
    /// Makes an authority, and its first leaf for `names`.
    ///
    /// # Errors
    /// As [`leaf::issue`].
    pub fn try_new(
        names: Vec<String>,
        now: SystemTime,
    ) -> Result<(Self, CertifiedKeyPair), IssueError> {
        let ca = Ca::try_new(now, CA_LIFETIME).map_err(|source| IssueError::Sign {
            names: names.clone(),
            source,
        })?;
        let mut this = Self {
            ca,
            names,
            renew_at: now,
        };
        let first = this.renew(now)?;
        Ok((this, first))
    }

    /// The certificate that clients must trust, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.ca.pem()
    }

    /// Waits until the leaf is due, and issues the next.
    ///
    /// # Errors
    /// As [`leaf::issue`]; the next call tries again.
    pub async fn next_leaf(&mut self) -> Result<CertifiedKeyPair, IssueError> {
        loop {
            sleep(CLOCK_CHECK_INTERVAL).await;
            let now = wall_clock();
            if now >= self.renew_at {
                return self.renew(now);
            }
        }
    }

    fn renew(&mut self, now: SystemTime) -> Result<CertifiedKeyPair, IssueError> {
        let identity = leaf::issue(&self.ca, &self.names, now, LEAF_LIFETIME)?;
        self.renew_at = leaf::renewal_time(now, identity.not_after());
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaf_is_due_before_it_ends_and_the_next_outlives_it() {
        let now = wall_clock();
        let (mut self_made, first) = InMemoryCa::try_new(vec!["localhost".into()], now).unwrap();
        let due = self_made.renew_at;
        assert!(now < due && due < first.not_after());
        let second = self_made.renew(due).unwrap();
        assert!(second.not_after() > first.not_after());
        assert!(self_made.renew_at > first.not_after());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leaf_that_is_due_is_renewed_within_a_tick() {
        let now = wall_clock();
        let (mut self_made, _) = InMemoryCa::try_new(vec!["localhost".into()], now).unwrap();
        self_made.renew_at = now;
        tokio::time::timeout(CLOCK_CHECK_INTERVAL * 2, self_made.next_leaf())
            .await
            .unwrap()
            .unwrap();
        let early = tokio::time::timeout(CLOCK_CHECK_INTERVAL * 10, self_made.next_leaf()).await;
        assert!(early.is_err(), "renewed again at once");
    }
}
