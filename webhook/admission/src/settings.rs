//! The settings of a pod: its annotations over the installation's defaults.

pub(crate) mod parse;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::LazyLock;
use std::time::Duration;

use drainer::settings::drain_setting_definitions;
use drainer::{
    AdminAddress, DrainSettings, InvalidValue, MAX_DURATION, SettingConflict, SettingDefinition,
    SettingValue, Timing, settings_table,
};
use serde::Serialize;
use strum::{Display, EnumString};
use tracing::Level;

use super::names::is_dns_label;
use super::quantity::DrainerResources;

/// The value of every setting, each valid by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSettings {
    /// The annotated address, or else the one that drainers try last before they search.
    pub admin_address: AdminAddress,
    /// The settings that the drainer reads.
    pub drain: DrainSettings,
    pub envoy_container: ContainerName,
    /// The container of a server that is no Envoy.
    pub server_container: ContainerName,
    pub native_sidecar: NativeSidecar,
    /// What happens to a preStop hook of Envoy's container.
    pub existing_hook: ExistingHook,
    /// The strategy of Envoy's own drain.
    pub drain_strategy: DrainStrategy,
    /// Whether Envoy gets an admin interface.
    pub add_admin: Switch,
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
    /// Of a Job's pod, or one like it.
    #[strum(to_string = "run-to-completion default")]
    JobDefault,
    /// Of a server that is no Envoy.
    #[strum(to_string = "server default")]
    ServerDefault,
    /// The next port that is free in the pod, since the default port is not.
    #[strum(to_string = "next free port")]
    NextFree,
    /// The shutdown manager that the drainer takes the place of.
    #[strum(to_string = "shutdown manager")]
    ShutdownManager,
    /// The pod's own grace period, which allows more time.
    #[strum(to_string = "grace period")]
    GracePeriod,
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

/// `envoy-container`, which is detected where it is `None`, or `server-container`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerName(pub Option<String>);

/// Settings that are detected in the pod if no annotation sets them, so that [`Settings::rows`] has no value for them.
const DETECTED: [&str; 3] = ["envoy-container", "server-container", "admin-address"];

/// How long connections of a server are silent that count as idle: Envoy's default timeout of a route, which a stream that is
/// silent for longer rarely has.
const SERVER_IDLE_EXIT: Duration = Duration::from_secs(15);

type Definition = SettingDefinition<PodSettings>;

static ALL: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let first: Vec<Definition> = settings_table! {
        "envoy-container" "NAME" Never |s| s.envoy_container,
            "Name of Envoy's container, which may also be one that a later webhook adds.";
        "server-container" "NAME" Never |s| s.server_container,
            "Preview: name of the container of a server that is no Envoy, in a pod without one. A drain waits until the \
             kernel knows nothing in flight on its ports.";
        "admin-address" "ADDRESS" Never |s| s.admin_address,
            flag("Address that drainers try before they search for Envoy's admin interface.")
            "Address of Envoy's admin interface: 127.0.0.1:9901, [::1]:9901, unix:/path or unix:@name. By default, the \
             drainer searches for it.";
    };
    let last: Vec<Definition> = settings_table! {
        "native-sidecar" "BOOL" Never |s| s.native_sidecar,
            flag("Whether drainers are injected as native sidecars (init containers with restartPolicy: Always).")
            "Whether the drainer is a native sidecar: true, false, or auto for the installation's default.";
        "existing-hook" "ACTION" Never |s| s.existing_hook,
            "What to do if Envoy's container has a preStop hook: keep it and inject no drainer, or replace it.";
        "drain-strategy" "STRATEGY" Never |s| s.drain_strategy,
            "Envoy's `--drain-strategy`: immediate or gradual. It matters to MODIFY_ONLY and QUIC listeners.";
        "add-admin" "BOOL" Never |s| s.add_admin,
            "With true, an Envoy without an admin interface gets one on an abstract Unix socket, by `--config-yaml`.";
        "extra-lifecycle-hooks" "LIST" Never |s| s.hooked_containers,
            "Other containers that get SIGTERM only after the drain, such as an app behind Envoy: names, \
             comma-separated, or * for all.";
        "envoy-native-sidecar" "BOOL" Never |s| s.envoy_native_sidecar,
            "With true, Envoy's container becomes a native sidecar, which Kubernetes stops after the pod's containers.";
        "adopt" "BOOL" Never |s| s.adopt,
            "With true, the drainer takes the place of the shutdown manager of Envoy Gateway or Contour.";
        "cpu-request" "QUANTITY" Never |s| s.resources.cpu_request, flag "CPU request of the drainer.";
        "memory-request" "QUANTITY" Never |s| s.resources.memory_request, flag "Memory request of the drainer.";
        "cpu-limit" "QUANTITY|none" Never |s| s.resources.cpu_limit, flag "CPU limit of the drainer, or none.";
        "memory-limit" "QUANTITY" Never |s| s.resources.memory_limit, flag
            "Memory limit of the drainer, at least 24Mi.";
    };
    let shared = drain_setting_definitions().into_iter();
    first.into_iter().chain(shared).chain(last).collect()
});

