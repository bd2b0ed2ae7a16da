//! Every setting as an annotation would write it.

use std::time::Duration;

use drainer::duration::format;

use super::{ExistingHook, NativeSidecar, Setting, SettingSource, Settings};

/// A setting as an annotation would write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRow {
    /// Its annotation's name, without the prefix.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Who said so.
    pub source: SettingSource,
}

// === impl Settings ===

impl Settings {
    /// The settings in the order of the documentation, but for what is to be found where it is unset.
    #[must_use]
    pub fn rows(&self) -> Vec<SettingRow> {
        fn row<T>(
            name: &'static str,
            Setting { value, source }: &Setting<T>,
            written: impl FnOnce(&T) -> String,
        ) -> SettingRow {
            SettingRow {
                name,
                value: written(value),
                source: *source,
            }
        }
        let span = |span: &Duration| format(*span).to_string();
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
            row("drain-delay", &self.drain_delay, span),
            row("min-drain-duration", &self.min_drain_duration, span),
            row("drain-timeout", &self.drain_timeout, span),
            row("idle-exit", &self.idle_exit, idle_exit),
            row("quiet-period", &self.quiet_period, span),
            row(
                "exit-at-connections",
                &self.exit_at_connections,
                u64::to_string,
            ),
            row("ignore-listeners", &self.ignore_listeners, |listeners| {
                let listeners: Vec<_> = listeners.iter().map(ToString::to_string).collect();
                listeners.join(",")
            }),
            row("port", &self.port, ToString::to_string),
            row("native-sidecar", &self.native_sidecar, native_sidecar),
            row("existing-hook", &self.existing_hook, existing_hook),
            row("cpu-request", &self.cpu.request, ToString::to_string),
            row("cpu-limit", &self.cpu.limit, ToString::to_string),
            row("memory-request", &self.memory.request, ToString::to_string),
            row("memory-limit", &self.memory.limit, ToString::to_string),
        ]
    }
}
