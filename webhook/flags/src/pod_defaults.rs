//! The flags with the defaults for pods: those of the settings table, and what only the installation decides.

use std::time::Duration;

use admission::settings;
use admission::{Defaults, Maxima, NativeSidecar, OnInvalid, PodSettings, PullPolicy, Settings};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use drainer::duration::{self, format};
use drainer::{InvalidValue, SettingDefinition};
use tracing::Level;

/// The defaults for pods: those of the settings table, and what only the installation decides.
#[derive(Debug, Args)]
#[command(next_help_heading = "Defaults for pods")]
pub struct PodDefaultsArgs {
    /// The drainer's image, preferably with a digest.
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Pull policy of the drainer's image in pods: Always, IfNotPresent or Never.
    #[arg(long, hide_short_help = true, value_name = "POLICY", default_value = "IfNotPresent", value_parser = pull_policy())]
    image_pull_policy: PullPolicy,
    /// The namespace of envoy-drainer itself, whose pods are never changed.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "NAMESPACE",
        default_value = "envoy-drainer"
    )]
    release_namespace: String,
    /// What to do with a pod whose annotations are invalid: warn, or deny it.
    #[arg(long, hide_short_help = true, value_name = "ACTION", default_value = "deny", value_parser = on_invalid())]
    on_invalid: OnInvalid,
    /// Let OpenShift's security context constraints (SCC) assign the drainers' user.
    #[arg(long, hide_short_help = true)]
    openshift: bool,
    /// How often the drainer polls Envoy's statistics.
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(PodSettings::default().drain.timing.poll_interval).to_string())]
    poll_interval: Duration,
    /// Part of a pod's termination grace period that is kept for Envoy's own shutdown after the drain.
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(Defaults::new("", "").grace_margin).to_string())]
    grace_margin: Duration,
    /// Maximum of the annotation drain-delay. Above it, a pod is denied, or gets the maximum with a warning.
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(Maxima::default().drain_delay).to_string())]
    max_drain_delay: Duration,
    /// Maximum of the annotation wait-for-replacement, as for drain-delay.
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(Maxima::default().wait_for_replacement).to_string())]
    max_wait_for_replacement: Duration,
    /// Maximum of drain-timeout, as for drain-delay, also where it follows from a pod's own grace period.
    #[arg(long, hide_short_help = true, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(default_value = format(Maxima::default().drain_timeout).to_string())]
    max_drain_timeout: Duration,
    /// Log level of the drainers: error, warn, info, debug or trace.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "LEVEL",
        default_value = "info"
    )]
    drainer_log_level: Level,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// The flags of the settings table.
#[derive(Debug)]
struct SettingsArgs(PodSettings);

/// Why the flags are not valid together: all reasons.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidDefaults(Vec<String>);

// === impl PodDefaultsArgs ===

impl PodDefaultsArgs {
    /// The defaults that the flags set.
    ///
    /// # Errors
    /// When the flags are not valid together: all reasons.
    pub fn into_defaults(self) -> Result<Defaults, InvalidDefaults> {
        let SettingsArgs(mut settings) = self.settings;
        settings.drain.timing.poll_interval = self.poll_interval;
        let maxima = Maxima {
            drain_delay: self.max_drain_delay,
            wait_for_replacement: self.max_wait_for_replacement,
            drain_timeout: self.max_drain_timeout,
        };
        match (parse_image(self.image), Settings::try_new(settings)) {
            (Ok(image), Ok(settings)) => Ok(Defaults {
                image,
                image_pull_policy: self.image_pull_policy,
                settings,
                openshift: self.openshift,
                maxima,
                grace_margin: self.grace_margin,
                log_level: self.drainer_log_level,
                on_invalid: self.on_invalid,
                release_namespace: self.release_namespace,
                drainer_api: None,
            }),
            (image, settings) => {
                let settings = settings.err().into_iter().flatten();
                let reasons = image.err().into_iter().chain(settings).collect();
                Err(InvalidDefaults(reasons))
            }
        }
    }
}

// === impl SettingsArgs ===

