//! The settings of a pod: its annotations over the installation's defaults.

mod choices;
pub(crate) mod defaults;
mod hooked_containers;
pub mod keys;
mod manager;
mod parse;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::ops::Deref;
use std::sync::LazyLock;
use std::time::Duration;

use drainer::settings::{DrainSettingsMut, drain_setting_definitions};
use drainer::{
    DrainSettings, Durations, InvalidValue, SettingConflict, SettingDefinition, SettingValue,
    Timing,
};
use serde::Serialize;
use strum::Display;

use super::quantity::DrainerResources;

pub use choices::{DrainStrategy, ExistingHook, NativeSidecar, Switch};
pub use hooked_containers::HookedContainers;
pub(super) use hooked_containers::MAX_HOOKED_CONTAINERS;
pub(super) use parse::ParsedSettings;

/// The value of every setting, each valid by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSettings {
    /// The settings that the drainer reads, but for the durations. Its admin address is the one to use where none is
    /// detected.
    pub drain: DrainSettings,
    pub durations: Durations,
    pub envoy_container: ContainerName,
    pub native_sidecar: NativeSidecar,
    /// What happens to a preStop hook of Envoy's container.
    pub existing_hook: ExistingHook,
    /// The strategy of Envoy's own drain.
    pub drain_strategy: DrainStrategy,
    /// The containers besides Envoy's that wait for the drain.
    pub hooked_containers: HookedContainers,
    /// Whether Envoy's container becomes a native sidecar.
    pub envoy_native_sidecar: Switch,
    /// What happens to a shutdown manager.
    pub adopt: Switch,
    /// The drainer's CPU and memory.
    pub resources: DrainerResources,
}

/// [`PodSettings`] that are valid together, each with its source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    values: PodSettings,
    /// The sources other than [`SettingSource::Default`], by setting.
    sources: BTreeMap<&'static str, SettingSource>,
}

/// Where a setting's value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum SettingSource {
    #[strum(to_string = "installation default")]
    Default,
    #[strum(to_string = "default in a Job")]
    JobDefault,
    /// The next port that is free in the pod, since the default port is not.
    #[strum(to_string = "next free port")]
    NextFree,
    /// The shutdown manager that the drainer takes the place of.
    #[strum(to_string = "shutdown manager")]
    ShutdownManager,
    /// The pod's annotation.
    Annotation,
}

/// A setting as `explain` reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingRow {
    /// The annotation's name without the prefix.
    #[serde(skip)]
    pub name: &'static str,
    /// The value in the notation of the annotation.
    pub value: String,
    /// Where the value is from.
    pub source: SettingSource,
}

/// `envoy-container`; `None` if it is to be detected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerName(pub Option<String>);

/// Settings that are detected in the pod if no annotation sets them, so that [`Settings::rows`] has no value for them.
const DETECTED: [&str; 2] = ["envoy-container", "admin-address"];

/// The settings that only the webhook reads: name, placeholder for the value, help, help of the webhook's flag if it has
/// one, field.
macro_rules! rows {
    ($($name:literal $value:literal $help:literal $(flag $flag:literal)? |$s:ident| $field:expr;)*) => {
        [$(SettingDefinition::<PodSettings>::new($name, $value, $help, |$s| &mut $field)$(.with_flag($flag))?),*]
    };
}

