//! Faults of a cluster and of its replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use webhook::certificates::testing_api::{Bundle, SecretData};

use crate::memory_cluster::WebhookConfiguration;
use crate::rotation::rng::Rng;
use crate::{DAY, HOUR, MINUTE};

/// The number of replicas, and average intervals of faults; those without one never happen. The defaults are far more
/// frequent than in practice.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    pub(crate) replicas: usize,
    intervals: BTreeMap<Fault, Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A replica is restarted.
    Restart,
    /// A replica is disconnected, or suspended before a write, for up to six hours.
    Disconnect,
    /// A replica's clock jumps for up to six hours, or is set back by days for days.
    ClockJump,
    /// The Secret is deleted, emptied or corrupted, or restored from a backup.
    SecretLoss,
    /// One `caBundle` is emptied, or all are.
    BundleClear,
    /// The Secret and every `caBundle` are emptied at once, as by `helm upgrade --force`.
    ForceUpgrade,
    /// The webhook configuration is deleted, and created again without a `caBundle`.
    WebhooksDeletion,
    /// An operator requests a rotation because the keys have leaked.
    KeyLeak,
    /// The release is upgraded to the other mode, replica by replica.
    ModeChange,
    /// The release is upgraded to other lifetimes, replica by replica.
    LifetimesChange,
    /// The namespace is deleted and created again, and the webhook configuration stays: the Secret is deleted, and
    /// every replica restarts, some only after others have started.
    NamespaceDeletion,
}

/// A jump of a clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockJump {
    /// The offset of the clock during the jump.
    pub(crate) seconds: i64,
    pub(crate) duration: Duration,
    /// The offset of the clock afterwards.
    pub(crate) seconds_after: i64,
}

// === impl Faults ===

impl Default for Faults {
    fn default() -> Self {
        let intervals = [
            (Fault::Restart, 10 * DAY),
            (Fault::Disconnect, 30 * DAY),
            (Fault::ClockJump, 30 * DAY),
            (Fault::SecretLoss, 700 * DAY),
        ];
        Self {
            replicas: 3,
            intervals: intervals.into(),
        }
    }
}

impl Faults {
    /// The default faults, but for those with another interval.
    pub(crate) fn with_intervals<const COUNT: usize>(
        intervals: [(Fault, Duration); COUNT],
    ) -> Self {
        let mut faults = Self::default();
        faults.intervals.extend(intervals);
        faults
    }

    pub(crate) fn interval(&self, fault: Fault) -> Option<Duration> {
        self.intervals.get(&fault).copied()
    }

    /// The shortest of all intervals.
    pub(crate) fn shortest_interval(&self) -> Duration {
        self.intervals.values().copied().min().unwrap_or_default()
    }
}

// === impl ClockJump ===

impl ClockJump {
    /// A random jump: minutes, hours or weeks ahead, or days back.
    pub(crate) fn random(rng: &Rng) -> Self {
        let (seconds, max_duration) = match rng.below(4) {
            0 => (rng.offset_within(40 * MINUTE), 6 * HOUR),
            1 => (rng.offset_within(12 * HOUR), 6 * HOUR),
            2 => (rng.offset_within(20 * DAY).abs(), 6 * HOUR),
            _ => (-rng.offset_within(6 * DAY).abs(), 20 * DAY),
        };
        Self {
            seconds,
            duration: rng.duration_up_to(max_duration),
            seconds_after: rng.offset_within(5 * MINUTE),
        }
    }

    /// Returns true if valid leaves may appear to be expired.
    pub(crate) fn is_ahead(self) -> bool {
        self.seconds > 0
    }
}

/// The Secret after a loss: deleted, emptied, with one corrupt value, or restored from a backup.
pub(crate) fn damaged_secret(
    data: SecretData,
    backups: &[SecretData],
    rng: &Rng,
) -> Option<SecretData> {
    match rng.below(4) {
        0 => None,
        1 => Some(SecretData::new()),
        2 => {
            let mut data = data;
            let keys: Vec<_> = data.keys().cloned().collect();
            let corrupt = usize::try_from(rng.below(keys.len() as u64)).unwrap();
            if let Some(key) = keys.get(corrupt) {
                data.insert(key.clone(), b"junk".to_vec());
            }
            Some(data)
        }
        _ => {
            let backup = usize::try_from(rng.below(backups.len() as u64)).unwrap();
            backups.get(backup).cloned()
        }
    }
}

/// The configuration with the first `count` bundles emptied.
pub(crate) fn with_empty_bundles(
    configuration: &WebhookConfiguration,
    count: usize,
) -> WebhookConfiguration {
    let mut configuration = configuration.clone();
    for (_, bundle) in configuration.bundles.iter_mut().take(count) {
        *bundle = Bundle::default();
    }
    configuration
}
