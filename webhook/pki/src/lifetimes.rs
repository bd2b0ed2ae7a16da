//! How long CAs and leaves live, and how long a new CA waits before it signs.

use std::time::Duration;

use anyhow::ensure;

/// The longest lifetime of a CA: ten years. More is of no use, and dates must stay within what X.509 can hold.
const MAX_CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// By how much the clock that dated a certificate may be ahead of this one, however short the certificate lives.
pub const CLOCK_SKEW_TOLERANCE: Duration = Duration::from_secs(60 * 60);

/// The lifetimes of mode `self`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    ca: Duration,
    leaf: Duration,
    activation_delay: Duration,
}

// === impl Lifetimes ===

impl Lifetimes {
    /// Checks that these leave time to rotate the CA.
    ///
    /// # Errors
    /// When they do not.
    pub fn try_new(
        ca: Duration,
        leaf: Duration,
        activation_delay: Duration,
    ) -> anyhow::Result<Self> {
        ensure!(
            ca <= MAX_CA_LIFETIME,
            "ca-lifetime must be at most {}h",
            MAX_CA_LIFETIME.as_secs() / 3600
        );
        // A change of a caBundle takes longer to be observed.
        ensure!(
            activation_delay >= Duration::from_secs(1),
            "ca-activation-delay must be at least 1s"
        );
        // Otherwise a leaf would still be in use when its CA expires.
        ensure!(
            ca >= leaf.saturating_mul(3),
            "ca-lifetime is less than three times leaf-lifetime: raise the one or lower the other"
        );
        // Otherwise a leaf that is due for renewal when the CA Secret is lost would expire before a new CA may sign the
        // next.
        ensure!(
            leaf >= activation_delay.saturating_mul(6),
            "leaf-lifetime is less than six times ca-activation-delay: raise the one or lower the other"
        );
        Ok(Self {
            ca,
            leaf,
            activation_delay,
        })
    }

    /// How long a new CA is valid.
    pub fn ca(&self) -> Duration {
        self.ca
    }

    /// How long a new leaf is valid.
    pub fn leaf(&self) -> Duration {
        self.leaf
    }

    /// How long a new CA is in every caBundle before it signs: longer than any API server takes to observe it.
    pub fn activation_delay(&self) -> Duration {
        self.activation_delay
    }
}

impl Default for Lifetimes {
    /// A CA for a year, leaves for a week, an activation delay of two minutes.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            ca: 365 * DAY,
            leaf: 7 * DAY,
            activation_delay: Duration::from_secs(120),
        }
    }
}