static ALL: LazyLock<Vec<SettingDefinition<PodSettings>>> = LazyLock::new(|| {
    let mut all = Vec::from(rows! {
        "envoy-container" "NAME"
            "Name of Envoy's container, which may also be one that a later webhook adds."
            |s| s.envoy_container;
    });
    all.extend(drain_setting_definitions());
    all.extend(rows! {
        "native-sidecar" "BOOL"
            "Whether the drainer is a native sidecar: true, false, or auto for the installation's default."
            flag "Whether drainers are injected as native sidecars (init containers with restartPolicy: Always)."
            |s| s.native_sidecar;
        "existing-hook" "ACTION"
            "What to do if Envoy's container has a preStop hook: keep it and inject no drainer, or replace it."
            |s| s.existing_hook;
        "drain-strategy" "STRATEGY"
            "Strategy with which Envoy is started, immediate or gradual; it matters to MODIFY_ONLY and QUIC listeners."
            |s| s.drain_strategy;
        "extra-lifecycle-hooks" "LIST"
            "Other containers that get SIGTERM only after the drain, such as an app behind Envoy: names, comma-separated, or * for all."
            |s| s.hooked_containers;
        "envoy-native-sidecar" "BOOL"
            "With true, Envoy's container becomes a native sidecar, which Kubernetes ends after the pod's containers."
            |s| s.envoy_native_sidecar;
        "adopt" "BOOL"
            "With true, the drainer takes the place of the shutdown manager of Envoy Gateway or Contour."
            |s| s.adopt;
        "cpu-request" "QUANTITY" "CPU request of the drainer." flag "CPU request of the drainer."
            |s| s.resources.cpu_request;
        "memory-request" "QUANTITY" "Memory request of the drainer." flag "Memory request of the drainer."
            |s| s.resources.memory_request;
        "cpu-limit" "QUANTITY" "CPU limit of the drainer." flag "CPU limit of the drainer."
            |s| s.resources.cpu_limit;
        "memory-limit" "QUANTITY"
            "Memory limit of the drainer, at least 24Mi." flag "Memory limit of the drainer, at least 24Mi."
            |s| s.resources.memory_limit;
    });
    all
});

/// Every setting, in the order of the documentation.
pub fn all() -> &'static [SettingDefinition<PodSettings>] {
    &ALL
}

/// The setting of this name.
fn definition(name: &str) -> &'static SettingDefinition<PodSettings> {
    let mut all = all().iter();
    all.find(|definition| definition.name == name)
        .expect("callers name settings of the table")
}

// === impl PodSettings ===

impl PodSettings {
    /// Formats the value of a setting.
    fn format(&self, name: &str) -> String {
        definition(name).value(&mut self.clone()).format()
    }

    /// The settings whose values contradict each other.
    fn conflicts(&self) -> impl Iterator<Item = SettingConflict> {
        let durations = self.durations.conflict().into_iter();
        durations.chain(self.resources.conflicts())
    }
}

impl DrainSettingsMut for PodSettings {
    fn drain_settings(&mut self) -> &mut DrainSettings {
        &mut self.drain
    }

    fn durations(&mut self) -> &mut Durations {
        &mut self.durations
    }
}

// === impl Settings ===

impl Settings {
    /// Validates the defaults of an installation.
    ///
    /// # Errors
    /// With all reasons why they are not valid together.
    pub fn try_new(values: PodSettings) -> Result<Self, Vec<String>> {
        let built_in = PodSettings::default();
        let with_default_note = |name| match values.format(name) {
            value if value == built_in.format(name) => format!("{value} (built-in default)"),
            value => value,
        };
        let conflicts = values.resources.conflicts();
        let conflicts: Vec<_> = conflicts.map(|it| it.describe(with_default_note)).collect();
        let mut errors = Timing::try_new(values.durations).err().unwrap_or_default();
        errors.extend(conflicts);
        if !errors.is_empty() {
            return Err(errors);
        }
        let sources = BTreeMap::new();
        Ok(Self { values, sources })
    }

    /// Turns an installation's defaults into the settings of a pod without annotations.
    fn for_pod(&self, in_job: bool) -> Self {
        let mut settings = self.clone();
        settings.values.native_sidecar = NativeSidecar::Auto;
        if in_job {
            // The clients of a Job's Envoy are the containers of its pod, which have ended.
            settings.values.durations.min_drain_duration = Duration::ZERO;
            settings.values.durations.quiet_period = Duration::ZERO;
            for name in ["min-drain-duration", "quiet-period"] {
                settings.sources.insert(name, SettingSource::JobDefault);
            }
        }
        settings
    }

    #[must_use]
    pub fn timing(&self) -> Timing {
        Timing::try_new(self.durations).expect("settings are valid together")
    }

    /// Where the value of a setting is from.
    #[must_use]
    pub fn source(&self, name: &str) -> SettingSource {
        let source = self.sources.get(name).copied();
        source.unwrap_or(SettingSource::Default)
    }

    /// Moves the drainer to a free port, if that is another.
    pub(super) fn use_free_port(&mut self, port: NonZeroU16) {
        if port != self.drain.port {
            self.values.drain.port = port;
            self.sources.insert("port", SettingSource::NextFree);
        }
    }

