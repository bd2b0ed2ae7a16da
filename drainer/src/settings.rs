//! The settings table: one row for each setting that the webhook's annotations and flags and the drainer's flags share.

pub(crate) mod admin_address;
pub(crate) mod config;
pub mod duration;
pub(crate) mod health_failure_delay;
pub(crate) mod listener_selector;
pub(crate) mod readiness_probe;
pub(crate) mod timing;
pub(crate) mod token;
pub(crate) mod value;

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use self::admin_address::AdminAddress;
use self::health_failure_delay::HealthFailureDelay;
use self::listener_selector::ListenerSelector;
use self::timing::{Durations, MAX_DURATION};
use self::value::{InvalidValue, parse_as, parse_list, parse_port};

/// The port on which the drainer listens by default.
pub const DEFAULT_PORT: NonZeroU16 = NonZeroU16::new(15902).expect("15902 is not zero");

/// The settings of a drain but for its [`Durations`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    /// Port on which the drainer listens for Envoy's preStop hook.
    pub port: NonZeroU16,
    /// When the drain fails Envoy's health.
    pub health_failure_delay: HealthFailureDelay,
    /// The drain ends when at most this many connections are left.
    pub exit_at_connections: u64,
    /// Listeners whose connections are not counted.
    pub ignore_listeners: Vec<ListenerSelector>,
    /// Listeners whose connections are counted, whatever their direction and address. What is ignored too is not
    /// counted.
    pub count_listeners: Vec<ListenerSelector>,
}

/// A row of the settings table: how one setting of an `S` is named, explained, parsed and formatted.
#[derive(Debug)]
pub struct SettingDefinition<S> {
    /// Name of the flag, and of the annotation behind the prefix. The chart value is the same in camelCase.
    pub name: &'static str,
    /// Placeholder for the value in help texts; empty for a switch.
    pub value_name: &'static str,
    /// What the setting means, in one sentence.
    pub help: &'static str,
    /// Help of the webhook's flag, which is also the comment of the chart value; `None` if only an annotation sets the
    /// setting.
    pub flag_help: Option<&'static str>,
    /// When the drainer's arguments contain the setting.
    pub in_args: ArgCondition,
    /// The setting's value in the settings.
    pub field: fn(&mut S) -> &mut dyn SettingValue,
}

/// When the drainer's arguments contain a flag. Arguments are in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArgCondition {
    /// Always, since it has no default.
    Required,
    /// Always, since `kubectl describe` shows it.
    Always,
    /// Where the value is not the default.
    NonDefault,
    /// Never, since only the webhook reads it.
    Never,
}

/// The value of a setting, which has one notation for annotations, flags and chart values.
pub trait SettingValue {
    /// Replaces the value with the one in `text`.
    ///
    /// # Errors
    /// For an invalid `text`. The value is unchanged then.
    fn set(&mut self, text: &str) -> Result<(), InvalidValue>;

    /// The value as [`SettingValue::set`] parses it; empty for no value.
    fn format(&self) -> String;
}

/// Access to what the rows of [`drain_setting_definitions`] set.
pub trait DrainSettingsMut {
    /// The settings but for the durations.
    fn drain_settings(&mut self) -> &mut DrainSettings;

    /// The durations, which may contradict each other.
    fn durations(&mut self) -> &mut Durations;
}

/// A settings table. The columns of a row:
///
/// - name
/// - placeholder for the value
/// - when it is in the drainer's arguments: an [`ArgCondition`]
/// - the webhook's flag, which sets the default for all pods, as does the chart value: `-` for none, `flag` for one with the
///   help of the setting, or the help of the flag
/// - help
/// - field
#[macro_export]
macro_rules! settings_table {
    (@flag_help $help:literal -) => { None };
    (@flag_help $help:literal flag) => { Some($help) };
    (@flag_help $help:literal $flag_help:literal) => { Some($flag_help) };
    ($($name:literal $value:literal $in_args:ident $flag:tt $help:literal |$s:ident| $field:expr;)*) => {
        vec![$($crate::SettingDefinition {
            name: $name,
            value_name: $value,
            help: $help,
            flag_help: $crate::settings_table!(@flag_help $help $flag),
            in_args: $crate::settings::ArgCondition::$in_args,
            field: |$s| &mut $field,
        }),*]
    };
}

