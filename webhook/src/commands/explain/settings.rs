//! Every setting of a pod, as an annotation would write it, and who set it.

use std::fmt::Display;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::seconds::seconds;
use crate::admission::{self, ExistingHook, NativeSidecar, Setting, Source};

/// The settings, in the order of the documentation.
#[derive(Debug)]
pub struct Settings(pub(super) Vec<(&'static str, Value)>);

/// A setting's value and its source.
#[derive(Debug, Serialize)]
pub struct Value {
    /// As an annotation writes it.
    pub value: String,
    /// `default`, `job-default` or `annotation`.
    pub source: &'static str,
    #[serde(skip)]
    pub(super) from: Source,
}

// === impl Settings ===

impl From<&admission::Settings> for Settings {
    fn from(settings: &admission::Settings) -> Self {
        fn of<T>(setting: &Setting<T>, shown: impl FnOnce(&T) -> String) -> Value {
            Value {
                value: shown(&setting.value),
                source: match setting.source {
                    Source::Default => "default",
                    Source::JobDefault => "job-default",
                    Source::Annotation => "annotation",
                },
                from: setting.source,
            }
        }
        fn plain<T: Display>(setting: &Setting<T>) -> Value {
            of(setting, T::to_string)
        }
        let duration = |setting: &Setting<Duration>| of(setting, |span| seconds(*span));
        let idle_exit = of(&settings.idle_exit, |span| {
            span.map_or_else(|| "off".to_owned(), seconds)
        });
        let listeners = of(&settings.ignore_listeners, |listeners| {
            let listeners: Vec<_> = listeners.iter().map(ToString::to_string).collect();
            listeners.join(",")
        });
        let native_sidecar = of(&settings.native_sidecar, |form| {
            match form {
                NativeSidecar::Auto => "auto",
                NativeSidecar::True => "true",
                NativeSidecar::False => "false",
            }
            .to_owned()
        });
        let existing_hook = of(&settings.existing_hook, |choice| {
            match choice {
                ExistingHook::Keep => "keep",
                ExistingHook::Replace => "replace",
            }
            .to_owned()
        });
        Self(vec![
            ("drain-delay", duration(&settings.drain_delay)),
            ("min-drain-duration", duration(&settings.min_drain_duration)),
            ("drain-timeout", duration(&settings.drain_timeout)),
            ("idle-exit", idle_exit),
            ("quiet-period", duration(&settings.quiet_period)),
            ("exit-at-connections", plain(&settings.exit_at_connections)),
            ("ignore-listeners", listeners),
            ("port", plain(&settings.port)),
            ("native-sidecar", native_sidecar),
            ("existing-hook", existing_hook),
            ("cpu-request", plain(&settings.cpu.request)),
            ("cpu-limit", plain(&settings.cpu.limit)),
            ("memory-request", plain(&settings.memory.request)),
            ("memory-limit", plain(&settings.memory.limit)),
        ])
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
