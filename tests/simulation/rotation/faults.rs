//! Faults of a cluster and of its replicas.

use std::time::Duration;

use webhook::certificates::testing_api::{Bundle, SecretData};

use crate::memory_cluster::WebhookConfiguration;
use crate::rotation::rng::Rng;
use crate::{DAY, HOUR, MINUTE};

/// Average intervals of faults; `None` for never. The defaults are far more frequent than in practice.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    /// The number of replicas.
    pub(crate) replicas: usize,
    /// A replica is restarted.
    pub(crate) restart_every: Duration,
    /// A replica is disconnected, or suspended before a write, for up to six hours.
    pub(crate) disconnect_every: Duration,
    /// A replica's clock jumps for up to six hours, or is set back by days for days.
    pub(crate) clock_jump_every: Duration,
    /// The Secret is deleted, emptied or corrupted, or restored from a backup.
    pub(crate) secret_loss_every: Duration,
    /// One `caBundle` is emptied, or all are.
    pub(crate) bundle_clear_every: Option<Duration>,
    /// The Secret and every `caBundle` are emptied at once, as by `helm upgrade --force`.
    pub(crate) force_upgrade_every: Option<Duration>,
    /// The webhook configuration is deleted, and created again without a `caBundle`.
    pub(crate) webhooks_deletion_every: Option<Duration>,
    /// An operator requests a rotation because the keys have leaked.
    pub(crate) key_leak_every: Option<Duration>,
    /// The release is upgraded to the other mode, replica by replica.
    pub(crate) mode_change_every: Option<Duration>,
    /// The release is upgraded to other lifetimes, replica by replica.
    pub(crate) lifetimes_change_every: Option<Duration>,
    /// The release is upgraded from 0.1.0 or rolled back to it, replica by replica.
    pub(crate) version_change_every: Option<Duration>,
    /// The namespace is deleted and created again, and the webhook configuration stays: the Secret is deleted, and every
    /// replica restarts, some only after others have started.
    pub(crate) namespace_deletion_every: Option<Duration>,
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
        Self {
            replicas: 3,
            restart_every: 10 * DAY,
            disconnect_every: 30 * DAY,
            clock_jump_every: 30 * DAY,
            secret_loss_every: 700 * DAY,
            bundle_clear_every: None,
            force_upgrade_every: None,
            webhooks_deletion_every: None,
            key_leak_every: None,
            mode_change_every: None,
            lifetimes_change_every: None,
            version_change_every: None,
            namespace_deletion_every: None,
        }
    }
}

impl Faults {
    /// The shortest of all intervals.
    pub(crate) fn shortest_interval(&self) -> Duration {
        let Self {
            replicas: _,
            restart_every,
            disconnect_every,
            clock_jump_every,
            secret_loss_every,
            bundle_clear_every,
            force_upgrade_every,
            webhooks_deletion_every,
            key_leak_every,
            mode_change_every,
            lifetimes_change_every,
            version_change_every,
            namespace_deletion_every,
        } = self;
        let always = [
            restart_every,
            disconnect_every,
            clock_jump_every,
            secret_loss_every,
        ];
        always
            .into_iter()
            .chain(bundle_clear_every)
            .chain(force_upgrade_every)
            .chain(webhooks_deletion_every)
            .chain(key_leak_every)
            .chain(mode_change_every)
            .chain(lifetimes_change_every)
            .chain(version_change_every)
            .chain(namespace_deletion_every)
            .copied()
            .min()
            .unwrap_or_default()
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
