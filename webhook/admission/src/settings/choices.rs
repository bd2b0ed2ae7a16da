//! Settings whose value is one of a few words.

use drainer::{InvalidValue, SettingValue};
use strum::{Display, EnumString};

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
    /// The drainer's hook replaces it.
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

/// `envoy-native-sidecar` and `adopt`.
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
