//! The values of an adopted shutdown manager, which are defaults of the pod's settings. None of them is a reason to deny
//! the pod: one that is invalid, or contradicts other settings, is left out with a warning.

use super::{SettingSource, Settings, definition};
use crate::diagnostics::{Code, Diagnostic};
use crate::shutdown_manager::ManagerDefault;

// === impl Settings ===

impl Settings {
    /// Makes the manager's values the defaults.
    pub(super) fn set_manager_defaults(&mut self, defaults: &[ManagerDefault]) -> Vec<Diagnostic> {
        let set = |default: &ManagerDefault| {
            let name = default.setting;
            let set = definition(name).value(&mut self.values).set(&default.value);
            if set.is_ok() {
                self.sources.insert(name, SettingSource::ShutdownManager);
            }
            Some(unused(&default.origin, &set.err()?.to_string()))
        };
        defaults.iter().filter_map(set).collect()
    }

    /// Reverts the manager's values that contradict other settings to those in `base`.
    pub(super) fn revert_manager_conflicts(
        &mut self,
        defaults: &[ManagerDefault],
        base: &Self,
    ) -> Vec<Diagnostic> {
        let conflicts: Vec<_> = self.conflicts().collect();
        let mut warnings = Vec::new();
        for conflict in conflicts {
            let reason = conflict.describe(|name| self.describe(name));
            for name in conflict.names {
                if self.source(name) == SettingSource::ShutdownManager {
                    let default = defaults.iter().rfind(|it| it.setting == name);
                    let origin = default.map_or(name, |default| &default.origin);
                    warnings.push(unused(origin, &reason).for_annotations([name]));
                    self.revert(name, base);
                }
            }
        }
        warnings
    }
}

fn unused(origin: &str, reason: &str) -> Diagnostic {
    let detail = format!("`{origin}` of the shutdown manager is not used: {reason}");
    Code::ManagerValueUnused.diagnostic(detail)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::pod::PodView;
    use crate::settings::ParsedSettings;
    use crate::settings::defaults::Defaults;

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
            (parsed.settings.format(name), source)
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
                    "`--drain-timeout=5s` of the shutdown manager is not used: drain-timeout 5s (shutdown manager) is less than min-drain-duration 10s (installation default): raise the one or lower the other",
                ],
            ),
            // Both are the manager's.
            (
                &[("drain-timeout", "5s"), ("min-drain-duration", "6s")],
                &[],
                [("60s", Default), ("10s", Default)],
                vec![
                    "`--drain-timeout=5s` of the shutdown manager is not used: drain-timeout 5s (shutdown manager) is less than min-drain-duration 6s (shutdown manager): raise the one or lower the other",
                    "`--min-drain-duration=6s` of the shutdown manager is not used: drain-timeout 5s (shutdown manager) is less than min-drain-duration 6s (shutdown manager): raise the one or lower the other",
                ],
            ),
            // With an annotation, which stays.
            (
                &[("drain-timeout", "20s")],
                &[("min-drain-duration", "30s")],
                [("60s", Default), ("30s", Annotation)],
                vec![
                    "`--drain-timeout=20s` of the shutdown manager is not used: drain-timeout 20s (shutdown manager) is less than min-drain-duration 30s: raise the one or lower the other",
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
                    "`--drain-timeout=48h` of the shutdown manager is not used: invalid duration `48h`: must be at most 24h",
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
