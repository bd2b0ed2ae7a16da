//! What the installation decides, for every pod alike.

use clap::ValueEnum;
use clap::builder::ArgAction;
use drainer::{AdminAddress, Durations, Timing};
use tracing::Level;

use super::duration::{HumanDuration, IdleExit};
use crate::admission::{Defaults, DrainerResources, OnInvalid, Quantity, ResourceAmounts};

/// What annotations can set, and what only the installation can.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Defaults for pods")]
pub struct PodDefaultsArgs {
    /// The drainer's image, best with a digest.
    #[arg(long, value_name = "IMAGE", env = "ENVOY_DRAINER_IMAGE")]
    image: String,
    /// The namespace of envoy-drainer itself, whose pods are never changed.
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "ENVOY_DRAINER_RELEASE_NAMESPACE",
        default_value = "envoy-drainer"
    )]
    release_namespace: String,
    /// What becomes of a pod that asks for what it cannot have.
    #[arg(
        long,
        value_name = "WHAT",
        env = "ENVOY_DRAINER_ON_INVALID",
        value_enum,
        default_value_t
    )]
    on_invalid: OnInvalidArg,
    /// Where Envoy's admin interface is, if its pod does not tell.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ENVOY_DRAINER_ADMIN_ADDRESS",
        default_value_t = product_defaults().admin_address
    )]
    admin_address: AdminAddress,
    /// Whether drainers are native sidecars, where a pod does not tell.
    #[arg(
        long,
        value_name = "BOOL",
        env = "ENVOY_DRAINER_NATIVE_SIDECAR",
        action = ArgAction::Set,
        default_value_t = product_defaults().native_sidecar
    )]
    native_sidecar: bool,
    /// Leave the drainers' user to OpenShift's security constraints.
    #[arg(long, env = "ENVOY_DRAINER_OPENSHIFT")]
    openshift: bool,
    /// How long Envoy serves on, healthy, before a drain starts.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_DRAIN_DELAY",
        default_value_t = HumanDuration(product_defaults().timing.drain_delay)
    )]
    drain_delay: HumanDuration,
    /// A drain never ends sooner.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_MIN_DRAIN_DURATION",
        default_value_t = HumanDuration(product_defaults().timing.min_drain_duration)
    )]
    min_drain_duration: HumanDuration,
    /// A drain ends by then, whatever is left.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_DRAIN_TIMEOUT",
        default_value_t = HumanDuration(product_defaults().timing.drain_timeout)
    )]
    drain_timeout: HumanDuration,
    /// A drain ends when only idle HTTP connections were left for so long; off waits for them.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_IDLE_EXIT",
        default_value_t = IdleExit(product_defaults().timing.idle_exit)
    )]
    idle_exit: IdleExit,
    /// A drain ends only when no new connection came for so long.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_QUIET_PERIOD",
        default_value_t = HumanDuration(product_defaults().timing.quiet_period)
    )]
    quiet_period: HumanDuration,
    /// The pause between two looks of a drainer at its Envoy.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_POLL_INTERVAL",
        default_value_t = HumanDuration(product_defaults().timing.poll_interval)
    )]
    poll_interval: HumanDuration,
    /// What a pod's grace period has beyond its drain, for Envoy's own end.
    #[arg(
        long,
        value_name = "DURATION",
        env = "ENVOY_DRAINER_GRACE_MARGIN",
        default_value_t = HumanDuration(product_defaults().grace_margin)
    )]
    grace_margin: HumanDuration,
    /// The CPU that a drainer requests.
    #[arg(
        long,
        value_name = "QUANTITY",
        env = "ENVOY_DRAINER_CPU_REQUEST",
        default_value_t = product_defaults().resources.cpu_request.clone()
    )]
    cpu_request: Quantity,
    /// The memory that a drainer requests.
    #[arg(
        long,
        value_name = "QUANTITY",
        env = "ENVOY_DRAINER_MEMORY_REQUEST",
        default_value_t = product_defaults().resources.memory_request.clone()
    )]
    memory_request: Quantity,
    /// The most CPU that a drainer gets.
    #[arg(
        long,
        value_name = "QUANTITY",
        env = "ENVOY_DRAINER_CPU_LIMIT",
        default_value_t = product_defaults().resources.cpu_limit.clone()
    )]
    cpu_limit: Quantity,
    /// The most memory that a drainer gets.
    #[arg(
        long,
        value_name = "QUANTITY",
        env = "ENVOY_DRAINER_MEMORY_LIMIT",
        default_value_t = product_defaults().resources.memory_limit.clone()
    )]
    memory_limit: Quantity,
    /// What drainers log: error, warn, info, debug or trace.
    #[arg(
        long,
        value_name = "LEVEL",
        env = "ENVOY_DRAINER_DRAINER_LOG_LEVEL",
        default_value = "info"
    )]
    drainer_log_level: Level,
}

