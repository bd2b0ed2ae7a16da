//! The plan of a pod's drain: what is added to the pod, and the values from which it follows.

pub(crate) mod admin_endpoint;
pub(crate) mod admin_socket;
pub(crate) mod bootstrap;
pub(crate) mod conflicts;
pub(crate) mod drain_flags;
pub(crate) mod envoy_container;
pub(crate) mod readiness_probes;
pub(crate) mod sidecar_container;
pub(crate) mod sidecar_resources;

use std::time::Duration;

use drainer::{Config, DrainSettings, Timing};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Volume};
use serde::Serialize;
use serde_json::value::RawValue;

use self::admin_endpoint::AdminEndpoint;
use self::admin_socket::AdminSocketMount;
use self::envoy_container::EnvoyContainer;
use super::context::PodContext;
use super::defaults::Defaults;
use super::diagnostics::{Code, Diagnostic, Diagnostics, Effect};
use super::pod::{ContainerList, PodView};
use super::settings::{ExistingHook, Settings};
use super::sidecar_mode::SidecarMode;

/// The plan of a pod's drain: the objects that are added to the pod, and each value from which they follow.
#[derive(Debug, Clone)]
pub struct DrainPlan {
    /// Envoy's container.
    pub envoy: EnvoyContainer,
    /// Envoy's admin interface.
    pub admin: AdminEndpoint,
    /// Each setting with its source.
    pub settings: Settings,
    /// The drainer's configuration, which becomes its arguments.
    pub drainer: Config,
    /// The form of the drainer's container.
    pub sidecar: SidecarMode,
    /// The pod's grace period.
    pub grace: GracePeriod,
    /// Envoy's preStop hook.
    pub hook: LifecycleHandler,
    /// The hook that [`Self::hook`] replaces, as it was written.
    pub replaced_hook: Option<Box<RawValue>>,
    /// What is added to the end of the `args` of Envoy's container.
    pub added_args: Vec<String>,
    /// The drainer's container.
    pub container: Container,
    /// The drainer's volume.
    pub volume: Volume,
}

/// `terminationGracePeriodSeconds`, before and after injection; it is never lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GracePeriod {
    /// The pod's own, in seconds.
    pub from: i64,
    /// The new one, in seconds.
    pub to: i64,
}

/// Kubernetes' default grace period, in seconds.
const DEFAULT_GRACE_PERIOD: i64 = 30;

/// How long the cluster autoscaler waits for a pod to terminate by default, in seconds.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-does-scale-down-work>
const AUTOSCALER_LIMIT: i64 = 600;

// === impl DrainPlan ===

