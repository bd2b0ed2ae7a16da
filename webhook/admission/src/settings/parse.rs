//! Parses a pod's annotations into [`Settings`] and reports everything that is wrong with them at once.

use super::keys::{self, PREFIX};
use super::{NativeSidecar, SettingRow, SettingSource, Settings, all, definition};
use crate::diagnostics::{Code, Diagnostic};
use crate::pod::{Entries, PodView};
use crate::settings::defaults::{Defaults, OnInvalid};
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
    pub defaulted: DefaultedSettings,
}

/// Names of settings that have their default in place of a bad value.
#[derive(Debug, Default)]
pub(crate) struct DefaultedSettings(Vec<&'static str>);

// === impl ParsedSettings ===

impl ParsedSettings {
    /// Parses a pod's annotations over the values of its shutdown manager.
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
        let warnings = keys::lint_names(annotations.iter().map(|(key, _)| *key));
        let base = defaults.settings.for_pod(in_job);
        let mut parsed = Self {
            settings: base.clone(),
            bad_values: Vec::new(),
            warnings,
            defaulted: DefaultedSettings::default(),
        };
        let unused = parsed.settings.set_manager_defaults(manager_defaults);
        parsed.warnings.extend(unused);
        parsed.read(&annotations, in_job);
        let settings = &mut parsed.settings;
        let unused = settings.revert_manager_conflicts(manager_defaults, &base);
        parsed.warnings.extend(unused);
        parsed.revert_conflicts(&base, defaults.on_invalid);
        if defaults.on_invalid == OnInvalid::Warn {
            let settings = &parsed.settings;
            let bad_values = parsed.bad_values.drain(..);
            let bad_values = bad_values.map(|bad_value| using_default(&bad_value, settings));
            parsed.warnings.extend(bad_values);
        }
        parsed
    }

    /// Sets each setting that has an annotation with a valid value.
    fn read(&mut self, annotations: &[(&str, &str)], in_job: bool) {
        let Settings { values, sources } = &mut self.settings;
        for definition in all() {
            let name = definition.name;
            let Some((_, text)) = annotations.iter().find(|(key, _)| *key == name) else {
                continue;
            };
            let parsed = keys::parse_value(name, text, |text| {
                let set = definition.value(values).set(text);
                set.map_err(|error| error.to_string())?;
                if in_job && values.native_sidecar == NativeSidecar::False {
                    values.native_sidecar = NativeSidecar::Auto;
                    let error = "`false` in a Job, which would never complete: auto or true";
                    return Err(error.to_owned());
                }
                Ok(())
            });
            match parsed {
                Ok(()) => drop(sources.insert(name, SettingSource::Annotation)),
                Err(bad_value) => {
                    self.bad_values.push(bad_value);
                    self.defaulted.0.push(name);
                }
            }
        }
    }

    /// Reverts both settings of each conflict to their value in `base`.
    fn revert_conflicts(&mut self, base: &Settings, on_invalid: OnInvalid) {
        let conflicts: Vec<_> = self.settings.conflicts().collect();
        for conflict in conflicts {
            // The pod is denied for a bad value, whose default the other setting need not fit.
            let is_defaulted = |name| self.defaulted.0.contains(name);
            if on_invalid == OnInvalid::Warn || !conflict.names.iter().any(is_defaulted) {
                let detail = conflict.describe(|name| self.settings.describe(name));
                let bad_value = Code::BadValue.diagnostic(detail);
                let bad_value = bad_value.for_annotations(conflict.names);
                self.bad_values.push(bad_value);
            }
            for name in conflict.names {
                self.settings.revert(name, base);
            }
        }
    }
}

// === impl Settings ===

impl Settings {
    /// The value of a setting, and its source unless that is the annotation, which the pod's author knows.
    pub(super) fn describe(&self, name: &str) -> String {
        match (self.format(name), self.source(name)) {
            (value, SettingSource::Annotation) => value,
            (value, source) => format!("{value} ({source})"),
        }
    }

    /// Reverts a setting to its value and its source in `base`.
    pub(super) fn revert(&mut self, name: &'static str, base: &Self) {
        let value = definition(name).value(&mut self.values);
        let set = value.set(&base.format(name));
        set.expect("a formatted value parses");
        self.sources.insert(name, base.source(name));
    }
}

// === impl DefaultedSettings ===

impl DefaultedSettings {
    /// Returns true if the cause of the diagnostic may be a setting that has its default in place of a bad value.
    pub(crate) fn may_have_caused(&self, diagnostic: &Diagnostic) -> bool {
        let causes: &[_] = match diagnostic.code {
            Code::SocketNotMounted | Code::SocketUserUnknown | Code::AdminNotRead => {
                &["envoy-container", "admin-address"]
            }
            Code::PortTaken => &["port", "admin-address"],
            Code::ShortDrainTime | Code::DrainTimeOfUpdates => {
                &["envoy-container", "drain-timeout"]
            }
            Code::NoEnvoy
            | Code::SeveralEnvoys
            | Code::EnvoyGuessed
            | Code::DrainFlagsNotAdded
            | Code::NoExtraHook
            | Code::OwnHookKept
            | Code::EnvoyIsOnlyContainer
            | Code::EnvoyRestartPolicy
            | Code::EnvoyStartsFirst
            | Code::NamedPortOfNativeEnvoy => &["envoy-container"],
            Code::PlainSidecarOfNativeEnvoy => &["native-sidecar"],
            Code::EnvoyGatewayPod | Code::ContourPod => &["adopt"],
            _ => &[],
        };
        causes.iter().any(|name| self.0.contains(name))
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
