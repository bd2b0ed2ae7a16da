//! Everything that is settled for a pod that gets a drainer.

pub(crate) mod admin_endpoint;
pub(crate) mod admin_socket;
pub(crate) mod bootstrap;
pub(crate) mod conflicts;
pub(crate) mod envoy_container;
pub(crate) mod readiness_probes;
pub(crate) mod sidecar_container;
pub(crate) mod sidecar_resources;

use std::fmt;
use std::time::Duration;

use drainer::{Config, Timing};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Volume};
use serde::Serialize;
use serde_json::value::RawValue;

use self::admin_endpoint::AdminEndpoint;
use self::admin_socket::AdminSocketMount;
use self::envoy_container::EnvoyContainer;
use super::decide::PodContext;
use super::defaults::Defaults;
use super::diagnostics::{Code, Diagnostic, Effect};
use super::pod::PodView;
use super::settings::{ExistingHook, NativeSidecar, Settings};

/// A pod's drain: what is added to the pod, and all that was decided on the way.
#[derive(Debug, Clone)]
pub struct DrainPlan {
    /// Envoy's container.
    pub envoy: EnvoyContainer,
    /// Envoy's admin interface.
    pub admin: AdminEndpoint,
    /// Each setting with its source.
    pub settings: Settings,
    /// What the drainer is told.
    pub drainer: Config,
    /// The form of the drainer's container.
    pub sidecar: SidecarMode,
    /// The pod's grace period.
    pub grace: GracePeriod,
    /// Envoy's preStop hook.
    pub hook: LifecycleHandler,
    /// The hook in whose place ours comes, as it was written.
    pub replaced_hook: Option<Box<RawValue>>,
    /// The drainer's container.
    pub container: Container,
    /// The drainer's volume.
    pub volume: Volume,
}

/// The form of the drainer's container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SidecarMode {
    /// An init container with `restartPolicy: Always`, which ends after the pod's containers.
    Native,
    /// One of the pod's containers.
    Plain,
}

/// `terminationGracePeriodSeconds`, before and after; never less after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GracePeriod {
    /// The pod's own, in seconds.
    pub from: i64,
    /// What it becomes, in seconds.
    pub to: i64,
}

/// Kubernetes' default grace period, in seconds.
const DEFAULT_GRACE_PERIOD: i64 = 30;

/// The most that the cluster autoscaler waits for a pod unless it is told otherwise, in seconds.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-does-scale-down-work>
const AUTOSCALER_LIMIT: i64 = 600;

// === impl DrainPlan ===

impl DrainPlan {
    /// Settles everything.
    ///
    /// # Errors
    /// With everything that stands in the way, skips and refusals: at least one.
    pub(super) fn try_new(
        pod: &PodView<'_>,
        mut settings: Settings,
        facts: &PodContext<'_>,
        defaults: &Defaults,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut obstacles = Vec::new();
        let named = settings.envoy_container.value.as_deref();
        let found = match envoy_container::find(pod, named, warnings) {
            // Nothing else can be in the way of a drain that there is not.
            Err(none) if none.code.effect() == Effect::Skip => return Err(vec![none]),
            found => found.map_err(|obstacle| obstacles.push(obstacle)),
        };
        let form = SidecarMode::try_new(settings.native_sidecar.value, facts.in_job, defaults);
        let sidecar = form.map_err(|obstacle| obstacles.push(obstacle));
        obstacles.extend(conflicts::check_names(pod));
        let Ok((envoy, container)) = found else {
            obstacles.extend(conflicts::free_port(pod, &settings.port, None, warnings).err());
            return Err(obstacles);
        };
        let replaced_hook = container.pre_stop().map(ToOwned::to_owned);
        if replaced_hook.is_some() && settings.existing_hook.value == ExistingHook::Keep {
            let detail = format!("container `{}` has a preStop hook already", envoy.name);
            obstacles.push(Code::ExistingHook.diagnostic(detail));
        }
        let told = settings.admin_address.value.as_ref();
        let admin = admin_endpoint::find(container, told, defaults, warnings);
        let access = AdminSocketMount::covering(&admin.address, container, pod, defaults, warnings)
            .map_err(|obstacle| obstacles.push(obstacle));
        let port = conflicts::free_port(pod, &settings.port, Some(&admin.address), warnings)
            .map_err(|obstacle| obstacles.push(obstacle));
        let (Ok(sidecar), Ok(access), Ok(port), true) =
            (sidecar, access, port, obstacles.is_empty())
        else {
            return Err(obstacles);
        };
        settings.port = port;
        let drainer = Config {
            port: port.value,
            host_network: pod.spec.host_network == Some(true),
            timing: settings.timing(),
            exit_at_connections: settings.exit_at_connections.value,
            ignore_listeners: settings.ignore_listeners.value.clone(),
            readiness_probes: readiness_probes::readiness_probes(pod),
            log_level: defaults.log_level,
            ..Config::new(admin.address.clone(), facts.token)
        };
        let resources = sidecar_resources::requirements(pod, &settings, warnings);
        let present = pod.spec.termination_grace_period_seconds;
        Ok(Self {
            grace: GracePeriod::new(present, &drainer.timing, defaults.grace_margin, warnings),
            hook: sidecar_container::hook(&drainer),
            container: sidecar_container::container(&drainer, sidecar, access, resources, defaults),
            volume: sidecar_container::volume(),
            envoy,
            admin,
            settings,
            drainer,
            sidecar,
            replaced_hook,
        })
    }
}

