//! What a pod's annotations set, over the installation's defaults.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use drainer::config::{DEFAULT_PORT, parse_idle_exit, parse_listeners, parse_port};
use drainer::{AdminAddress, Durations, ListenerSelector, Timing, duration};

use super::annotations::{self, PREFIX};
use super::codes::{Code, Notice};
use super::defaults::{Defaults, Resources};
use super::quantity::Quantity;
use super::view::PodView;

/// Every setting of one pod, valid, each with its source.
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
    pub cpu: Share,
    /// The drainer's memory.
    pub memory: Share,
}

/// What the drainer gets of a resource; the request is never more than the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// What is reserved.
    pub request: Setting<Quantity>,
    /// What is never exceeded.
    pub limit: Setting<Quantity>,
}

/// A value, and who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Who said so.
    pub source: Source,
}

/// Where a setting's value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The installation's default.
    Default,
    /// The default for a Job's pod, which should not wait for clients that do not come.
    JobDefault,
    /// The pod's annotation.
    Annotation,
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

/// What was read from a pod's annotations.
pub(super) struct Reading {
    /// The settings, with the default in place of each bad value.
    pub settings: Settings,
    /// The settings' timings, which fit together.
    pub timing: Timing,
    /// Every bad value.
    pub bad_values: Vec<Notice>,
    /// Every key that sets nothing.
    pub warnings: Vec<Notice>,
}

/// The annotations under our prefix, and what was found wrong with them so far.
struct Given<'p> {
    annotations: Vec<(&'p str, &'p str)>,
    bad_values: Vec<Notice>,
}

/// In bytes: 24Mi, which the container runtime itself needs to start a hook.
const LEAST_MEMORY: u64 = 24 << 20;

/// In bytes. No value is nearly so long, and a message that repeated a longer one would say nothing.
const LONGEST_VALUE: usize = 1024;

// === impl Settings ===

impl Settings {
    /// Reads a pod's annotations.
    pub(super) fn read(pod: &PodView<'_>, in_job: bool, defaults: &Defaults) -> Reading {
        let annotations: Vec<_> = pod
            .annotations()
            .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)))
            .collect();
        let warnings = annotations
            .iter()
            .filter_map(|(key, _)| annotations::warning(key))
            .collect();
        let mut given = Given {
            annotations,
            bad_values: Vec::new(),
        };
        let standard = Self::standard(in_job, defaults);
        let mut settings = standard.clone();
        given.read("envoy-container", &mut settings.envoy_container, name);
        given.read("admin-address", &mut settings.admin_address, |text| {
            text.parse().map(Some)
        });
        given.read("port", &mut settings.port, parse_port);
        given.read("drain-delay", &mut settings.drain_delay, duration::parse);
        given.read(
            "min-drain-duration",
            &mut settings.min_drain_duration,
            duration::parse,
        );
        given.read(
            "drain-timeout",
            &mut settings.drain_timeout,
            duration::parse,
        );
        given.read("idle-exit", &mut settings.idle_exit, parse_idle_exit);
        given.read("quiet-period", &mut settings.quiet_period, duration::parse);
        given.read(
            "exit-at-connections",
            &mut settings.exit_at_connections,
            count,
        );
        given.read(
            "ignore-listeners",
            &mut settings.ignore_listeners,
            parse_listeners,
        );
        given.read("native-sidecar", &mut settings.native_sidecar, str::parse);
        given.read("existing-hook", &mut settings.existing_hook, str::parse);
        given.read("cpu-request", &mut settings.cpu.request, amount);
        given.read("cpu-limit", &mut settings.cpu.limit, amount);
        given.read("memory-request", &mut settings.memory.request, amount);
        given.read("memory-limit", &mut settings.memory.limit, memory_limit);
        given.fit("cpu", &mut settings.cpu, &standard.cpu);
        given.fit("memory", &mut settings.memory, &standard.memory);
        let poll_interval = defaults.timing.poll_interval;
        let timing = Timing::try_new(settings.durations(poll_interval)).unwrap_or_else(|misfits| {
            let misfits = misfits
                .iter()
                .map(|misfit| Code::BadValue.about(misfit.to_string()));
            given.bad_values.extend(misfits);
            settings.min_drain_duration = standard.min_drain_duration;
            settings.drain_timeout = standard.drain_timeout;
            Timing::try_new(settings.durations(poll_interval))
                .expect("the defaults fit together, and a Job's zero fits any of them")
        });
        Reading {
            settings,
            timing,
            bad_values: given.bad_values,
            warnings,
        }
    }

    /// What holds where no annotation says otherwise.
    fn standard(in_job: bool, defaults: &Defaults) -> Self {
        fn default<T>(value: T) -> Setting<T> {
            Setting {
                value,
                source: Source::Default,
            }
        }
        let Durations {
            drain_delay,
            min_drain_duration,
            drain_timeout,
            idle_exit,
            quiet_period,
            ..
        } = *defaults.timing;
        let Resources {
            cpu_request,
            memory_request,
            cpu_limit,
            memory_limit,
        } = defaults.resources.clone();
        // When a Job's pod ends, nobody is to be waited for: its clients were its own containers.
        let unless_in_job = |duration| match in_job {
            true => Setting {
                value: Duration::ZERO,
                source: Source::JobDefault,
            },
            false => default(duration),
        };
        Self {
            envoy_container: default(None),
            admin_address: default(None),
            port: default(DEFAULT_PORT),
            drain_delay: default(drain_delay),
            min_drain_duration: unless_in_job(min_drain_duration),
            drain_timeout: default(drain_timeout),
            idle_exit: default(idle_exit),
            quiet_period: unless_in_job(quiet_period),
            exit_at_connections: default(0),
            ignore_listeners: default(Vec::new()),
            native_sidecar: default(NativeSidecar::Auto),
            existing_hook: default(ExistingHook::Keep),
            cpu: Share {
                request: default(cpu_request),
                limit: default(cpu_limit),
            },
            memory: Share {
                request: default(memory_request),
                limit: default(memory_limit),
            },
        }
    }

    fn durations(&self, poll_interval: Duration) -> Durations {
        Durations {
            drain_delay: self.drain_delay.value,
            min_drain_duration: self.min_drain_duration.value,
            drain_timeout: self.drain_timeout.value,
            idle_exit: self.idle_exit.value,
            quiet_period: self.quiet_period.value,
            poll_interval,
        }
    }
}