impl DrainPlan {
    /// Plans the drain of a pod. Warnings and every failure, at least one if there is no plan, go to `diagnostics`.
    pub(super) fn try_new(
        pod: &PodView<'_>,
        mut settings: Settings,
        context: &PodContext<'_>,
        defaults: &Defaults,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let name = settings.envoy_container.0.as_deref();
        let envoy = envoy_container::find(pod, name, diagnostics);
        let is_skip = |failure: &Diagnostic| failure.code.effect() == Effect::Skip;
        let is_skipped = envoy.as_ref().is_err_and(is_skip);
        let envoy = diagnostics.fail(envoy);
        if is_skipped {
            // A pod that is not drained has no other conflicts to report.
            return None;
        }
        let sidecar = SidecarMode::try_new(settings.native_sidecar, context.in_job, defaults);
        let sidecar = diagnostics.fail(sidecar);
        diagnostics.failures.extend(conflicts::check_names(pod));
        let Some((envoy, container)) = envoy else {
            let port = conflicts::free_port(pod, &settings, None, diagnostics);
            diagnostics.fail(port);
            return None;
        };
        let replaced_hook = container.pre_stop().map(ToOwned::to_owned);
        if replaced_hook.is_some() && settings.existing_hook == ExistingHook::Keep {
            let detail = format!("container `{}` has a preStop hook already", envoy.name);
            diagnostics
                .failures
                .push(Code::ExistingHook.diagnostic(detail));
        }
        let annotated = settings.annotated_admin_address();
        let admin = admin_endpoint::find(container, annotated, defaults, diagnostics);
        let mount =
            AdminSocketMount::covering(&admin.address, container, pod, defaults, diagnostics);
        let mount = diagnostics.fail(mount);
        let port = conflicts::free_port(pod, &settings, Some(&admin.address), diagnostics);
        let port = diagnostics.fail(port);
        let added_args = drain_flags::missing_flags(container, &settings, diagnostics);
        let added_args = diagnostics.fail(added_args);
        if !diagnostics.failures.is_empty() {
            return None;
        }
        let (sidecar, mount, port, added_args) = (sidecar?, mount?, port?, added_args?);
        settings.use_free_port(port);
        let drainer = Config {
            settings: DrainSettings {
                admin_address: admin.address.clone(),
                ..settings.drain.clone()
            },
            host_network: pod.spec.host_network == Some(true),
            timing: settings.timing(),
            readiness_probes: readiness_probes::readiness_probes(pod),
            log_level: defaults.log_level,
            ..Config::new(admin.address.clone(), context.token)
        };
        let resources = sidecar_resources::requirements(pod, &settings, diagnostics);
        let present = pod.spec.termination_grace_period_seconds;
        Some(Self {
            grace: GracePeriod::new(present, &drainer.timing, defaults.grace_margin, diagnostics),
            hook: sidecar_container::hook(&drainer),
            container: sidecar_container::container(&drainer, sidecar, mount, resources, defaults),
            volume: sidecar_container::volume(),
            envoy,
            admin,
            settings,
            drainer,
            sidecar,
            replaced_hook,
            added_args,
        })
    }

    /// Returns true if the drainer's container comes directly before Envoy's: the kubelet stops native sidecars in
    /// reverse order, so that the drainer outlives an Envoy that is one.
    pub fn is_before_envoy(&self) -> bool {
        self.sidecar == SidecarMode::Native
            && self.envoy.container_ref.list == ContainerList::InitContainers
    }
}

// === impl GracePeriod ===

impl GracePeriod {
    /// Raises the pod's grace period to the drain's deadline and `margin`, rounded up to seconds.
    fn new(
        present: Option<i64>,
        timing: &Timing,
        margin: Duration,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let needed = timing.time_limit().saturating_add(margin);
        let needed = needed.as_nanos().div_ceil(1_000_000_000);
        let needed = i64::try_from(needed).unwrap_or(i64::MAX);
        if needed > AUTOSCALER_LIMIT {
            diagnostics.warn(Code::LongGracePeriod.diagnostic(format!(
                "the pod may take {needed}s to terminate, longer than the cluster autoscaler waits by default"
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
    fn grace_period_covers_the_drain_and_is_never_lowered() {
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
            let mut diagnostics = Diagnostics::default();
            let grace = GracePeriod::new(
                present,
                &timing.unwrap(),
                Duration::from_secs(15),
                &mut diagnostics,
            );
            assert_eq!(
                (grace, diagnostics.warnings),
                (GracePeriod { from, to }, vec![]),
                "{present:?} {delay} {timeout}"
            );
        }
    }

    #[test]
    fn grace_period_beyond_the_autoscalers_limit_warns() {
        for (timeout, warned) in [(585, false), (586, true), (86_400, true)] {
            let timing = Timing::try_new(Durations {
                drain_timeout: Duration::from_secs(timeout),
                ..Durations::default()
            });
            let mut diagnostics = Diagnostics::default();
            let margin = Duration::from_secs(15);
            let grace = GracePeriod::new(None, &timing.unwrap(), margin, &mut diagnostics);
            assert!(grace.to >= 600);
            assert_eq!(
                diagnostics.warnings.len(),
                usize::from(warned),
                "{timeout}: {:?}",
                diagnostics.warnings
            );
        }
    }
}
