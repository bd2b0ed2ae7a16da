//! A pod's annotations, read into [`Settings`]: everything that is wrong with them at once.

use std::fmt;
use std::time::Duration;

use drainer::{MAX_DURATION, Timing, duration, parse_idle_exit, parse_listeners, parse_port};

use super::keys;
use super::keys::{MAX_REPORTED_KEYS, PREFIX, Suggestions};
use super::{NativeSidecar, ResourceSetting, Setting, SettingSource, Settings};
use crate::admission::amounts;
use crate::admission::defaults::{Defaults, OnInvalid};
use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::pod::PodView;
use crate::admission::quantity::{InvalidQuantity, Quantity};

/// What was read from a pod's annotations.
#[derive(Debug)]
pub(in crate::admission) struct ParsedSettings {
    /// The settings, with the default in place of each bad value.
    pub settings: Settings,
    /// Every bad value for which the pod is refused.
    pub bad_values: Vec<Diagnostic>,
    /// Every key that sets nothing, and every bad value for which the pod is not refused.
    pub warnings: Vec<Diagnostic>,
    /// The settings that have their default in the place of a bad value.
    pub defaulted: DefaultedSettings,
}

/// Names of settings that have their default in the place of a bad value.
#[derive(Debug, Default)]
pub(in crate::admission) struct DefaultedSettings(Vec<&'static str>);

/// The annotations under our prefix, and what was found wrong with them so far.
struct AnnotationReader<'p> {
    annotations: Vec<(&'p str, &'p str)>,
    on_invalid: OnInvalid,
    bad_values: Vec<Diagnostic>,
    defaulted: DefaultedSettings,
}

// === impl ParsedSettings ===

impl ParsedSettings {
    /// Reads a pod's annotations.
    pub(in crate::admission) fn parse(
        pod: &PodView<'_>,
        in_job: bool,
        defaults: &Defaults,
    ) -> Self {
        let annotations: Vec<_> = pod
            .annotations()
            .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)))
            .collect();
        let likeness = Suggestions::for_key_count(annotations.len());
        let mut warnings: Vec<_> = annotations
            .iter()
            .filter_map(|(key, _)| keys::lint_name(key, likeness))
            .take(MAX_REPORTED_KEYS)
            .collect();
        let mut given = AnnotationReader::new(annotations, defaults.on_invalid);
        let standard = Settings::from_defaults(in_job, defaults);
        let mut settings = standard.clone();
        given.read_all(&mut settings, in_job);
        let cpu = ["cpu-request", "cpu-limit"];
        given.check_request_le_limit("cpu", cpu, &mut settings.cpu, &standard.cpu);
        let memory = ["memory-request", "memory-limit"];
        given.check_request_le_limit("memory", memory, &mut settings.memory, &standard.memory);
        given.check_timing(&mut settings, &standard);
        if defaults.on_invalid == OnInvalid::Warn {
            let bad_values = given.bad_values.drain(..);
            warnings.extend(bad_values.map(|bad| using_default(&bad, &settings)));
        }
        Self {
            settings,
            bad_values: given.bad_values,
            warnings,
            defaulted: given.defaulted,
        }
    }
}

// === impl DefaultedSettings ===

impl DefaultedSettings {
    /// True if a notice may be owed to one of them alone, and not to what the pod's author wrote.
    pub(in crate::admission) fn accounts_for(&self, notice: &Diagnostic) -> bool {
        let hangs_on: &[_] = match notice.code {
            Code::NoEnvoy | Code::SeveralEnvoys | Code::EnvoyGuessed => &["envoy-container"],
            Code::SocketNotMounted | Code::SocketUserUnknown | Code::AdminNotRead => {
                &["envoy-container", "admin-address"]
            }
            Code::PortTaken => &["port", "admin-address"],
            _ => &[],
        };
        hangs_on.iter().any(|name| self.0.contains(name))
    }
}

// === impl AnnotationReader ===

