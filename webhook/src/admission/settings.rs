//! What is set for one pod: its annotations over the installation's defaults.

pub mod keys;
mod parse;
mod row;

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use drainer::{AdminAddress, DEFAULT_PORT, Durations, ListenerSelector, Timing};

use super::amounts::ResourceAmounts;
use super::defaults::Defaults;
use super::quantity::Quantity;

pub(super) use parse::ParsedSettings;
pub use row::SettingRow;

/// Every setting of one pod, each with its source. They are valid and fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Envoy's container; `None` where it is to be found.
    pub envoy_container: Setting<Option<String>>,
    /// Envoy's admin interface; `None` where it is to be found.
    pub admin_address: Setting<Option<AdminAddress>>,
    /// Where the drainer listens.
    pub port: Setting<NonZeroU16>,
    /// How long Envoy serves on before the drain starts.
    pub drain_delay: Setting<Duration>,
    /// The least a drain lasts.
    pub min_drain_duration: Setting<Duration>,
    /// The most a drain lasts.
    pub drain_timeout: Setting<Duration>,
    /// How long nothing but idle HTTP connections must be left; `None` waits for these too.
    pub idle_exit: Setting<Option<Duration>>,
    /// How long no new connection must have come.
    pub quiet_period: Setting<Duration>,
    /// So many connections may remain.
    pub exit_at_connections: Setting<u64>,
    /// Listeners that are not counted.
    pub ignore_listeners: Setting<Vec<ListenerSelector>>,
    /// The form of the drainer's container.
    pub native_sidecar: Setting<NativeSidecar>,
    /// What happens to a hook that Envoy's container has.
    pub existing_hook: Setting<ExistingHook>,
    /// The drainer's CPU.
    pub cpu: ResourceSetting,
    /// The drainer's memory.
    pub memory: ResourceSetting,
    /// The durations above.
    timing: Timing,
}

/// A value, and who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Who said so.
    pub source: SettingSource,
}

/// Where a setting's value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingSource {
    /// The installation's default.
    Default,
    /// The default for a Job's pod.
    JobDefault,
    /// The next that is free in the pod, since the default is taken.
    NextFree,
    /// The pod's annotation.
    Annotation,
}

/// What the drainer gets of a resource; the request is never more than the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSetting {
    /// What is reserved.
    pub request: Setting<Quantity>,
    /// What is never exceeded.
    pub limit: Setting<Quantity>,
}

/// `native-sidecar`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeSidecar {
    /// The installation decides.
    Auto,
    /// An init container with `restartPolicy: Always`.
    True,
    /// A plain container.
    False,
}

/// `existing-hook`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingHook {
    /// The hook stays, and the pod gets no drainer.
    Keep,
    /// Ours takes its place.
    Replace,
}

// === impl Settings ===

impl Settings {
    /// What holds where no annotation says otherwise.
    fn from_defaults(in_job: bool, defaults: &Defaults) -> Self {
        fn default<T>(value: T) -> Setting<T> {
            let source = SettingSource::Default;
            Setting { value, source }
        }
        let timing = &defaults.timing;
        let ResourceAmounts {
            cpu_request,
            memory_request,
            cpu_limit,
            memory_limit,
        } = &*defaults.resources;
        let share = |request: &Quantity, limit: &Quantity| ResourceSetting {
            request: default(request.clone()),
            limit: default(limit.clone()),
        };
        // When a Job's pod ends, nobody is to be waited for: its clients were its own containers.
        let unless_in_job = |value| match in_job {
            true => Setting {
                value: Duration::ZERO,
                source: SettingSource::JobDefault,
            },
            false => default(value),
        };
        Self {
            envoy_container: default(None),
            admin_address: default(None),
            port: default(DEFAULT_PORT),
            drain_delay: default(timing.drain_delay),
            min_drain_duration: unless_in_job(timing.min_drain_duration),
            drain_timeout: default(timing.drain_timeout),
            idle_exit: default(timing.idle_exit),
            quiet_period: unless_in_job(timing.quiet_period),
            exit_at_connections: default(0),
            ignore_listeners: default(Vec::new()),
            native_sidecar: default(NativeSidecar::Auto),
            existing_hook: default(ExistingHook::Keep),
            cpu: share(cpu_request, cpu_limit),
            memory: share(memory_request, memory_limit),
            timing: *timing,
        }
    }

    /// The timings of the pod's drain.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    fn durations(&self) -> Durations {
        Durations {
            drain_delay: self.drain_delay.value,
            min_drain_duration: self.min_drain_duration.value,
            drain_timeout: self.drain_timeout.value,
            idle_exit: self.idle_exit.value,
            quiet_period: self.quiet_period.value,
            poll_interval: self.timing.poll_interval,
        }
    }
}

// === impl SettingSource ===

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::JobDefault => "default in a Job",
            Self::NextFree => "next free",
            Self::Annotation => "annotation",
        })
    }
}

// === impl NativeSidecar ===

impl FromStr for NativeSidecar {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "true" => Ok(Self::True),
            "false" => Ok(Self::False),
            other => Err(format!("invalid value `{other}`: auto, true or false")),
        }
    }
}

// === impl ExistingHook ===

impl FromStr for ExistingHook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(Self::Keep),
            "replace" => Ok(Self::Replace),
            other => Err(format!("invalid value `{other}`: keep or replace")),
        }
    }
}