    /// Sets `wait-for-replacement` to none, since the webhook cannot answer.
    pub(super) fn drop_replacement_wait(&mut self) {
        self.values.durations.wait_for_replacement = Duration::ZERO;
        self.sources.remove("wait-for-replacement");
    }

    /// The settings in the order of the documentation, except those that are detected.
    #[must_use]
    pub fn rows(&self) -> Vec<SettingRow> {
        let mut values = self.values.clone();
        let rows = all().iter().map(|definition| SettingRow {
            name: definition.name,
            value: definition.value(&mut values).format(),
            source: self.source(definition.name),
        });
        rows.filter(|row| !DETECTED.contains(&row.name)).collect()
    }
}

impl Deref for Settings {
    type Target = PodSettings;

    fn deref(&self) -> &PodSettings {
        &self.values
    }
}

// === impl SettingValue ===

impl SettingValue for ContainerName {
    fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
        if text.is_empty() {
            let wanted = "must be the name of a container";
            return Err(InvalidValue::new("name", text, wanted));
        }
        self.0 = Some(text.to_owned());
        Ok(())
    }

    fn format(&self) -> String {
        self.0.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of `[cpu-request, cpu-limit, memory-request, memory-limit]` as an installation's defaults.
    fn errors(amounts: [&str; 4]) -> Vec<String> {
        let names = ["cpu-request", "cpu-limit", "memory-request", "memory-limit"];
        let mut values = PodSettings::default();
        let set = |(name, text)| {
            let error = definition(name).value(&mut values).set(text).err()?;
            Some(format!("{name}: {error}"))
        };
        let mut errors: Vec<_> = names.into_iter().zip(amounts).filter_map(set).collect();
        errors.extend(Settings::try_new(values).err().into_iter().flatten());
        errors
    }

    #[test]
    fn default_settings_are_valid() {
        let built_in = Settings::try_new(PodSettings::default()).unwrap();
        assert_eq!(built_in, Settings::default());
    }

    #[test]
    fn formatted_defaults_parse_back() {
        for definition in all() {
            let mut values = PodSettings::default();
            let text = definition.value(&mut values).format();
            if !["envoy-container", "drain-strategy", "extra-lifecycle-hooks"]
                .contains(&definition.name)
            {
                definition.value(&mut values).set(&text).unwrap();
            }
            assert_eq!(values, PodSettings::default(), "{}", definition.name);
        }
    }

    #[test]
    fn sufficient_resources_are_valid() {
        for amounts in [
            ["25m", "100m", "16Mi", "64Mi"],
            ["1", "1000m", "24Mi", "24Mi"],
            ["1n", "1", "1", "25165824"],
        ] {
            assert_eq!(errors(amounts), [""; 0], "{amounts:?}");
        }
    }

    #[test]
    fn all_insufficient_resources_are_reported() {
        let table: [([&str; 4], &[&str]); 6] = [
            (
                ["0", "100m", "16Mi", "64Mi"],
                &["cpu-request: invalid quantity `0`: must be more than 0"],
            ),
            (
                ["25m", "100m", "-1Mi", "64Mi"],
                &["memory-request: invalid quantity `-1Mi`: must be more than 0"],
            ),
            (
                ["25m", "100m", "16Mi", "25165823"],
                &[
                    "memory-limit: invalid limit `25165823`: must be at least 24Mi, which the container runtime itself needs",
                ],
            ),
            (
                ["101m", "100m", "16Mi", "64Mi"],
                &[
                    "cpu-request 101m is more than cpu-limit 100m (built-in default): lower the one or raise the other",
                ],
            ),
            (
                ["25m", "100m", "1Gi", "64Mi"],
                &[
                    "memory-request 1Gi is more than memory-limit 64Mi (built-in default): lower the one or raise the other",
                ],
            ),
            (
                ["25m", "10m", "128Mi", "16Mi"],
                &[
                    "memory-limit: invalid limit `16Mi`: must be at least 24Mi, which the container runtime itself needs",
                    "cpu-request 25m (built-in default) is more than cpu-limit 10m: lower the one or raise the other",
                    "memory-request 128Mi is more than memory-limit 64Mi (built-in default): lower the one or raise the other",
                ],
            ),
        ];
        for (amounts, want) in table {
            assert_eq!(errors(amounts), want, "{amounts:?}");
        }
    }
}