impl<'p> AnnotationReader<'p> {
    fn new(annotations: Vec<(&'p str, &'p str)>, on_invalid: OnInvalid) -> Self {
        Self {
            annotations,
            on_invalid,
            bad_values: Vec::new(),
            defaulted: DefaultedSettings::default(),
        }
    }

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
        let native = |text: &str| parse_native_sidecar(text, in_job);
        self.read("envoy-container", envoy_container, parse_container_name);
        self.read("admin-address", admin_address, address);
        self.read("port", port, parse_port);
        self.read("drain-delay", drain_delay, parse_bounded_duration);
        self.read(
            "min-drain-duration",
            min_drain_duration,
            parse_bounded_duration,
        );
        self.read("drain-timeout", drain_timeout, parse_bounded_duration);
        self.read("idle-exit", idle_exit, parse_bounded_idle_exit);
        self.read("quiet-period", quiet_period, parse_bounded_duration);
        self.read("exit-at-connections", exit_at_connections, parse_count);
        self.read("ignore-listeners", ignore_listeners, parse_listeners);
        self.read("native-sidecar", native_sidecar, native);
        self.read("existing-hook", existing_hook, str::parse);
        self.read("cpu-request", &mut cpu.request, parse_positive_quantity);
        self.read("cpu-limit", &mut cpu.limit, parse_positive_quantity);
        self.read(
            "memory-request",
            &mut memory.request,
            parse_positive_quantity,
        );
        self.read("memory-limit", &mut memory.limit, parse_memory_limit);
    }

    /// Puts the annotation's value, if there is a good one, in the place of the default.
    fn read<T, E: fmt::Display>(
        &mut self,
        name: &'static str,
        setting: &mut Setting<T>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) {
        let Some((_, text)) = self.annotations.iter().find(|(key, _)| *key == name) else {
            return;
        };
        let source = SettingSource::Annotation;
        match keys::parse_value(name, text, parse) {
            Ok(value) => *setting = Setting { value, source },
            Err(bad_value) => {
                self.bad_values.push(bad_value);
                self.defaulted.0.push(name);
            }
        }
    }

    /// Refuses a request above the limit.
    fn check_request_le_limit(
        &mut self,
        resource: &'static str,
        names: [&'static str; 2],
        share: &mut ResourceSetting,
        standard: &ResourceSetting,
    ) {
        let (request, limit) = (&share.request, &share.limit);
        if amounts::check_limit(resource, &request.value, &limit.value).is_err() {
            let (request, limit) = (describe(names[0], request), describe(names[1], limit));
            let detail =
                format!("{request} is more than {limit}: lower the one or raise the other");
            self.reject_conflict(names, detail);
            *share = standard.clone();
        }
    }

    /// Refuses a timeout below the minimum: each duration by itself is right.
    fn check_timing(&mut self, settings: &mut Settings, standard: &Settings) {
        settings.timing = Timing::try_new(settings.durations()).unwrap_or_else(|_| {
            let names = ["drain-timeout", "min-drain-duration"];
            let spans = [settings.drain_timeout, settings.min_drain_duration];
            let [timeout, minimum] = [0, 1].map(|nth| {
                let Setting { value, source } = spans[nth];
                let value = duration::format(value);
                describe(names[nth], &Setting { value, source })
            });
            let detail =
                format!("{timeout} is less than {minimum}: raise the one or lower the other");
            self.reject_conflict(names, detail);
            settings.min_drain_duration = standard.min_drain_duration;
            settings.drain_timeout = standard.drain_timeout;
            Timing::try_new(settings.durations())
                .expect("the defaults fit together, and a Job's zero fits any of them")
        });
    }

    /// Refuses two values that do not fit together. Where one of them is a mere stand-in, and the pod
    /// is refused for that, whether they fit is not known yet.
    fn reject_conflict(&mut self, names: [&'static str; 2], detail: String) {
        let stands_in = |name| self.defaulted.0.contains(name);
        if self.on_invalid == OnInvalid::Warn || !names.iter().any(stands_in) {
            self.bad_values
                .push(Code::BadValue.diagnostic(detail).for_annotations(names));
        }
    }
}

/// Warns of a bad value, and tells what is used instead.
fn using_default(bad: &Diagnostic, settings: &Settings) -> Diagnostic {
    let used: Vec<_> = settings
        .rows()
        .into_iter()
        .filter(|setting| bad.keys.iter().any(|key| key == setting.name))
        .map(|setting| match &*setting.value {
            "" => "none".to_owned(),
            value => value.to_owned(),
        })
        .collect();
    let instead = match &used[..] {
        [] => "one is looked for".to_owned(),
        [default] => format!("the default {default} is used"),
        several => format!("the defaults {} are used", several.join(" and ")),
    };
    let detail = format!("{}; {instead}", bad.detail);
    Code::DefaultUsed
        .diagnostic(detail)
        .for_annotations(bad.keys.clone())
}

/// A setting, and who said so unless the pod's author did, who may not know of it.
fn describe(name: &str, Setting { value, source }: &Setting<impl fmt::Display>) -> String {
    match source {
        SettingSource::Annotation => format!("{name} {value}"),
        other => format!("{name} {value} ({other})"),
    }
}

fn parse_container_name(text: &str) -> Result<Option<String>, &'static str> {
    match text {
        "" => Err("invalid name ``: the name of a container"),
        name => Ok(Some(name.to_owned())),
    }
}

fn parse_native_sidecar(text: &str, in_job: bool) -> Result<NativeSidecar, String> {
    match text.parse()? {
        NativeSidecar::False if in_job => {
            Err("`false` in a Job, which would never complete: auto or true".to_owned())
        }
        form => Ok(form),
    }
}

fn parse_bounded_duration(text: &str) -> Result<Duration, String> {
    let span = duration::parse(text).map_err(|error| error.to_string())?;
    check_duration(text, span)
}

fn parse_bounded_idle_exit(text: &str) -> Result<Option<Duration>, String> {
    let span = parse_idle_exit(text).map_err(|error| error.to_string())?;
    span.map(|span| check_duration(text, span)).transpose()
}

fn check_duration(text: &str, span: Duration) -> Result<Duration, String> {
    if span <= MAX_DURATION {
        Ok(span)
    } else {
        Err(format!("invalid duration `{text}`: 24h at most"))
    }
}

fn parse_count(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("invalid number `{text}`: 0 or more"))
}

fn parse_positive_quantity(text: &str) -> Result<Quantity, String> {
    amounts::check_positive(parse_quantity(text)?).map_err(|error| error.to_string())
}

fn parse_memory_limit(text: &str) -> Result<Quantity, String> {
    amounts::check_memory_limit(parse_quantity(text)?).map_err(|error| error.to_string())
}

fn parse_quantity(text: &str) -> Result<Quantity, String> {
    let parsed: Result<_, InvalidQuantity> = text.parse();
    parsed.map_err(|error| error.to_string())
}
