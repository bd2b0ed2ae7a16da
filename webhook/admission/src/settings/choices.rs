//! Settings whose value is one of a few words.

use drainer::{InvalidValue, SettingValue};

/// Implements [`SettingValue`] for an enumeration: the noun for its values, what is expected in place of an invalid one,
/// and the word of each variant. The empty word stands for no value and is never parsed.
macro_rules! impl_setting_value {
    ($choice:ident, $noun:literal, $expected:literal, { $($variant:ident: $word:literal),+ $(,)? }) => {
        impl SettingValue for $choice {
            fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
                *self = match text {
                    $($word if !text.is_empty() => Self::$variant,)+
                    _ => return Err(InvalidValue::new($noun, text, $expected)),
                };
                Ok(())
            }

            fn format(&self) -> String {
                match self {
                    $(Self::$variant => $word,)+
                }
                .to_owned()
            }
        }
    };
}

/// `native-sidecar`. An installation's default is never `Auto`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NativeSidecar {
    /// The installation's default.
    Auto,
    /// An init container with `restartPolicy: Always`.
    #[default]
    True,
    /// A plain container.
    False,
}

/// `existing-hook`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExistingHook {
    /// The hook stays, and the pod gets no drainer.
    #[default]
    Keep,
    /// The drainer's hook replaces it.
    Replace,
}

/// `drain-strategy`: how Envoy spreads its requests to reconnect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DrainStrategy {
    /// Envoy's arguments stay as they are.
    #[default]
    Unset,
    /// With every response, from the beginning.
    Immediate,
    /// With a probability that grows during the drain.
    Gradual,
}

/// `envoy-native-sidecar`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EnvoyNativeSidecar {
    /// Envoy's container stays where it is.
    #[default]
    False,
    /// Envoy's container becomes an init container with `restartPolicy: Always`.
    True,
}

/// `adopt`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Adopt {
    /// A shutdown manager stays, and the pod gets no drainer.
    #[default]
    False,
    /// The drainer takes its place.
    True,
}

// === impl SettingValue ===

impl_setting_value!(NativeSidecar, "value", "expected auto, true or false", {
    Auto: "auto",
    True: "true",
    False: "false",
});

impl_setting_value!(ExistingHook, "value", "expected keep or replace", {
    Keep: "keep",
    Replace: "replace",
});

impl_setting_value!(DrainStrategy, "strategy", "expected immediate or gradual", {
    Unset: "",
    Immediate: "immediate",
    Gradual: "gradual",
});

impl_setting_value!(EnvoyNativeSidecar, "value", "expected true or false", {
    False: "false",
    True: "true",
});

impl_setting_value!(Adopt, "value", "expected true or false", {
    False: "false",
    True: "true",
});