/// Every setting, in the order of the documentation.
pub fn all() -> &'static [SettingDefinition<PodSettings>] {
    &ALL
}

/// The setting of this name.
fn definition(name: &str) -> &'static Definition {
    let mut all = all().iter();
    all.find(|definition| definition.name == name)
        .expect("callers name settings of the table")
}

// === impl PodSettings ===

impl PodSettings {
    /// Formats the value of a setting.
    fn format(&self, name: &str) -> String {
        (definition(name).value)(&mut self.clone()).format()
    }

    /// The settings whose values contradict each other.
    fn conflicts(&self) -> impl Iterator<Item = SettingConflict> {
        let timing = self.drain.timing.conflict().into_iter();
        timing.chain(self.resources.conflicts())
    }
}

impl AsMut<DrainSettings> for PodSettings {
    fn as_mut(&mut self) -> &mut DrainSettings {
        &mut self.drain
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
        let mut errors = values.drain.timing.errors();
        errors.extend(conflicts);
        if !errors.is_empty() {
            return Err(errors);
        }
        let sources = BTreeMap::new();
        Ok(Self { values, sources })
    }

    /// Turns an installation's defaults into the settings of a pod without annotations. One that serves only itself is a
    /// Job's, or runs to completion without a readiness probe.
    fn for_pod(&self, serves_itself: bool, is_server: bool) -> Self {
        let mut settings = self.clone();
        settings.values.native_sidecar = NativeSidecar::Auto;
        let idle_exit = &mut settings.values.drain.timing.idle_exit;
        if is_server && idle_exit.is_some_and(|it| it < SERVER_IDLE_EXIT) {
            *idle_exit = Some(SERVER_IDLE_EXIT);
            let source = SettingSource::ServerDefault;
            settings.sources.insert("idle-exit", source);
        }
        if serves_itself {
            // The clients of such an Envoy are the containers of its pod, which have ended.
            settings.values.drain.timing.min_drain_duration = Duration::ZERO;
            settings.values.drain.timing.quiet_period = Duration::ZERO;
            for name in ["min-drain-duration", "quiet-period"] {
                settings.sources.insert(name, SettingSource::JobDefault);
            }
        }
        settings
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &PodSettings {
        &self.values
    }

    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.values.drain.timing
    }

    /// Where the value of a setting is from.
    #[must_use]
    pub fn source(&self, name: &str) -> SettingSource {
        let source = self.sources.get(name).copied();
        source.unwrap_or(SettingSource::Default)
    }

    /// Moves the drainer to a free port, unless it is on that port already.
    pub(super) fn use_free_port(&mut self, port: NonZeroU16) {
        if port != self.values.drain.port {
            self.values.drain.port = port;
            self.sources.insert("port", SettingSource::NextFree);
        }
    }

