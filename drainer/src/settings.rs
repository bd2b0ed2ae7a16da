//! The settings table: one row for each setting that the webhook's annotations and flags and the drainer's flags share.

pub(crate) mod admin_address;
pub(crate) mod config;
pub mod duration;
pub(crate) mod health_failure_delay;
pub(crate) mod listener_selector;
mod manager_flags;
pub(crate) mod readiness_probe;
pub(crate) mod timing;
pub(crate) mod token;
pub(crate) mod value;

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tracing::Level;

use self::admin_address::{AdminAddress, EnvoyFlags};
use self::health_failure_delay::HealthFailureDelay;
use self::listener_selector::ListenerSelector;
use self::timing::Timing;
use self::token::Token;
use self::value::{InvalidValue, parse_as, parse_list, parse_port};

/// The port on which the drainer listens by default.
pub const DEFAULT_PORT: NonZeroU16 = NonZeroU16::new(15902).expect("15902 is not zero");

/// The settings of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    /// Port on which the drainer listens for Envoy's preStop hook.
    pub port: NonZeroU16,
    /// The durations.
    pub timing: Timing,
    /// When the drain fails Envoy's health.
    pub health_failure_delay: HealthFailureDelay,
    /// The drain ends when at most this many connections are left.
    pub exit_at_connections: u64,
    /// The kernel is not asked whether Envoy's statistics miss connections.
    pub ignore_kernel: bool,
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
    pub value: fn(&mut S) -> &mut dyn SettingValue,
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

/// A settings table. The columns of a row:
///
/// - name
/// - placeholder for the value
/// - when it is in the drainer's arguments: an [`ArgCondition`]
/// - field
/// - `flag` if the webhook has a flag for it, which sets the default for all pods, as does the chart value; `flag("…")` if
///   that flag has a help of its own
/// - help
#[macro_export]
macro_rules! settings_table {
    (@flag_help $help:literal) => { None };
    (@flag_help $help:literal flag) => { Some($help) };
    (@flag_help $help:literal flag $flag_help:literal) => { Some($flag_help) };
    ($($name:literal $value:literal $in_args:ident |$s:ident| $field:expr,
        $($flag:ident $(($flag_help:literal))?)? $help:literal;)*) => {
        vec![$($crate::SettingDefinition {
            name: $name,
            value_name: $value,
            help: $help,
            flag_help: $crate::settings_table!(@flag_help $help $($flag $($flag_help)?)?),
            in_args: $crate::settings::ArgCondition::$in_args,
            value: |$s| &mut $field,
        }),*]
    };
}

/// The settings that both the webhook and the drainer read, in the order of the documentation.
pub fn drain_setting_definitions<S: AsMut<DrainSettings>>() -> Vec<SettingDefinition<S>> {
    settings_table! {
        "port" "PORT" Always |s| s.as_mut().port, "Port on which the drainer listens for Envoy's preStop hook.";
        "drain-delay" "DURATION" Always |s| s.as_mut().timing.drain_delay, flag
            "How long Envoy keeps serving, healthy, before a drain starts.";
        "wait-for-replacement" "DURATION" NonDefault |s| s.as_mut().timing.wait_for_replacement,
            "Maximum wait, after drain-delay, for another ready endpoint of each Service of the pod. Meanwhile Envoy keeps serving, healthy.";
        "min-drain-duration" "DURATION" Always |s| s.as_mut().timing.min_drain_duration, flag
            "Minimum duration of a drain.";
        "drain-timeout" "DURATION" Always |s| s.as_mut().timing.drain_timeout, flag
            "Maximum duration of a drain. It then ends even if connections are still open.";
        "idle-exit" "DURATION|off" Always |s| s.as_mut().timing.idle_exit, flag
            "A drain ends once only idle HTTP connections have remained for this long. With off, it waits for idle ones too.";
        "quiet-period" "DURATION" Always |s| s.as_mut().timing.quiet_period, flag
            "A drain ends only after this long without a new connection.";
        "health-failure-delay" "DURATION|auto|end" NonDefault |s| s.as_mut().health_failure_delay, flag
            "How long after its start a drain fails Envoy's health. With auto: immediately, or as late as HTTP/3 clients, the app's own calls or a sole pod need. With end: at its end.";
        "exit-at-connections" "N" NonDefault |s| s.as_mut().exit_at_connections,
            "A drain ends when at most this many connections remain.";
        "ignore-kernel" "BOOL" NonDefault |s| s.as_mut().ignore_kernel,
            "With true, Envoy's statistics alone decide when a drain ends, and not the kernel's sockets too.";
        "ignore-listeners" "LIST" NonDefault |s| s.as_mut().ignore_listeners,
            "Names or ports of listeners whose connections are not counted, comma-separated.";
        "count-listeners" "LIST" NonDefault |s| s.as_mut().count_listeners,
            "Names or ports of listeners whose connections are counted whatever their direction and address, comma-separated.";
    }
}

// === impl DrainSettings ===

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            port: DEFAULT_PORT,
            timing: Timing::default(),
            health_failure_delay: HealthFailureDelay::Auto,
            exit_at_connections: 0,
            ignore_kernel: false,
            ignore_listeners: Vec::new(),
            count_listeners: Vec::new(),
        }
    }
}

// === impl SettingValue ===

/// Implements [`SettingValue`] for types: how each is parsed from a text, and formatted.
macro_rules! setting_values {
    ($($type:ty => |$text:ident| $parse:expr, |$value:ident| $format:expr;)*) => {$(
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
    )*};
}

/// What is expected in place of a text that is neither a duration nor `off`.
const OR_OFF: &str = "expected a duration such as 7s, 1m30s or 400ms, or off";

setting_values! {
    AdminAddress => |text| text.parse(), |it| it.to_string();
    Option<AdminAddress> => |text| text.parse().map(Some), |it| it.iter().map(ToString::to_string).collect();
    Token => |text| text.parse(), |it| it.to_string();
    HealthFailureDelay => |text| Self::parse(text), |it| it.to_string();
    Duration => |text| duration::parse_setting(text, duration::EXPECTED), |it| duration::format(*it).to_string();
    Option<Duration> => |text| (text != "off").then(|| duration::parse_setting(text, OR_OFF)).transpose(),
        |it| it.map_or_else(|| "off".to_owned(), |duration| duration.format());
    NonZeroU16 => |text| parse_port(text), |it| it.to_string();
    u64 => |text| parse_as("number", text, "must be a whole number, 0 or more"), |it| it.to_string();
    Option<IpAddr> => |text| parse_as("IP address", text, "expected 10.0.0.1 or fd00::1").map(Some),
        |it| it.iter().map(ToString::to_string).collect();
    String => |text| Ok(text.to_owned()), |it| it.clone();
    PathBuf => |text| Ok(text.into()), |it| it.display().to_string();
    EnvoyFlags => |text| parse_as("flags", text, "expected a JSON object"),
        |it| serde_json::to_string(it).unwrap_or_default();
    Level => |text| parse_as("log level", text, "expected error, warn, info, debug or trace"),
        |it| it.to_string().to_lowercase();
    // `false` is formatted as no value, as the flag is a switch.
    bool => |text| parse_as("value", text, "expected true or false"), |it| it.then(|| "true".to_owned()).unwrap_or_default();
}

/// Items that are separated by commas.
impl<T: FromStr<Err = InvalidValue> + ToString> SettingValue for Vec<T> {
    fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
        *self = parse_list(text)?;
        Ok(())
    }

    fn format(&self) -> String {
        let items: Vec<_> = self.iter().map(ToString::to_string).collect();
        items.join(",")
    }
}
