//! Everything that is settled for a pod that gets a drainer.

use std::fmt;
use std::time::Duration;

use drainer::{Config, Timing, Token};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Volume};
use serde::Serialize;
use serde_json::value::RawValue;

use super::admin::{self, Admin};
use super::codes::{Code, Notice};
use super::container::{self, NAME};
use super::defaults::Defaults;
use super::envoy::{self, Envoy};
use super::settings::{ExistingHook, NativeSidecar, Settings};
use super::view::PodView;
use super::{probes, resources, socket};

/// A pod's drain: what is added to the pod, and all that was decided on the way.
#[derive(Debug, Clone)]
pub struct DrainPlan {
    /// Envoy's container.
    pub envoy: Envoy,
    /// Envoy's admin interface.
    pub admin: Admin,
    /// Each setting with its source.
    pub settings: Settings,
    /// What the drainer is told.
    pub drainer: Config,
    /// The form of the drainer's container.
    pub sidecar: Sidecar,
    /// The pod's grace period.
    pub grace: Grace,
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
pub enum Sidecar {
    /// An init container with `restartPolicy: Always`, which ends after the pod's containers.
    Native,
    /// One of the pod's containers.
    Plain,
}

/// `terminationGracePeriodSeconds`, before and after; never less after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Grace {
    /// The pod's own, in seconds.
    pub from: i64,
    /// What it becomes, in seconds.
    pub to: i64,
}

/// Kubernetes' default grace period, in seconds.
const DEFAULT_GRACE: i64 = 30;

/// The most that the cluster autoscaler waits for a pod unless it is told otherwise, in seconds.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-does-scale-down-work>
const AUTOSCALER_PATIENCE: i64 = 600;

// === impl DrainPlan ===

impl DrainPlan {
    /// Settles everything.
    ///
    /// # Errors
    /// With everything that stands in the way: skips and refusals.
    pub(super) fn try_new(
        pod: &PodView<'_>,
        settings: Settings,
        timing: Timing,
        in_job: bool,
        token: Token,
        defaults: &Defaults,
        warnings: &mut Vec<Notice>,
    ) -> Result<Self, Vec<Notice>> {
        let mut obstacles = Vec::new();
        let sidecar = Sidecar::of(settings.native_sidecar.value, in_job, defaults);
        let sidecar = sidecar.map_err(|obstacle| obstacles.push(obstacle));
        obstacles.extend(clash(pod, &settings));
        let named = settings.envoy_container.value.as_deref();
        let (envoy, container) = match envoy::find(pod, named) {
            Ok(found) => found,
            Err(obstacle) => {
                obstacles.push(obstacle);
                return Err(obstacles);
            }
        };
        let replaced_hook = container.pre_stop().map(ToOwned::to_owned);
        if replaced_hook.is_some() && settings.existing_hook.value == ExistingHook::Keep {
            let detail = format!("container `{}` has a preStop hook already", envoy.name);
            obstacles.push(Code::ExistingHook.about(detail));
        }
        let admin = admin::find(
            container,
            settings.admin_address.value.as_ref(),
            defaults,
            warnings,
        );
        let access = socket::access(&admin.address, container, pod, warnings);
        let access = access.map_err(|obstacle| obstacles.push(obstacle));
        let (Ok(sidecar), Ok(access), []) = (sidecar, access, &obstacles[..]) else {
            return Err(obstacles);
        };
        let drainer = Config {
            port: settings.port.value,
            host_network: pod.spec.host_network == Some(true),
            timing,
            exit_at_connections: settings.exit_at_connections.value,
            ignore_listeners: settings.ignore_listeners.value.clone(),
            readiness_probes: probes::readiness(pod),
            log_level: defaults.log_level,
            ..Config::new(admin.address.clone(), token)
        };
        let resources = resources::requirements(pod, &settings);
        Ok(Self {
            grace: Grace::of(
                pod.spec.termination_grace_period_seconds,
                &timing,
                defaults.grace_margin,
            ),
            hook: container::hook(&drainer),
            container: container::container(&drainer, sidecar, access, resources, defaults),
            volume: container::volume(),
            envoy,
            admin,
            settings,
            drainer,
            sidecar,
            replaced_hook,
        })
    }
}

/// What the drainer needs and the pod has given away.
fn clash(pod: &PodView<'_>, settings: &Settings) -> Option<Notice> {
    let port = settings.port.value.get();
    let _ = port;
    let mut volumes = pod.spec.volumes.iter().flatten();
    volumes
        .any(|volume| volume.name.as_deref() == Some(NAME))
        .then(|| Code::NameTaken.about(format!("the pod has a volume `{NAME}` of its own")))
}

// === impl Sidecar ===

impl Sidecar {
    fn of(asked: NativeSidecar, in_job: bool, defaults: &Defaults) -> Result<Self, Notice> {
        match asked {
            NativeSidecar::True => Ok(Self::Native),
            NativeSidecar::Auto if defaults.native_sidecar => Ok(Self::Native),
            NativeSidecar::Auto if in_job => Err(Code::PlainSidecarInJob.about(
                "this cluster's drainers are plain containers, which never let a Job complete",
            )),
            NativeSidecar::False if in_job => Err(Code::PlainSidecarInJobAsked.about(
                "`native-sidecar: false`: a plain container would never let the Job complete",
            )),
            NativeSidecar::Auto | NativeSidecar::False => Ok(Self::Plain),
        }
    }
}

impl fmt::Display for Sidecar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native sidecar",
            Self::Plain => "plain container",
        })
    }
}

// === impl Grace ===

impl Grace {
    /// What the pod has, raised to what the drain may take.
    fn of(present: Option<i64>, timing: &Timing, margin: Duration) -> Self {
        let from = present.unwrap_or(DEFAULT_GRACE);
        let needed = timing.deadline().saturating_add(margin);
        let needed = needed.as_secs() + u64::from(needed.subsec_nanos() > 0);
        Self {
            from,
            to: from.max(i64::try_from(needed).unwrap_or(i64::MAX)),
        }
    }
}
