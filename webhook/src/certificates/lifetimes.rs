//! How long certificates live, and how long an authority waits.

use std::time::Duration;

/// Longer is of no use, and dates must stay within what certificates can write.
pub(super) const MAX_CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A clock that made a CA was no further ahead of the one that judges it than this, ...
pub(super) const MIN_CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// ... or than this part of a CA's lifetime, if that is more: a month of a year.
const CLOCK_SKEW_SHARE: u32 = 12;

/// The lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    ca: Duration,
    leaf: Duration,
    activation_delay: Duration,
}

/// Lifetimes that do not fit each other.
#[derive(Debug, thiserror::Error)]
pub enum LifetimesError {
    /// An authority that lives for too long.
    #[error("ca-lifetime: at most {}h", MAX_CA_LIFETIME.as_secs() / 3600)]
    CaTooLong,
    /// A leaf would still be in use when its authority ends.
    #[error("ca-lifetime is less than three times leaf-lifetime: raise the one or lower the other")]
    LeafTooLong,
    /// A leaf that is due when the Secret is lost would end before a new authority may sign the next.
    #[error(
        "leaf-lifetime is less than six times ca-activation-delay: raise the one or lower the other"
    )]
    ActivationDelayTooLong,
    /// Less than a change takes to be seen.
    #[error("ca-activation-delay: give at least 1s")]
    ActivationDelayTooShort,
}

// === impl Lifetimes ===

impl Lifetimes {
    /// Takes lifetimes that leave time for one authority to follow the other.
    ///
    /// # Errors
    /// When they do not.
    pub fn try_new(
        ca: Duration,
        leaf: Duration,
        activation_delay: Duration,
    ) -> Result<Self, LifetimesError> {
        if ca > MAX_CA_LIFETIME {
            return Err(LifetimesError::CaTooLong);
        }
        if activation_delay < Duration::from_secs(1) {
            return Err(LifetimesError::ActivationDelayTooShort);
        }
        if ca < leaf.saturating_mul(3) {
            return Err(LifetimesError::LeafTooLong);
        }
        if leaf < activation_delay.saturating_mul(6) {
            return Err(LifetimesError::ActivationDelayTooLong);
        }
        Ok(Self {
            ca,
            leaf,
            activation_delay,
        })
    }

    /// An authority's.
    #[must_use]
    pub fn ca(&self) -> Duration {
        self.ca
    }

    /// How far clocks may be apart before a CA is thought to live for longer than it should.
    #[must_use]
    pub fn clock_skew(&self) -> Duration {
        (self.ca / CLOCK_SKEW_SHARE).max(MIN_CLOCK_SKEW)
    }

    /// A leaf's.
    #[must_use]
    pub fn leaf(&self) -> Duration {
        self.leaf
    }

    /// How long an authority is trusted before it signs: longer than an API server is behind.
    #[must_use]
    pub fn activation_delay(&self) -> Duration {
        self.activation_delay
    }
}

impl Default for Lifetimes {
    /// A year, a week, two minutes.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            ca: 365 * DAY,
            leaf: 7 * DAY,
            activation_delay: Duration::from_secs(120),
        }
    }
}