    /// Lengthens `drain-timeout` to what the pod's own grace period allows, unless that is annotated, or other
    /// containers wait for the drain: then the present grace period is theirs.
    fn extend_drain_timeout(&mut self, grace: Duration, margin: Duration) {
        let timing = self.values.drain.timing;
        let others = margin + timing.drain_delay + timing.wait_for_replacement;
        let rest = grace.min(MAX_DURATION).saturating_sub(others);
        let rest = Duration::from_secs(rest.as_secs());
        let is_default = self.source("drain-timeout") == SettingSource::Default;
        let has_no_hooks = self.values.hooked_containers == HookedContainers::None;
        if is_default && has_no_hooks && rest > timing.drain_timeout {
            self.values.drain.timing.drain_timeout = rest;
            self.sources
                .insert("drain-timeout", SettingSource::GracePeriod);
        }
    }

    /// Returns true for the pod of a server that is no Envoy.
    pub(super) fn is_of_server(&self) -> bool {
        self.values.server_container.0.is_some()
    }

    /// Resets all but what a server has too; `names` are those that are reset.
    pub(super) fn drop_envoys(&mut self, names: &[&str]) {
        self.sources.retain(|name, _| !names.contains(name));
        let all = std::mem::take(&mut self.values);
        self.values = PodSettings {
            drain: DrainSettings {
                port: all.drain.port,
                timing: all.drain.timing,
                ignore_listeners: all.drain.ignore_listeners,
                ..DrainSettings::default()
            },
            server_container: all.server_container,
            native_sidecar: all.native_sidecar,
            existing_hook: all.existing_hook,
            hooked_containers: all.hooked_containers,
            resources: all.resources,
            ..PodSettings::default()
        };
    }

    /// Returns true if a drain waits for a replacement of the pod.
    pub(super) fn waits_for_replacement(&self) -> bool {
        !self.values.drain.timing.wait_for_replacement.is_zero()
    }

    /// Sets `wait-for-replacement` to none, since the webhook cannot answer.
    pub(super) fn drop_replacement_wait(&mut self) {
        self.values.drain.timing.wait_for_replacement = Duration::ZERO;
        self.sources.remove("wait-for-replacement");
    }

    /// The settings in the order of the documentation, except those that are detected.
    #[must_use]
    pub fn rows(&self) -> Vec<SettingRow> {
        let mut values = self.values.clone();
        let rows = all().iter().map(|definition| SettingRow {
            name: definition.name,
            value: (definition.value)(&mut values).format(),
            source: self.source(definition.name),
        });
        rows.filter(|row| !DETECTED.contains(&row.name)).collect()
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

/// `native-sidecar`. An installation's default is never `Auto`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum NativeSidecar {
    /// The installation's default.
    Auto,
    /// An init container with `restartPolicy: Always`.
    #[default]
    True,
    False,
}

/// `existing-hook`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum ExistingHook {
    /// The hook stays, and the pod gets no drainer.
    #[default]
    Keep,
    /// The injected hook replaces it.
    Replace,
}

/// `drain-strategy`: how Envoy spreads its requests to reconnect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum DrainStrategy {
    /// Envoy's arguments stay as they are.
    #[default]
    #[strum(to_string = "")]
    Unset,
    /// With every response, from the beginning.
    Immediate,
    /// With a probability that grows during the drain.
    Gradual,
}

/// `envoy-native-sidecar`, `adopt` and `add-admin`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Switch {
    #[default]
    False,
    True,
}

