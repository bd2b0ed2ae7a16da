//! A pod's annotations, read into [`Settings`]: everything that is wrong with them at once.

use std::fmt;

use drainer::{Timing, duration, parse_idle_exit, parse_listeners, parse_port};

use super::{NativeSidecar, Setting, Settings, Share, Source};
use crate::admission::amounts;
use crate::admission::annotations::{self, PREFIX};
use crate::admission::codes::{Code, Notice};
use crate::admission::defaults::Defaults;
use crate::admission::quantity::{InvalidQuantity, Quantity};
use crate::admission::view::PodView;

/// What was read from a pod's annotations.
#[derive(Debug)]
pub(in crate::admission) struct Reading {
    /// The settings, with the default in place of each bad value.
    pub settings: Settings,
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

/// In bytes. No value is nearly so long, and a message that repeats a longer one says nothing.
const LONGEST_VALUE: usize = 1024;

/// More unknown keys than these are an attack rather than slips, and nobody is told of them.
const MOST_WARNINGS: usize = 32;

// === impl Reading ===

impl Reading {
    /// Reads a pod's annotations.
    pub(in crate::admission) fn of(pod: &PodView<'_>, in_job: bool, defaults: &Defaults) -> Self {
        let annotations: Vec<_> = pod
            .annotations()
            .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)))
            .collect();
        let warnings = annotations
            .iter()
            .filter_map(|(key, _)| annotations::warning(key))
            .take(MOST_WARNINGS)
            .collect();
        let mut given = Given {
            annotations,
            bad_values: Vec::new(),
        };
        let standard = Settings::standard(in_job, defaults);
        let mut settings = standard.clone();
        given.read_all(&mut settings, in_job);
        given.fit_share("cpu", &mut settings.cpu, &standard.cpu);
        given.fit_share("memory", &mut settings.memory, &standard.memory);
        given.fit_timing(&mut settings, &standard);
        Self {
            settings,
            bad_values: given.bad_values,
            warnings,
        }
    }
}

// === impl Given ===

impl Given<'_> {
    fn read_all(&mut self, settings: &mut Settings, in_job: bool) {
        let Settings {
            envoy_container,
            admin_address,
            port,
            drain_delay,
            min_drain_duration,
            drain_timeout,
            idle_exit,
            quiet_period,
            exit_at_connections,
            ignore_listeners,
            native_sidecar,
            existing_hook,
            cpu,
            memory,
            timing: _,
        } = settings;
        let address = |text: &str| text.parse().map(Some);
        let native = |text: &str| native_sidecar_of(text, in_job);
        self.read("envoy-container", envoy_container, container_name);
        self.read("admin-address", admin_address, address);
        self.read("port", port, parse_port);
        self.read("drain-delay", drain_delay, duration::parse);
        self.read("min-drain-duration", min_drain_duration, duration::parse);
        self.read("drain-timeout", drain_timeout, duration::parse);
        self.read("idle-exit", idle_exit, parse_idle_exit);
        self.read("quiet-period", quiet_period, duration::parse);
        self.read("exit-at-connections", exit_at_connections, count);
        self.read("ignore-listeners", ignore_listeners, parse_listeners);
        self.read("native-sidecar", native_sidecar, native);
        self.read("existing-hook", existing_hook, str::parse);
        self.read("cpu-request", &mut cpu.request, amount);
        self.read("cpu-limit", &mut cpu.limit, amount);
        self.read("memory-request", &mut memory.request, amount);
        self.read("memory-limit", &mut memory.limit, memory_limit);
    }

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
            long => Err(format!("a value of {long} bytes: at most {LONGEST_VALUE}")),
        };
        let source = Source::Annotation;
        match parsed {
            Ok(value) => *setting = Setting { value, source },
            Err(error) => self.refuse(format!("`{PREFIX}{name}`: {error}")),
        }
    }

    /// Refuses a request above the limit.
    fn fit_share(&mut self, resource: &'static str, share: &mut Share, standard: &Share) {
        let (request, limit) = (&share.request.value, &share.limit.value);
        if let Err(misfit) = amounts::fit(resource, request, limit) {
            self.refuse(misfit.to_string());
            *share = standard.clone();
        }
    }

    /// Refuses durations that do not fit together.
    fn fit_timing(&mut self, settings: &mut Settings, standard: &Settings) {
        settings.timing = Timing::try_new(settings.durations()).unwrap_or_else(|misfits| {
            for misfit in misfits {
                self.refuse(misfit.to_string());
            }
            settings.drain_delay = standard.drain_delay;
            settings.min_drain_duration = standard.min_drain_duration;
            settings.drain_timeout = standard.drain_timeout;
            settings.idle_exit = standard.idle_exit;
            settings.quiet_period = standard.quiet_period;
            Timing::try_new(settings.durations())
                .expect("the defaults fit together, and a Job's zero fits any of them")
        });
    }

    fn refuse(&mut self, detail: String) {
        self.bad_values.push(Code::BadValue.about(detail));
    }
}

fn container_name(text: &str) -> Result<Option<String>, &'static str> {
    match text {
        "" => Err("invalid name ``: the name of a container"),
        name => Ok(Some(name.to_owned())),
    }
}

fn native_sidecar_of(text: &str, in_job: bool) -> Result<NativeSidecar, String> {
    match text.parse()? {
        NativeSidecar::False if in_job => {
            Err("`false` in a Job, which would never complete: auto or true".to_owned())
        }
        form => Ok(form),
    }
}

fn count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("invalid number `{text}`: 0 or more"))
}

fn amount(text: &str) -> Result<Quantity, String> {
    amounts::positive(quantity(text)?).map_err(|error| error.to_string())
}

fn memory_limit(text: &str) -> Result<Quantity, String> {
    amounts::memory_limit(quantity(text)?).map_err(|error| error.to_string())
}

fn quantity(text: &str) -> Result<Quantity, String> {
    let parsed: Result<_, InvalidQuantity> = text.parse();
    parsed.map_err(|error| error.to_string())
}
