//! Parses a pod's annotations into [`Settings`] and reports everything that is wrong with them at once.
//!
//! The values of an adopted shutdown manager are defaults of the pod's settings. None of them is a reason to deny the
//! pod: one that is invalid, or contradicts other settings, is left out with a warning.

use std::time::Duration;

use drainer::duration;

use super::{
    Defaults, NativeSidecar, OnInvalid, SettingRow, SettingSource, Settings, all, definition,
};
use crate::diagnostics::{Code, Diagnostic};
use crate::excerpt::excerpt;
use crate::names::PREFIX;
use crate::pod::{Entries, PodView};
use crate::shutdown_manager::ManagerDefault;

/// The settings of a pod, and the diagnostics of its annotations.
#[derive(Debug)]
pub(crate) struct ParsedSettings {
    /// The settings, with the default in place of each bad value.
    pub settings: Settings,
    /// The bad values for which the pod is denied.
    pub bad_values: Vec<Diagnostic>,
    /// The unknown keys, and the bad values for which the pod is not denied.
    pub warnings: Vec<Diagnostic>,
    /// The settings that have their default in place of a bad value.
    pub defaulted: Vec<&'static str>,
}

// === impl ParsedSettings ===

impl ParsedSettings {
    /// Parses a pod's annotations over the values of its shutdown manager. `in_job` is true for a pod that is known to
    /// belong to a Job.
    pub(crate) fn parse(
        pod: &PodView<'_>,
        in_job: bool,
        defaults: &Defaults,
        manager_defaults: &[ManagerDefault],
    ) -> Self {
        let annotations: Vec<_> = pod
            .annotations()
            .into_iter()
            .flat_map(Entries::iter)
            .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)))
            .collect();
        let warnings = lint_names(annotations.iter().map(|(key, _)| *key));
        let completes = in_job || pod.runs_to_completion();
        let serves_itself = in_job || completes && !pod.has_readiness_probe();
        let is_server = annotations
            .iter()
            .any(|(key, _)| *key == "server-container");
        let base = defaults.settings.for_pod(serves_itself, is_server);
        let mut parsed = Self {
            settings: base.clone(),
            bad_values: Vec::new(),
            warnings,
            defaulted: Vec::new(),
        };
        parsed.set_manager_defaults(manager_defaults);
        parsed.read(&annotations, completes);
        parsed.cap(defaults, &base);
        let grace = Duration::from_secs(pod.grace_period().try_into().unwrap_or(0));
        let settings = &mut parsed.settings;
        settings.extend_drain_timeout(grace, defaults.grace_margin);
        parsed.cap(defaults, &base);
        // Once more, since an annotation may also contradict the default that comes in place of the manager's value.
        for _ in 0..2 {
            parsed.revert_conflicts(manager_defaults, &base, defaults.on_invalid);
        }
        if defaults.on_invalid == OnInvalid::Warn {
            let settings = &parsed.settings;
            let bad_values = parsed.bad_values.drain(..);
            let bad_values = bad_values.map(|bad_value| using_default(&bad_value, settings));
            parsed.warnings.extend(bad_values);
        }
        parsed
    }

    /// Sets each setting that has an annotation with a valid value.
    fn read(&mut self, annotations: &[(&str, &str)], completes: bool) {
        let Settings { values, sources } = &mut self.settings;
        for definition in all() {
            let name = definition.name;
            let Some((_, text)) = annotations.iter().find(|(key, _)| *key == name) else {
                continue;
            };
            let parsed = parse_value(name, text, |text| {
                let set = (definition.value)(values).set(text);
                set.map_err(|error| error.to_string())?;
                if completes && values.native_sidecar == NativeSidecar::False {
                    values.native_sidecar = NativeSidecar::Auto;
                    let error = "`false` in a pod that runs to completion, which it never would: expected auto or true";
                    return Err(error.to_owned());
                }
                Ok(())
            });
            match parsed {
                Ok(()) => drop(sources.insert(name, SettingSource::Annotation)),
                Err(bad_value) => {
                    self.bad_values.push(bad_value);
                    self.defaulted.push(name);
                }
            }
        }
    }

    /// Makes the manager's values the defaults.
    fn set_manager_defaults(&mut self, defaults: &[ManagerDefault]) {
        let Settings { values, sources } = &mut self.settings;
        for default in defaults {
            let name = default.setting;
            match (definition(name).value)(values).set(&default.value) {
                Ok(()) => drop(sources.insert(name, SettingSource::ShutdownManager)),
                Err(error) => self
                    .warnings
                    .push(unused(&default.origin, &error.to_string())),
            }
        }
    }

    /// Caps each value above the installation's maximum, with a warning; one that is annotated is a bad value, unless the
    /// installation only warns.
    fn cap(&mut self, defaults: &Defaults, base: &Settings) {
        let mut timing = self.settings.values.drain.timing;
        for (name, maximum, value) in defaults.maxima.of(&mut timing) {
            if *value <= maximum {
                continue;
            }
            let source = self.settings.source(name);
            let limit = format!(
                "the installation's maximum is {}",
                duration::format(maximum)
            );
            let detail = format!("`{name}` {}: {limit}", self.settings.describe(name));
            if source == SettingSource::Annotation && defaults.on_invalid == OnInvalid::Deny {
                let detail = format!("`{PREFIX}{name}`: {}: {limit}", duration::format(*value));
                self.bad_values.push(Code::BadValue.about(name, detail));
                self.defaulted.push(name);
                self.settings.revert(name, base);
            } else {
                let detail = format!("{detail}, which is used");
                self.warnings.push(Code::AboveMaximum.about(name, detail));
                let setting = (definition(name).value)(&mut self.settings.values);
                let set = setting.set(&duration::format(maximum).to_string());
                set.expect("a formatted value parses");
            }
        }
    }

    /// Reverts the manager's values of each conflict to those in `base`; both values if none is the manager's.
    fn revert_conflicts(
        &mut self,
        manager_defaults: &[ManagerDefault],
        base: &Settings,
        on_invalid: OnInvalid,
    ) {
        let conflicts: Vec<_> = self.settings.values.conflicts().collect();
        for conflict in conflicts {
            let reason = conflict.describe(|name| self.settings.describe(name));
            let of_manager =
                |name: &&str| self.settings.source(name) == SettingSource::ShutdownManager;
            let mut reverted = Vec::from(conflict.names);
            reverted.retain(of_manager);
            for name in &reverted {
                let default = manager_defaults.iter().rfind(|it| it.setting == *name);
                let origin = default.map_or(*name, |default| &default.origin);
                let unused = unused(origin, &reason).for_annotations([*name]);
                self.warnings.push(unused);
            }
            if reverted.is_empty() {
                reverted.extend(conflict.names);
                // The pod is denied for a bad value, whose default the other setting need not fit.
                let is_defaulted = |name| self.defaulted.contains(name);
                if on_invalid == OnInvalid::Warn || !conflict.names.iter().any(is_defaulted) {
                    let bad_value = Code::BadValue.diagnostic(reason);
                    let bad_value = bad_value.for_annotations(conflict.names);
                    self.bad_values.push(bad_value);
                }
            }
            for name in reverted {
                self.settings.revert(name, base);
            }
        }
    }
}