/// Implements [`SettingValue`] for enumerations: the noun for their values, and what is expected in place of an invalid
/// one. The empty word stands for no value and is never parsed.
macro_rules! impl_setting_value {
    ($($choice:ident $noun:literal $expected:literal;)*) => {$(
        impl SettingValue for $choice {
            fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
                let choice = text.parse().ok().filter(|_| !text.is_empty());
                *self = choice.ok_or_else(|| InvalidValue::new($noun, text, $expected))?;
                Ok(())
            }

            fn format(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

impl_setting_value! {
    NativeSidecar "value" "expected auto, true or false";
    ExistingHook "value" "expected keep or replace";
    DrainStrategy "strategy" "expected immediate or gradual";
    Switch "value" "expected true or false";
}

/// `extra-lifecycle-hooks`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HookedContainers {
    #[default]
    None,
    /// Every container that can have a hook.
    All,
    /// The containers with these names, from 1 to 64.
    Named(BTreeSet<String>),
}

/// Maximum number of containers of a pod that wait for its drain. The drainer takes more than a hundred connections at
/// once for a flood.
pub(super) const MAX_HOOKED_CONTAINERS: usize = 64;

impl SettingValue for HookedContainers {
    fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
        if text.trim() == "*" {
            *self = Self::All;
            return Ok(());
        }
        let names: BTreeSet<_> = text.split(',').map(str::trim).collect();
        if let Some(name) = names.iter().find(|name| !is_dns_label(name)) {
            let expected = "expected names of containers such as app,worker, or * for all";
            return Err(InvalidValue::new("name", name, expected));
        }
        if names.len() > MAX_HOOKED_CONTAINERS {
            let expected = format!("expected at most {MAX_HOOKED_CONTAINERS} names, or * for all");
            return Err(InvalidValue::new("list", text, expected));
        }
        *self = Self::Named(names.into_iter().map(str::to_owned).collect());
        Ok(())
    }

    fn format(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::All => "*".to_owned(),
            Self::Named(names) => Vec::from_iter(names.iter().map(String::as_str)).join(","),
        }
    }
}

/// The chart's values for the drainers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// The drainer's image, preferably with a digest.
    pub image: String,
    pub image_pull_policy: PullPolicy,
    /// The defaults of the settings that a pod's annotations can change, and the poll interval.
    pub settings: Settings,
    /// Whether the drainers' user is left to OpenShift's security context constraints.
    pub openshift: bool,
    /// The most that is added to a pod's termination.
    pub maxima: Maxima,
    /// Part of a pod's termination grace period that is kept for Envoy's own shutdown after the drain.
    pub grace_margin: Duration,
    pub log_level: Level,
    /// What to do with a pod whose annotations are invalid.
    pub on_invalid: OnInvalid,
    /// The namespace of envoy-drainer itself, whose pods are never changed.
    pub release_namespace: String,
    /// How drainers call this webhook; `None` if they cannot.
    pub drainer_api: Option<DrainerApiDefaults>,
}

/// The most that pods may set, or that follows from what they have: the parts of a drain's time limit. A pod's own grace
/// period may be longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maxima {
    pub drain_delay: Duration,
    pub wait_for_replacement: Duration,
    pub drain_timeout: Duration,
}

/// How drainers call this webhook, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainerApiDefaults {
    /// `HOST:PORT`; the webhook's certificate is valid for HOST.
    pub address: String,
    /// An address that needs no DNS.
    pub ip: Option<IpAddr>,
    /// The CAs of the webhook's certificate: DER in base64, comma-separated.
    pub ca: String,
    /// Whether the webhook answers which Services of a pod have another ready endpoint.
    pub replacement: bool,
    /// Whether the webhook takes reports, for which every drainer calls it.
    pub reports: bool,
}

/// When kubelets pull the drainer's image.
/// <https://kubernetes.io/docs/concepts/containers/images/#image-pull-policy>
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Display, EnumString)]
pub enum PullPolicy {
    Always,
    #[default]
    IfNotPresent,
    Never,
}

/// What to do with a pod whose annotations are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnInvalid {
    #[default]
    Deny,
    /// Use the setting's default with a warning; where there is none, skip the pod.
    Warn,
}

// === impl Maxima ===

