//! Every setting as an annotation would write it.

use std::time::Duration;

use drainer::duration::plain;

use super::{ExistingHook, NativeSidecar, Setting, Settings, Source};

/// A setting as an annotation would write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its annotation's name, without the prefix.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Who said so.
    pub source: Source,
}

// === impl Settings ===

impl Settings {
    /// The settings in the order of the documentation, but for what is to be found where it is unset.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        fn shown<T>(
            name: &'static str,
            Setting { value, source }: &Setting<T>,
            written: impl FnOnce(&T) -> String,
        ) -> Shown {
            Shown {
                name,
                value: written(value),
                source: *source,
            }
        }
        let span = |span: &Duration| plain(*span).to_string();
        let idle_exit =
            |idle: &Option<Duration>| idle.as_ref().map_or_else(|| "off".to_owned(), span);
        let native_sidecar = |form: &NativeSidecar| {
            match form {
                NativeSidecar::Auto => "auto",
                NativeSidecar::True => "true",
                NativeSidecar::False => "false",
            }
            .to_owned()
        };
        let existing_hook = |choice: &ExistingHook| {
            match choice {
                ExistingHook::Keep => "keep",
                ExistingHook::Replace => "replace",
            }
            .to_owned()
        };
        vec![
            shown("drain-delay", &self.drain_delay, span),
            shown("min-drain-duration", &self.min_drain_duration, span),
            shown("drain-timeout", &self.drain_timeout, span),
            shown("idle-exit", &self.idle_exit, idle_exit),
            shown("quiet-period", &self.quiet_period, span),
            shown(
                "exit-at-connections",
                &self.exit_at_connections,
                u64::to_string,
            ),
            shown("ignore-listeners", &self.ignore_listeners, |listeners| {
                let listeners: Vec<_> = listeners.iter().map(ToString::to_string).collect();
                listeners.join(",")
            }),
            shown("port", &self.port, ToString::to_string),
            shown("native-sidecar", &self.native_sidecar, native_sidecar),
            shown("existing-hook", &self.existing_hook, existing_hook),
            shown("cpu-request", &self.cpu.request, ToString::to_string),
            shown("cpu-limit", &self.cpu.limit, ToString::to_string),
            shown("memory-request", &self.memory.request, ToString::to_string),
            shown("memory-limit", &self.memory.limit, ToString::to_string),
        ]
    }
}