// === impl Settings ===

impl Settings {
    /// The value of a setting, and its source unless that is the annotation, which the pod's author knows.
    pub(super) fn describe(&self, name: &str) -> String {
        match (self.values.format(name), self.source(name)) {
            (value, SettingSource::Annotation) => value,
            (value, source) => format!("{value} ({source})"),
        }
    }

    /// Reverts a setting to its value and its source in `base`.
    pub(super) fn revert(&mut self, name: &'static str, base: &Self) {
        let value = (definition(name).value)(&mut self.values);
        let set = value.set(&base.values.format(name));
        set.expect("a formatted value parses");
        self.sources.insert(name, base.source(name));
    }
}

/// The warning about a bad value, with the value that is used instead.
fn using_default(bad_value: &Diagnostic, settings: &Settings) -> Diagnostic {
    let mut rows = settings.rows();
    rows.retain(|row| bad_value.keys.iter().any(|key| key == row.name));
    let value = |row: &SettingRow| match &*row.value {
        "" => "none".to_owned(),
        value => value.to_owned(),
    };
    let defaults: Vec<_> = rows.iter().map(value).collect();
    let instead = match &defaults[..] {
        [] => "it is detected instead".to_owned(),
        [default] => format!("the default {default} is used"),
        several => format!("the defaults {} are used", several.join(" and ")),
    };
    let detail = format!("{}; {instead}", bad_value.detail);
    let warning = Code::DefaultUsed.diagnostic(detail);
    warning.for_annotations(bad_value.keys.clone())
}

fn unused(origin: &str, reason: &str) -> Diagnostic {
    let detail = format!("`{origin}` of the shutdown manager is not used: {reason}");
    Code::ManagerValueUnused.diagnostic(detail)
}

/// Minimum Jaro–Winkler similarity (0–1) to suggest a known key.
const SIMILARITY: f64 = 0.85;