impl Maxima {
    /// Each with the setting's name and its value in `timing`.
    fn of<'t>(&self, timing: &'t mut Timing) -> [(&'static str, Duration, &'t mut Duration); 3] {
        let (delay, timeout) = (&mut timing.drain_delay, &mut timing.drain_timeout);
        let wait = &mut timing.wait_for_replacement;
        [
            ("drain-delay", self.drain_delay, delay),
            ("wait-for-replacement", self.wait_for_replacement, wait),
            ("drain-timeout", self.drain_timeout, timeout),
        ]
    }
}

impl Default for Maxima {
    /// What the settings allow.
    fn default() -> Self {
        Self {
            drain_delay: MAX_DURATION,
            wait_for_replacement: MAX_DURATION,
            drain_timeout: MAX_DURATION,
        }
    }
}

// === impl Defaults ===

impl Defaults {
    /// The built-in defaults with this image of the drainer.
    #[must_use]
    pub fn new(image: impl Into<String>, release_namespace: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            image_pull_policy: PullPolicy::default(),
            settings: Settings::default(),
            openshift: false,
            maxima: Maxima::default(),
            grace_margin: Duration::from_secs(15),
            log_level: Level::INFO,
            on_invalid: OnInvalid::Deny,
            release_namespace: release_namespace.into(),
            drainer_api: None,
        }
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
            let error = (definition(name).value)(&mut values).set(text).err()?;
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
            let text = (definition.value)(&mut values).format();
            let without = "envoy-container server-container drain-strategy extra-lifecycle-hooks ignore-kernel";
            if !without.split(' ').any(|name| name == definition.name) {
                (definition.value)(&mut values).set(&text).unwrap();
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
                    "memory-limit: invalid limit `25165823`: must be at least 24Mi, which the container runtime itself \
                     needs",
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
                    "memory-request 1Gi is more than memory-limit 64Mi (built-in default): lower the one or raise the \
                     other",
                ],
            ),
            (
                ["25m", "10m", "128Mi", "16Mi"],
                &[
                    "memory-limit: invalid limit `16Mi`: must be at least 24Mi, which the container runtime itself \
                     needs",
                    "cpu-request 25m (built-in default) is more than cpu-limit 10m: lower the one or raise the other",
                    "memory-request 128Mi is more than memory-limit 64Mi (built-in default): lower the one or raise \
                     the other",
                ],
            ),
        ];
        for (amounts, want) in table {
            assert_eq!(errors(amounts), want, "{amounts:?}");
        }
    }
}

#[cfg(test)]
mod hooked_containers_tests {
    use super::*;

    #[test]
    fn names_are_separated_by_commas() {
        let long = "a".repeat(63);
        let many: Vec<_> = (0..=64).map(|n| format!("c{n}")).collect();
        let table = [
            ("*", Ok("*")),
            (" * ", Ok("*")),
            ("app", Ok("app")),
            ("worker, app ,app", Ok("app,worker")),
            ("istio-proxy,0", Ok("0,istio-proxy")),
            (&long, Ok(&*long)),
            ("", Err("invalid name ``: expected names")),
            ("app,", Err("invalid name ``: expected names")),
            ("app,*", Err("invalid name `*`: expected names")),
            (
                "app worker",
                Err("invalid name `app worker`: expected names"),
            ),
            ("App", Err("invalid name `App`: expected names")),
            ("-a", Err("invalid name `-a`: expected names")),
            ("a-", Err("invalid name `a-`: expected names")),
            ("a/../b", Err("invalid name `a/../b`: expected names")),
            (&format!("{long}a"), Err("invalid name `aaa")),
            (&many.join(","), Err("invalid list `c0,c1,")),
        ];
        for (text, want) in table {
            let mut containers = HookedContainers::None;
            let got = containers.set(text).map(|()| containers.format());
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{text}"),
                (Err(error), Err(want)) => {
                    assert!(error.to_string().starts_with(want), "{text}: {error}");
                    assert_eq!(containers, HookedContainers::None, "{text}");
                }
                (got, want) => panic!("{text}: {got:?}, {want:?}"),
            }
        }
        let mut most = HookedContainers::None;
        assert_eq!(most.set(&many[..64].join(",")), Ok(()));
    }
}
