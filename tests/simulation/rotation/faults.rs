//! What befalls a cluster and its replicas.

use std::time::Duration;

use webhook::certificates::testing_api::{Bundle, SecretData};

use crate::rotation::cluster::WebhookConfiguration;
use crate::rotation::rng::Rng;
use crate::rotation::{DAY, HOUR, MINUTE};

/// How often what happens, on average; `None` for never. By default much more than ever happens.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    /// How many replicas there are for all that to befall.
    pub(crate) replicas: usize,
    /// A replica is restarted.
    pub(crate) restart_every: Duration,
    /// A replica reaches nothing for up to six hours, or is suspended when it wants to write.
    pub(crate) disconnect_every: Duration,
    /// A replica's clock jumps, for up to six hours, or is set back by days, for days.
    pub(crate) clock_jump_every: Duration,
    /// The Secret is deleted, emptied, spoilt, or an old one is restored.
    pub(crate) secret_loss_every: Duration,
    /// Somebody empties one `caBundle`, or all.
    pub(crate) bundle_clear_every: Option<Duration>,
    /// Somebody empties the Secret and every `caBundle` at once, as `helm upgrade --force` does.
    pub(crate) force_upgrade_every: Option<Duration>,
    /// The webhook configuration is deleted, and made again without a `caBundle`.
    pub(crate) webhooks_deletion_every: Option<Duration>,
    /// An operator requests a rotation, as the keys have leaked.
    pub(crate) key_leak_every: Option<Duration>,
    /// The release is upgraded to the other mode, replica by replica.
    pub(crate) mode_change_every: Option<Duration>,
    /// The release is upgraded to other lifetimes, replica by replica.
    pub(crate) lifetimes_change_every: Option<Duration>,
}

/// How far a clock is off, for how long, and by how much from then on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockJump {
    pub(crate) seconds: i64,
    pub(crate) duration: Duration,
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
        }
    }
}

impl Faults {
    /// The time between two of whatever happens most often.
    pub(crate) fn shortest_interval(&self) -> Duration {
        let Self {
            replicas: _,
            restart_every,
            disconnect_every: cut_every,
            clock_jump_every: jump_every,
            secret_loss_every: lost_every,
            bundle_clear_every: spoilt_every,
            force_upgrade_every: forced_every,
            webhooks_deletion_every: deleted_every,
            key_leak_every: leaked_every,
            mode_change_every: other_mode_every,
            lifetimes_change_every: other_lifetimes_every,
        } = self;
        [restart_every, cut_every, jump_every, lost_every]
            .into_iter()
            .chain(spoilt_every)
            .chain(forced_every)
            .chain(deleted_every)
            .chain(leaked_every)
            .chain(other_mode_every)
            .chain(other_lifetimes_every)
            .copied()
            .min()
            .unwrap_or_default()
    }
}

// === impl Jump ===

impl ClockJump {
    /// Any of those that a clock makes.
    pub(crate) fn random(chance: &Rng) -> Self {
        let (seconds, lasts) = match chance.below(4) {
            0 => (chance.offset_within(40 * MINUTE), 6 * HOUR),
            1 => (chance.offset_within(12 * HOUR), 6 * HOUR),
            2 => (chance.offset_within(20 * DAY).abs(), 6 * HOUR),
            _ => (-chance.offset_within(6 * DAY).abs(), 20 * DAY),
        };
        Self {
            seconds,
            duration: chance.duration_up_to(lasts),
            seconds_after: chance.offset_within(5 * MINUTE),
        }
    }

    /// Returns true if leaves in use may look as if they had ended.
    pub(crate) fn is_ahead(self) -> bool {
        self.seconds > 0
    }
}

/// What is left of a Secret that is lost: nothing, no data, all but one key, or what it was once.
pub(crate) fn damaged_secret(
    data: SecretData,
    backups: &[SecretData],
    chance: &Rng,
) -> Option<SecretData> {
    match chance.below(4) {
        0 => None,
        1 => Some(SecretData::new()),
        2 => {
            let mut data = data;
            let keys: Vec<_> = data.keys().cloned().collect();
            let spoilt = usize::try_from(chance.below(keys.len() as u64)).unwrap();
            if let Some(key) = keys.get(spoilt) {
                data.insert(key.clone(), b"junk".to_vec());
            }
            Some(data)
        }
        _ => {
            let old = usize::try_from(chance.below(backups.len() as u64)).unwrap();
            backups.get(old).cloned()
        }
    }
}

/// A configuration of which so many bundles are empty.
pub(crate) fn with_empty_bundles(
    configuration: &WebhookConfiguration,
    many: usize,
) -> WebhookConfiguration {
    let mut configuration = configuration.clone();
    for (_, bundle) in configuration.bundles.iter_mut().take(many) {
        *bundle = Bundle::default();
    }
    configuration
}