// === impl SidecarMode ===

impl SidecarMode {
    /// The form that was asked for, or else the installation's. A Job's pod cannot ask for the plain
    /// one, which [`Settings`] has ruled out.
    fn try_new(
        asked: NativeSidecar,
        in_job: bool,
        defaults: &Defaults,
    ) -> Result<Self, Diagnostic> {
        match asked {
            NativeSidecar::True => Ok(Self::Native),
            NativeSidecar::False => Ok(Self::Plain),
            NativeSidecar::Auto if defaults.native_sidecar => Ok(Self::Native),
            NativeSidecar::Auto if in_job => Err(Code::PlainSidecarInJob.diagnostic(
                "drainers are plain containers here, and the Job would never complete",
            )),
            NativeSidecar::Auto => Ok(Self::Plain),
        }
    }
}

impl fmt::Display for SidecarMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native sidecar",
            Self::Plain => "plain container",
        })
    }
}

// === impl GracePeriod ===

impl GracePeriod {
    /// What the pod has, raised to what its end may take, rounded up.
    fn new(
        present: Option<i64>,
        timing: &Timing,
        margin: Duration,
        warnings: &mut Vec<Diagnostic>,
    ) -> Self {
        let needed = timing.deadline().saturating_add(margin);
        let needed = needed.as_nanos().div_ceil(1_000_000_000);
        let needed = i64::try_from(needed).unwrap_or(i64::MAX);
        if needed > AUTOSCALER_LIMIT {
            warnings.push(Code::LongGrace.diagnostic(format!(
                "the pod may take {needed}s to end, longer than the cluster autoscaler waits by default"
            )));
        }
        let from = present.unwrap_or(DEFAULT_GRACE_PERIOD);
        Self {
            from,
            to: from.max(needed),
        }
    }
}

#[cfg(test)]
mod tests {
    use drainer::Durations;

    use super::*;

    #[test]
    fn the_grace_is_raised_to_what_the_end_may_take_and_never_lowered() {
        let table = [
            (None, 0, 60_000, 30, 75),
            (Some(0), 0, 60_000, 0, 75),
            (Some(75), 0, 60_000, 75, 75),
            (Some(76), 0, 60_000, 76, 76),
            (Some(30), 1, 60_000, 30, 76),
            (Some(30), 5_000, 10_000, 30, 30),
            (Some(-1), 0, 10_000, -1, 25),
            (Some(i64::MAX), 0, 60_000, i64::MAX, i64::MAX),
        ];
        for (present, delay, timeout, from, to) in table {
            let timing = Timing::try_new(Durations {
                drain_delay: Duration::from_millis(delay),
                drain_timeout: Duration::from_millis(timeout),
                ..Durations::default()
            });
            let mut warnings = Vec::new();
            let grace = GracePeriod::new(
                present,
                &timing.unwrap(),
                Duration::from_secs(15),
                &mut warnings,
            );
            assert_eq!(
                (grace, warnings),
                (GracePeriod { from, to }, vec![]),
                "{present:?} {delay} {timeout}"
            );
        }
    }

    #[test]
    fn a_grace_that_we_make_longer_than_the_autoscaler_waits_is_a_warning() {
        for (timeout, warned) in [(585, false), (586, true), (86_400, true)] {
            let timing = Timing::try_new(Durations {
                drain_timeout: Duration::from_secs(timeout),
                ..Durations::default()
            });
            let mut warnings = Vec::new();
            let margin = Duration::from_secs(15);
            let grace = GracePeriod::new(None, &timing.unwrap(), margin, &mut warnings);
            assert!(grace.to >= 600);
            assert_eq!(
                warnings.len(),
                usize::from(warned),
                "{timeout}: {warnings:?}"
            );
        }
    }

    #[test]
    fn the_form_is_what_was_asked_for_or_else_the_installations() {
        let table = [
            (NativeSidecar::True, true, true, Ok(SidecarMode::Native)),
            (NativeSidecar::True, false, true, Ok(SidecarMode::Native)),
            (NativeSidecar::False, true, false, Ok(SidecarMode::Plain)),
            (NativeSidecar::Auto, true, true, Ok(SidecarMode::Native)),
            (NativeSidecar::Auto, true, false, Ok(SidecarMode::Native)),
            (NativeSidecar::Auto, false, false, Ok(SidecarMode::Plain)),
            (
                NativeSidecar::Auto,
                false,
                true,
                Err(Code::PlainSidecarInJob),
            ),
        ];
        for (asked, native_sidecar, in_job, want) in table {
            let defaults = Defaults {
                native_sidecar,
                ..Defaults::new("", "")
            };
            let sidecar = SidecarMode::try_new(asked, in_job, &defaults);
            assert_eq!(
                sidecar.map_err(|notice| notice.code),
                want,
                "{asked:?} {native_sidecar} {in_job}"
            );
        }
    }
}