/// The settings that both the webhook and the drainer read, in the order of the documentation.
pub fn drain_setting_definitions<S: DrainSettingsMut>() -> Vec<SettingDefinition<S>> {
    settings_table! {
        "port" "PORT" Always -
            "Port on which the drainer listens for Envoy's preStop hook."
            |s| s.drain_settings().port;
        "drain-delay" "DURATION" Always flag
            "How long Envoy keeps serving, healthy, before a drain starts."
            |s| s.durations().drain_delay;
        "wait-for-replacement" "DURATION" NonDefault -
            "Maximum wait, after drain-delay, for another ready endpoint of each Service of the pod. Meanwhile Envoy keeps serving, healthy."
            |s| s.durations().wait_for_replacement;
        "min-drain-duration" "DURATION" Always flag
            "Minimum duration of a drain."
            |s| s.durations().min_drain_duration;
        "drain-timeout" "DURATION" Always flag
            "Maximum duration of a drain. It then ends even if connections are still open."
            |s| s.durations().drain_timeout;
        "idle-exit" "DURATION|off" Always flag
            "A drain ends once only idle HTTP connections have remained for this long. With off, it waits for idle ones too."
            |s| s.durations().idle_exit;
        "quiet-period" "DURATION" Always flag
            "A drain ends only after this long without a new connection."
            |s| s.durations().quiet_period;
        "health-failure-delay" "DURATION|auto|end" NonDefault flag
            "How long after its start a drain fails Envoy's health. With auto: immediately, or as late as HTTP/3 clients, the app's own calls or a sole pod need. With end: at its end."
            |s| s.drain_settings().health_failure_delay;
        "exit-at-connections" "N" NonDefault -
            "A drain ends when at most this many connections remain."
            |s| s.drain_settings().exit_at_connections;
        "ignore-listeners" "LIST" NonDefault -
            "Names or ports of listeners whose connections are not counted, comma-separated."
            |s| s.drain_settings().ignore_listeners;
        "count-listeners" "LIST" NonDefault -
            "Names or ports of listeners whose connections are counted whatever their direction and address, comma-separated."
            |s| s.drain_settings().count_listeners;
    }
}

// === impl SettingDefinition ===

impl<S> SettingDefinition<S> {
    /// Returns true if its flag takes no value.
    pub(crate) fn is_switch(&self) -> bool {
        self.value_name.is_empty()
    }

    /// The setting's value in `settings`.
    pub fn value<'s>(&self, settings: &'s mut S) -> &'s mut dyn SettingValue {
        (self.field)(settings)
    }
}

// === impl DrainSettings ===

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            port: DEFAULT_PORT,
            health_failure_delay: HealthFailureDelay::Auto,
            exit_at_connections: 0,
            ignore_listeners: Vec::new(),
            count_listeners: Vec::new(),
        }
    }
}

// === impl SettingValue ===

/// Implements [`SettingValue`] for a type by how it is parsed and formatted.
macro_rules! setting_value {
    ($type:ty, |$text:ident| $parse:expr, |$value:ident| $format:expr) => {
        impl SettingValue for $type {
            fn set(&mut self, $text: &str) -> Result<(), InvalidValue> {
                *self = $parse?;
                Ok(())
            }

            fn format(&self) -> String {
                let $value = self;
                $format
            }
        }
    };
}
pub(crate) use setting_value;

setting_value!(
    Duration,
    |text| check_max(text, duration::parse(text)?),
    |it| duration::format(*it).to_string()
);
setting_value!(
    Option<Duration>,
    |text| parse_duration_or("off", text),
    |it| it.map_or_else(|| "off".to_owned(), |duration| duration.format())
);
setting_value!(
    HealthFailureDelay,
    |text| match text {
        "end" => Ok(Self::End),
        _ => parse_duration_or("auto or end", text)
            .map(|delay| delay.map_or(Self::Auto, Self::After)),
    },
    |it| it.to_string()
);
setting_value!(AdminAddress, |text| text.parse(), |it| it.to_string());
setting_value!(NonZeroU16, |text| parse_port(text), |it| it.to_string());
setting_value!(
    u64,
    |text| parse_as("number", text, "must be a whole number, 0 or more"),
    |it| it.to_string()
);

fn check_max(text: &str, duration: Duration) -> Result<Duration, InvalidValue> {
    if duration > MAX_DURATION {
        return Err(InvalidValue::new("duration", text, "must be at most 24h"));
    }
    Ok(duration)
}

/// Parses a duration; `None` for the first of these words.
fn parse_duration_or(words: &str, text: &str) -> Result<Option<Duration>, InvalidValue> {
    if words.split(' ').next() == Some(text) {
        return Ok(None);
    }
    let duration = duration::parse(text).map_err(|_| {
        let wanted = format!("expected a duration such as 7s, 1m30s or 400ms, or {words}");
        InvalidValue::new("duration", text, wanted)
    })?;
    check_max(text, duration).map(Some)
}

/// Items that are separated by commas.
impl<T: FromStr<Err = InvalidValue> + fmt::Display> SettingValue for Vec<T> {
    fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
        *self = parse_list(text)?;
        Ok(())
    }

    fn format(&self) -> String {
        let items: Vec<_> = self.iter().map(ToString::to_string).collect();
        items.join(",")
    }
}