/// [`OnInvalid`] as the flag writes it.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum OnInvalidArg {
    /// It is refused.
    #[default]
    Deny,
    /// The setting's default is used with a warning.
    Warn,
}

/// Why flags give no defaults: all reasons.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidDefaults(Vec<String>);

/// The product's own defaults; image and namespace are not among them.
fn product_defaults() -> Defaults {
    Defaults::new("", "")
}

// === impl PodDefaultsArgs ===

impl PodDefaultsArgs {
    /// The defaults that the flags give.
    ///
    /// # Errors
    /// When they would break the pods they are for: all reasons.
    pub fn into_defaults(self) -> Result<Defaults, InvalidDefaults> {
        let Self {
            image,
            release_namespace,
            on_invalid,
            admin_address,
            native_sidecar,
            openshift,
            drain_delay: HumanDuration(drain_delay),
            min_drain_duration: HumanDuration(min_drain_duration),
            drain_timeout: HumanDuration(drain_timeout),
            idle_exit: IdleExit(idle_exit),
            quiet_period: HumanDuration(quiet_period),
            poll_interval: HumanDuration(poll_interval),
            grace_margin: HumanDuration(grace_margin),
            cpu_request,
            memory_request,
            cpu_limit,
            memory_limit,
            drainer_log_level,
        } = self;
        let timing = Timing::try_new(Durations {
            drain_delay,
            min_drain_duration,
            drain_timeout,
            idle_exit,
            quiet_period,
            poll_interval,
        });
        let resources = DrainerResources::try_new(ResourceAmounts {
            cpu_request,
            memory_request,
            cpu_limit,
            memory_limit,
        });
        let (image, timing, resources) = match (parse_image(image), timing, resources) {
            (Ok(image), Ok(timing), Ok(resources)) => (image, timing, resources),
            (image, timing, resources) => {
                let mut reasons: Vec<_> = image.err().into_iter().collect();
                reasons.extend(describe(timing.err()));
                reasons.extend(describe(resources.err()));
                return Err(InvalidDefaults(reasons));
            }
        };
        Ok(Defaults {
            image,
            admin_address,
            native_sidecar,
            open_shift: openshift,
            timing,
            grace_margin,
            log_level: drainer_log_level,
            on_invalid: on_invalid.into(),
            release_namespace,
            resources,
        })
    }
}

/// Returns an image's name. With an empty one, or with spaces around it, the API server refuses the
/// pod; with spaces in it, the kubelet does.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go>
fn parse_image(image: String) -> Result<String, String> {
    if image.is_empty() || image.contains(char::is_whitespace) {
        return Err(format!(
            "image: invalid name `{image}`: the drainer's image without spaces, best with a digest"
        ));
    }
    Ok(image)
}

fn describe(reasons: Option<Vec<impl ToString>>) -> impl Iterator<Item = String> {
    let reasons = reasons.into_iter().flatten();
    reasons.map(|reason| reason.to_string())
}

// === impl OnInvalid ===