/// Maximum length of an annotation's name, in bytes. The similarity of longer names would be expensive to compute.
/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/#syntax-and-character-set>
const MAX_NAME_LEN: usize = 63;

/// Maximum length of an annotation's key with its prefix, in bytes. Messages truncate longer ones.
const MAX_KEY_LEN: usize = 253 + 1 + MAX_NAME_LEN;

/// Maximum length of an annotation's value, in bytes. Valid values are much shorter, and a message that repeats a
/// longer one is of no use.
const MAX_VALUE_LEN: usize = 1024;

/// Parses the value of the annotation `name` under [`PREFIX`].
pub fn parse_value<T>(
    name: &str,
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Diagnostic> {
    let parsed = match text.len() {
        ..=MAX_VALUE_LEN => parse(text),
        long => Err(format!(
            "a value of {long} bytes: the limit is {MAX_VALUE_LEN}"
        )),
    };
    parsed.map_err(|error| {
        let detail = format!("`{PREFIX}{name}`: {error}");
        Code::BadValue.about(name, detail)
    })
}

/// Parses the value of `inject`: true if it requests a drainer.
pub fn inject_requested(text: &str) -> Result<bool, Diagnostic> {
    parse_value("inject", text, |text| match text {
        "true" | "enabled" => Ok(true),
        "false" | "disabled" => Ok(false),
        other => Err(format!(
            "invalid value `{other}`: \"true\" requests a drainer, \"false\" does not"
        )),
    })
}

/// The number of unknown or misplaced keys that are reported of one object or pod, and compared with the known ones,
/// which takes time. More of them are an attack rather than mistakes.
pub(crate) const MAX_REPORTED_KEYS: usize = 32;

/// Warns about the unknown ones of a pod's annotations under [`PREFIX`], at most `MAX_REPORTED_KEYS`.
pub fn lint_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Diagnostic> {
    let unknown = names.filter_map(lint_name);
    unknown.take(MAX_REPORTED_KEYS).collect()
}

/// Warns about an unknown annotation under [`PREFIX`], with the nearest known key.
pub(crate) fn lint_name(key: &str) -> Option<Diagnostic> {
    let mut known = setting_names().chain(["inject", "status"]);
    if known.any(|name| name == key) {
        return None;
    }
    let key = excerpt(key, MAX_KEY_LEN);
    let detail = match closest(&key) {
        Some(name) => format!("unknown annotation `{PREFIX}{key}`: did you mean `{name}`?"),
        None => format!("unknown annotation `{PREFIX}{key}`"),
    };
    Some(Code::UnknownKey.about(key, detail))
}

pub(crate) fn is_setting(name: &str) -> bool {
    setting_names().any(|known| known == name)
}

fn setting_names() -> impl Iterator<Item = &'static str> {
    all().iter().map(|definition| definition.name)
}

/// The known key that is nearest to `key`, if it is similar enough.
fn closest(key: &str) -> Option<&'static str> {
    if key.len() > MAX_NAME_LEN {
        return None;
    }
    let known = setting_names().chain(["inject"]);
    let rated = known.map(|name| (strsim::jaro_winkler(key, name), name));
    let similar = rated.filter(|(similarity, _)| *similarity > SIMILARITY);
    let (_, closest) = similar.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(closest)
}