// === impl Given ===

impl Given<'_> {
    /// Puts the annotation's value, if there is a good one, in the place of the default.
    fn read<T, E: fmt::Display>(
        &mut self,
        name: &str,
        setting: &mut Setting<T>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) {
        let Some((_, text)) = self.annotations.iter().find(|(key, _)| *key == name) else {
            return;
        };
        let parsed = match text.len() {
            ..=LONGEST_VALUE => parse(text).map_err(|error| error.to_string()),
            length => Err(format!(
                "a value of {length} bytes: at most {LONGEST_VALUE}"
            )),
        };
        match parsed {
            Ok(value) => {
                *setting = Setting {
                    value,
                    source: Source::Annotation,
                }
            }
            Err(error) => self
                .bad_values
                .push(Code::BadValue.about(format!("`{PREFIX}{name}`: {error}"))),
        }
    }

    /// Refuses a request above the limit, and goes back to the standard.
    fn fit(&mut self, resource: &str, share: &mut Share, standard: &Share) {
        let (request, limit) = (&share.request.value, &share.limit.value);
        if request > limit {
            let detail = format!(
                "{resource}-request {request} is more than {resource}-limit {limit}: lower the one or raise the other"
            );
            self.bad_values.push(Code::BadValue.about(detail));
            *share = standard.clone();
        }
    }
}

fn name(text: &str) -> Result<Option<String>, &'static str> {
    match text {
        "" => Err("invalid name ``: the name of a container"),
        name => Ok(Some(name.to_owned())),
    }
}

fn count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("invalid number `{text}`: 0 or more"))
}

fn amount(text: &str) -> Result<Quantity, String> {
    match text.parse::<Quantity>() {
        Ok(amount) if amount.is_positive() => Ok(amount),
        Ok(amount) => Err(format!("invalid quantity `{amount}`: more than 0")),
        Err(error) => Err(error.to_string()),
    }
}

fn memory_limit(text: &str) -> Result<Quantity, String> {
    let limit = amount(text)?;
    if limit.is_at_least(LEAST_MEMORY) {
        Ok(limit)
    } else {
        Err(format!(
            "invalid limit `{limit}`: at least 24Mi, which the container runtime itself needs"
        ))
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

// === impl Source ===

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::JobDefault => "default in a Job",
            Self::Annotation => "annotation",
        })
    }
}