impl From<OnInvalidArg> for OnInvalid {
    fn from(invalid: OnInvalidArg) -> Self {
        match invalid {
            OnInvalidArg::Deny => Self::Deny,
            OnInvalidArg::Warn => Self::Warn,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        defaults: PodDefaultsArgs,
    }

    fn read(flags: &[&str]) -> anyhow::Result<Defaults> {
        let flags = ["test", "--image", "drainer:1"].iter().chain(flags);
        Ok(Command::try_parse_from(flags)?.defaults.into_defaults()?)
    }

    #[test]
    fn without_flags_they_are_the_products() {
        let wanted = Defaults::new("drainer:1", "envoy-drainer");
        assert_eq!(read(&[]).unwrap(), wanted);
    }

    #[test]
    fn every_flag_changes_its_own_default() {
        fn quantity(text: &str) -> Quantity {
            text.parse().unwrap()
        }
        fn timing(defaults: &mut Defaults, change: impl FnOnce(&mut Durations)) {
            let mut durations = *defaults.timing;
            change(&mut durations);
            defaults.timing = Timing::try_new(durations).unwrap();
        }
        fn resources(defaults: &mut Defaults, change: impl FnOnce(&mut ResourceAmounts)) {
            let mut amounts = (*defaults.resources).clone();
            change(&mut amounts);
            defaults.resources = DrainerResources::try_new(amounts).unwrap();
        }
        const HALF: Duration = Duration::from_secs(30);
        type Change = fn(&mut Defaults);
        let table: [(&str, Change); 17] = [
            ("--release-namespace=infra", |d| {
                d.release_namespace = "infra".into()
            }),
            ("--on-invalid=warn", |d| d.on_invalid = OnInvalid::Warn),
            ("--admin-address=unix:@admin", |d| {
                d.admin_address = AdminAddress::Abstract("admin".into())
            }),
            ("--native-sidecar=false", |d| d.native_sidecar = false),
            ("--openshift", |d| d.open_shift = true),
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
            ("--poll-interval=30s", |d| {
                timing(d, |t| t.poll_interval = HALF)
            }),
            ("--grace-margin=30s", |d| d.grace_margin = HALF),
            ("--cpu-request=7m", |d| {
                resources(d, |r| r.cpu_request = quantity("7m"))
            }),
            ("--memory-request=7Mi", |d| {
                resources(d, |r| r.memory_request = quantity("7Mi"))
            }),
            ("--cpu-limit=7", |d| {
                resources(d, |r| r.cpu_limit = quantity("7"))
            }),
            ("--memory-limit=7Gi", |d| {
                resources(d, |r| r.memory_limit = quantity("7Gi"))
            }),
            ("--drainer-log-level=debug", |d| d.log_level = Level::DEBUG),
        ];
        for (flag, change) in table {
            let mut wanted = Defaults::new("drainer:1", "envoy-drainer");
            change(&mut wanted);
            assert_eq!(read(&[flag]).unwrap(), wanted, "{flag}");
        }
    }

    #[test]
    fn everything_that_does_not_fit_is_told_at_once() {
        for (flags, wanted) in [
            (
                ["--image=", "--cpu-limit=0"].as_slice(),
                "image: invalid name ``: the drainer's image without spaces, best with a digest; \
                 cpu-limit: invalid quantity `0`: more than 0; \
                 cpu-request 25m (default) is more than cpu-limit 0: lower the one or raise the other",
            ),
            (
                &[
                    "--image= drainer:1",
                    "--drain-timeout=5s",
                    "--memory-limit=16Mi",
                ],
                "image: invalid name ` drainer:1`: the drainer's image without spaces, best with a digest; \
                 drain-timeout 5s is less than min-drain-duration 10s (default): raise the one or lower the other; \
                 memory-limit: invalid limit `16Mi`: at least 24Mi, which the container runtime itself needs",
            ),
        ] {
            let flags = ["test"].iter().chain(flags);
            let defaults = Command::try_parse_from(flags).unwrap().defaults;
            let told = defaults.into_defaults().unwrap_err().to_string();
            assert_eq!(told, wanted);
        }
    }

    #[test]
    fn values_and_timings_that_cannot_be_are_told() {
        for (flags, wanted) in [
            (
                ["--drain-timeout=5s"].as_slice(),
                "drain-timeout 5s is less than min-drain-duration 10s (default)",
            ),
            (
                &["--poll-interval=0s"],
                "poll-interval 0s: give at least 1ms",
            ),
            (&["--idle-exit=never"], "7s, 1m30s or 400ms, or off"),
            (&["--drain-delay=5"], "invalid duration `5`"),
            (&["--memory-limit=64MB"], "invalid quantity `64MB`"),
            (
                &["--admin-address=localhost:9901"],
                "invalid admin address `localhost:9901`",
            ),
        ] {
            let told = format!("{:#}", read(flags).unwrap_err());
            assert!(told.contains(wanted), "{flags:?}: {told}");
        }
    }
}