impl Args for SettingsArgs {
    fn augment_args(command: Command) -> Command {
        command.args(settings::all().iter().filter_map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut settings = PodSettings::default();
        for definition in settings::all() {
            // A setting without a flag keeps its default.
            if let Ok(Some(text)) = matches.try_get_one::<String>(definition.name) {
                let set = (definition.value)(&mut settings).set(text);
                set.map_err(|error| Error::raw(ErrorKind::ValueValidation, error))?;
            }
        }
        Ok(Self(settings))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag of a setting that has one.
fn arg(definition: &'static SettingDefinition<PodSettings>) -> Option<Arg> {
    let help = definition.flag_help?;
    let default = (definition.value)(&mut PodSettings::default()).format();
    let arg = Arg::new(definition.name)
        .long(definition.name)
        .value_name(definition.value_name)
        .help(help.trim_end_matches('.'))
        .hide_short_help(true)
        .default_value(default)
        .value_parser(move |text: &str| check_value(definition, text));
    Some(arg)
}

/// Returns `text` if it is a valid default of a setting.
fn check_value(
    definition: &SettingDefinition<PodSettings>,
    text: &str,
) -> Result<String, InvalidValue> {
    let mut settings = PodSettings::default();
    (definition.value)(&mut settings).set(text)?;
    match settings.native_sidecar {
        // It means the default, so it cannot be the default.
        NativeSidecar::Auto => Err(InvalidValue::new("value", text, "expected true or false")),
        _ => Ok(text.to_owned()),
    }
}

/// Returns the name of an image. The API server rejects an empty name and one with leading or trailing spaces; the
/// kubelet rejects one with other spaces.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go>
fn parse_image(image: String) -> Result<String, String> {
    if image.is_empty() || image.contains(char::is_whitespace) {
        let reason = "it must not be empty or contain spaces";
        return Err(format!("image: invalid name `{image}`: {reason}"));
    }
    Ok(image)
}

/// Parses `--image-pull-policy`.
fn pull_policy() -> impl TypedValueParser<Value = PullPolicy> {
    PossibleValuesParser::new(["Always", "IfNotPresent", "Never"])
        .map(|policy| policy.parse().unwrap_or_default())
}

/// Parses `--on-invalid`.
fn on_invalid() -> impl TypedValueParser<Value = OnInvalid> {
    PossibleValuesParser::new(["deny", "warn"]).map(|text| match &*text {
        "warn" => OnInvalid::Warn,
        _ => OnInvalid::Deny,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use drainer::{AdminAddress, HealthFailureDelay, SettingValue, Timing};

    use super::*;
    use admission::{DrainerResources, Quantity};

    #[derive(Parser)]
    struct TestCommand {
        #[command(flatten)]
        defaults: PodDefaultsArgs,
    }

    fn parse(flags: &[&str]) -> anyhow::Result<Defaults> {
        let flags = ["test", "--image", "drainer:1"].iter().chain(flags);
        Ok(TestCommand::try_parse_from(flags)?
            .defaults
            .into_defaults()?)
    }

    #[test]
    fn defaults_without_flags_are_built_in() {
        let want = Defaults::new("drainer:1", "envoy-drainer");
        assert_eq!(parse(&[]).unwrap(), want);
    }

    #[test]
    fn every_flag_changes_its_own_default() {
        fn quantity(text: &str) -> Quantity {
            text.parse().unwrap()
        }
        fn settings(defaults: &mut Defaults, change: impl FnOnce(&mut PodSettings)) {
            let mut settings = defaults.settings.values().clone();
            change(&mut settings);
            defaults.settings = Settings::try_new(settings).unwrap();
        }
        fn timing(defaults: &mut Defaults, change: impl FnOnce(&mut Timing)) {
            settings(defaults, |s| change(&mut s.drain.timing));
        }
        fn resources(defaults: &mut Defaults, change: impl FnOnce(&mut DrainerResources)) {
            settings(defaults, |s| change(&mut s.resources));
        }
        const HALF: Duration = Duration::from_secs(30);
        type Change = fn(&mut Defaults);
        let table: [(&str, Change); 22] = [
            ("--release-namespace=infra", |d| {
                d.release_namespace = "infra".into()
            }),
            ("--on-invalid=warn", |d| d.on_invalid = OnInvalid::Warn),
            ("--admin-address=unix:@admin", |d| {
                settings(d, |s| {
                    s.admin_address = AdminAddress::Abstract("admin".into())
                })
            }),
            ("--native-sidecar=false", |d| {
                settings(d, |s| s.native_sidecar = NativeSidecar::False)
            }),
            ("--openshift", |d| d.openshift = true),
            ("--image-pull-policy=Always", |d| {
                d.image_pull_policy = PullPolicy::Always
            }),
            ("--drain-delay=30s", |d| timing(d, |t| t.drain_delay = HALF)),
            ("--min-drain-duration=30s", |d| {
                timing(d, |t| t.min_drain_duration = HALF)
            }),
            ("--drain-timeout=30s", |d| {
                timing(d, |t| t.drain_timeout = HALF)
            }),
            ("--idle-exit=off", |d| timing(d, |t| t.idle_exit = None)),
            ("--quiet-period=30s", |d| {
                timing(d, |t| t.quiet_period = HALF)
            }),
            ("--health-failure-delay=30s", |d| {
                settings(d, |s| {
                    s.drain.health_failure_delay = HealthFailureDelay::After(HALF)
                })
            }),
            ("--poll-interval=30s", |d| {
                timing(d, |t| t.poll_interval = HALF)
            }),
            ("--grace-margin=30s", |d| d.grace_margin = HALF),
            ("--max-drain-delay=30s", |d| d.maxima.drain_delay = HALF),
            ("--max-wait-for-replacement=30s", |d| {
                d.maxima.wait_for_replacement = HALF
            }),
            ("--max-drain-timeout=60s", |d| {
                d.maxima.drain_timeout = HALF * 2
            }),
            ("--cpu-request=7m", |d| {
                resources(d, |r| r.cpu_request = quantity("7m"))
            }),
            ("--memory-request=7Mi", |d| {
                resources(d, |r| r.memory_request = quantity("7Mi"))
            }),
            ("--cpu-limit=7", |d| {
                resources(d, |r| r.cpu_limit.set("7").unwrap())
            }),
            ("--memory-limit=7Gi", |d| {
                resources(d, |r| r.memory_limit.set("7Gi").unwrap())
            }),
            ("--drainer-log-level=debug", |d| d.log_level = Level::DEBUG),
        ];
        for (flag, change) in table {
            let mut want = Defaults::new("drainer:1", "envoy-drainer");
            change(&mut want);
            assert_eq!(parse(&[flag]).unwrap(), want, "{flag}");
        }
    }

    #[test]
    fn all_conflicts_are_reported_at_once() {
        for (flags, want) in [
            (
                ["--image=", "--cpu-limit=1m"].as_slice(),
                "image: invalid name ``: it must not be empty or contain spaces; \
                 cpu-request 25m (built-in default) is more than cpu-limit 1m: lower the one or raise the other",
            ),
            (
                &[
                    "--image= drainer:1",
                    "--drain-timeout=5s",
                    "--memory-request=65Mi",
                ],
                "image: invalid name ` drainer:1`: it must not be empty or contain spaces; \
                 drain-timeout 5s is less than min-drain-duration 10s (built-in default): raise the one or lower the other; \
                 memory-request 65Mi is more than memory-limit 64Mi (built-in default): lower the one or raise the other",
            ),
        ] {
            let flags = ["test"].iter().chain(flags);
            let defaults = TestCommand::try_parse_from(flags).unwrap().defaults;
            let error = defaults.into_defaults().unwrap_err().to_string();
            assert_eq!(error, want);
        }
    }

    #[test]
    fn invalid_values_and_durations_are_reported() {
        for (flags, want) in [
            (
                ["--drain-timeout=5s"].as_slice(),
                "drain-timeout 5s is less than min-drain-duration 10s (built-in default)",
            ),
            (
                &["--poll-interval=0s"],
                "poll-interval 0s: must be more than 0s",
            ),
            (&["--idle-exit=never"], "7s, 1m30s or 400ms, or off"),
            (&["--drain-delay=5"], "invalid duration `5`"),
            (&["--memory-limit=64MB"], "invalid quantity `64MB`"),
            (
                &["--memory-limit=16Mi"],
                "invalid limit `16Mi`: must be at least 24Mi, which the container runtime itself needs",
            ),
            (
                &["--cpu-limit=0"],
                "invalid limit `0`: must be more than 0, or none",
            ),
            (
                &["--drain-timeout=25h"],
                "invalid duration `25h`: must be at most 24h",
            ),
            (
                &["--native-sidecar=auto"],
                "invalid value `auto`: expected true or false",
            ),
            (
                &["--admin-address=localhost:9901"],
                "invalid admin address `localhost:9901`",
            ),
        ] {
            let error = format!("{:#}", parse(flags).unwrap_err());
            assert!(error.contains(want), "{flags:?}: {error}");
        }
    }
}