#[cfg(test)]
mod manager_tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::pod::PodView;
    use crate::settings::Defaults;
    use crate::settings::parse::ParsedSettings;

    /// The values of these settings with their sources, and the details of the warnings.
    fn parse(
        manager: &[(&'static str, &str)],
        annotations: &[(&str, &str)],
        shown: &[&str],
    ) -> (Vec<(String, SettingSource)>, Vec<String>) {
        let defaults: Vec<_> = manager
            .iter()
            .map(|(name, value)| ManagerDefault {
                setting: name,
                value: (*value).to_owned(),
                origin: format!("--{name}={value}"),
            })
            .collect();
        let annotations = annotations.iter();
        let annotations: Map<_, _> = annotations
            .map(|(name, value)| (format!("envoy-drainer.dev/{name}"), json!(value)))
            .collect();
        let pod = json!({"metadata": {"annotations": Value::from(annotations)}}).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let parsed = ParsedSettings::parse(&pod, false, &Defaults::new("", ""), &defaults);
        assert_eq!(parsed.bad_values, []);
        let settings = shown.iter().map(|name| {
            let source = parsed.settings.source(name);
            (parsed.settings.values.format(name), source)
        });
        let warnings = parsed.warnings.into_iter();
        let warnings = warnings.map(|warning| {
            assert_eq!(warning.code, Code::ManagerValueUnused);
            warning.detail
        });
        (settings.collect(), warnings.collect())
    }

    #[test]
    fn annotations_win_over_the_manager() {
        let shown = ["drain-timeout", "min-drain-duration", "drain-delay"];
        let manager = [("drain-timeout", "30s"), ("min-drain-duration", "15s")];
        let (settings, warnings) = parse(&manager, &[("drain-timeout", "40s")], &shown);
        let want = [
            ("40s", SettingSource::Annotation),
            ("15s", SettingSource::ShutdownManager),
            ("0s", SettingSource::Default),
        ];
        let want = want.map(|(value, source)| (value.to_owned(), source));
        assert_eq!((settings, warnings), (want.to_vec(), vec![]));
    }

    #[test]
    fn contradictory_values_of_the_manager_are_left_out() {
        use SettingSource::{Annotation, Default, ShutdownManager};
        let shown = ["drain-timeout", "min-drain-duration"];
        let table = [
            // Over the installation's default.
            (
                &[("drain-timeout", "5s")][..],
                &[][..],
                [("60s", Default), ("10s", Default)],
                vec![
                    "`--drain-timeout=5s` of the shutdown manager is not used: drain-timeout 5s (shutdown manager) is \
                     less than min-drain-duration 10s (installation default): raise the one or lower the other",
                ],
            ),
            // Both are the manager's.
            (
                &[("drain-timeout", "5s"), ("min-drain-duration", "6s")],
                &[],
                [("60s", Default), ("10s", Default)],
                vec![
                    "`--drain-timeout=5s` of the shutdown manager is not used: drain-timeout 5s (shutdown manager) is \
                     less than min-drain-duration 6s (shutdown manager): raise the one or lower the other",
                    "`--min-drain-duration=6s` of the shutdown manager is not used: drain-timeout 5s (shutdown \
                     manager) is less than min-drain-duration 6s (shutdown manager): raise the one or lower the other",
                ],
            ),
            // With an annotation, which stays.
            (
                &[("drain-timeout", "20s")],
                &[("min-drain-duration", "30s")],
                [("60s", Default), ("30s", Annotation)],
                vec![
                    "`--drain-timeout=20s` of the shutdown manager is not used: drain-timeout 20s (shutdown manager) \
                     is less than min-drain-duration 30s: raise the one or lower the other",
                ],
            ),
            // What contradicts only the installation's default does not matter beside the manager's other value.
            (
                &[("drain-timeout", "5s"), ("min-drain-duration", "2s")],
                &[],
                [("5s", ShutdownManager), ("2s", ShutdownManager)],
                vec![],
            ),
            (
                &[("min-drain-duration", "2s")],
                &[("drain-timeout", "5s")],
                [("5s", Annotation), ("2s", ShutdownManager)],
                vec![],
            ),
            // Invalid for the setting.
            (
                &[("drain-timeout", "48h")],
                &[],
                [("60s", Default), ("10s", Default)],
                vec![
                    "`--drain-timeout=48h` of the shutdown manager is not used: invalid duration `48h`: must be at \
                     most 24h",
                ],
            ),
        ];
        for (manager, annotations, want, details) in table {
            let want = want
                .map(|(value, source)| (value.to_owned(), source))
                .to_vec();
            let got = parse(manager, annotations, &shown);
            assert_eq!(got.0, want, "{manager:?} {annotations:?}");
            assert_eq!(got.1, details, "{manager:?} {annotations:?}");
        }
    }
}

#[cfg(test)]
mod keys_tests {
    use super::*;

    #[test]
    fn unknown_key_suggests_the_closest() {
        let table = [
            ("inject", None),
            ("status", None),
            ("drain-timeout", None),
            ("injct", Some("did you mean `inject`?")),
            ("injekt", Some("did you mean `inject`?")),
            (
                "other",
                Some("unknown annotation `envoy-drainer.dev/other`"),
            ),
        ];
        for (name, want) in table {
            let detail = lint_name(name).map(|diagnostic| diagnostic.detail);
            match (&detail, want) {
                (Some(detail), Some(want)) => assert!(detail.ends_with(want), "{detail}"),
                _ => assert_eq!(detail.as_deref(), want, "{name}"),
            }
        }
    }
}

#[cfg(test)]
mod pod_tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::Maxima;

    #[test]
    fn pod_that_runs_to_completion_is_not_always_a_jobs() {
        let probed = json!({"readinessProbe": {"httpGet": {"port": 80}}});
        for (policy, in_job, envoy, minimum, allows_plain) in [
            (json!(null), false, json!({}), "10s", true),
            (json!("Always"), false, json!({}), "10s", true),
            (json!("Never"), false, json!({}), "0s", false),
            (json!("OnFailure"), false, json!({}), "0s", false),
            (json!("Never"), false, probed.clone(), "10s", false),
            (json!("Never"), true, probed, "0s", false),
            (json!(null), true, json!({}), "0s", false),
        ] {
            let annotations = json!({"envoy-drainer.dev/native-sidecar": "false"});
            let pod = json!({"metadata": {"annotations": annotations},
                "spec": {"restartPolicy": policy, "containers": [envoy]}});
            let text = pod.to_string();
            let view = PodView::decode(&text).unwrap();
            let parsed = ParsedSettings::parse(&view, in_job, &Defaults::new("", ""), &[]);
            let value = parsed.settings.values.format("min-drain-duration");
            assert_eq!(
                (&*value, parsed.bad_values.is_empty()),
                (minimum, allows_plain),
                "{pod}"
            );
        }
    }

    /// The values of the maxima's settings, and the details of bad values and warnings.
    fn limited(
        annotations: &Value,
        grace: i64,
        manager: &[(&'static str, &str)],
        on_invalid: OnInvalid,
    ) -> (String, Vec<String>, Vec<String>) {
        let secs = Duration::from_secs;
        let defaults = Defaults {
            maxima: Maxima {
                drain_delay: secs(30),
                wait_for_replacement: secs(60),
                drain_timeout: secs(120),
            },
            on_invalid,
            ..Defaults::new("", "")
        };
        let manager = manager.iter().map(|(setting, value)| ManagerDefault {
            setting,
            value: (*value).to_owned(),
            origin: String::new(),
        });
        let manager: Vec<_> = manager.collect();
        let spec = json!({"terminationGracePeriodSeconds": grace});
        let pod = json!({"metadata": {"annotations": annotations}, "spec": spec}).to_string();
        let pod = PodView::decode(&pod).unwrap();
        let parsed = ParsedSettings::parse(&pod, false, &defaults, &manager);
        let names = ["drain-delay", "wait-for-replacement", "drain-timeout"];
        let values = names.map(|name| parsed.settings.values.format(name));
        let details = |all: Vec<Diagnostic>, code| {
            let checked = all.into_iter().map(|it| {
                assert_eq!(it.code, code);
                it.detail
            });
            checked.collect()
        };
        (
            values.join(" "),
            details(parsed.bad_values, Code::BadValue),
            details(parsed.warnings, Code::AboveMaximum),
        )
    }

    #[test]
    fn values_above_the_maximum_are_denied_or_capped() {
        let annotations = json!({
            "envoy-drainer.dev/drain-delay": "5m",
            "envoy-drainer.dev/wait-for-replacement": "60s",
            "envoy-drainer.dev/drain-timeout": "1h",
        });
        let (values, bad_values, warnings) = limited(&annotations, 30, &[], OnInvalid::Deny);
        assert_eq!((&*values, warnings), ("0s 60s 60s", vec![]));
        let detail = |name: &str, value: &str, maximum: &str| {
            format!("`envoy-drainer.dev/{name}`: {value}: the installation's maximum is {maximum}")
        };
        let want = [
            detail("drain-delay", "300s", "30s"),
            detail("drain-timeout", "3600s", "120s"),
        ];
        assert_eq!(bad_values, want);
        let (values, bad_values, warnings) = limited(&annotations, 30, &[], OnInvalid::Warn);
        assert_eq!((&*values, bad_values), ("30s 60s 120s", vec![]));
        let want = "`drain-delay` 300s: the installation's maximum is 30s, which is used";
        assert_eq!((warnings.len(), &*warnings[0]), (2, want));
    }

    #[test]
    fn derived_and_adopted_values_are_capped() {
        let none = json!({});
        for (grace, manager, want, warned) in [
            (30, &[][..], "0s 0s 60s", false),
            (120, &[], "0s 0s 105s", false),
            (930, &[], "0s 0s 120s", true),
            (30, &[("drain-timeout", "10m")], "0s 0s 120s", true),
            (30, &[("drain-delay", "1m")], "30s 0s 60s", true),
        ] {
            let (values, bad_values, warnings) = limited(&none, grace, manager, OnInvalid::Deny);
            assert_eq!(
                (&*values, bad_values),
                (want, vec![]),
                "{grace} {manager:?}"
            );
            assert_eq!(!warnings.is_empty(), warned, "{grace} {manager:?}");
        }
    }
}
