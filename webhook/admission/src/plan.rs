//! The plan of a pod's drain: what is added to the pod, and the values from which it follows.

mod admin_endpoint;
mod admin_socket;
mod containers;
mod envoy;
mod flags;
mod ports;
mod redirection;
mod server;
mod sidecar;

use std::num::NonZeroU16;
use std::time::Duration;

use drainer::{Config, ListenerSelector, MAX_DURATION, Token, WebhookAccess};
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Volume};
use serde::Serialize;
use serde_json::value::RawValue;

use self::admin_socket::AdminSocketMount;
use self::containers::FoundContainer;
use self::ports::PortsInUse;
use super::diagnostics::{Code, Diagnostics, Effect};
use super::pod::{self, ContainerList, ContainerRef, PodView};
use super::settings::{Defaults, ExistingHook, HookedContainers, SettingSource, Settings};
use super::shutdown_manager::ShutdownManager;

pub use self::admin_endpoint::{
    AdminAddressSource, AdminCandidates, AdminEndpoint, Bootstrap, EnvoyConfiguration,
    EnvoyConfigurations,
};
pub use self::containers::ExtraHook;
pub(super) use self::containers::late_hooks;
pub(super) use self::envoy::is_certain;
pub use self::envoy::{EnvoyContainer, EnvoyContainerSource, known_envoys};
pub use self::flags::DEFAULT_DRAIN_TIME;
pub(super) use self::flags::whole_seconds;
pub use self::sidecar::SidecarMode;
pub(super) use self::sidecar::{drain_hook, host_ports, wait_hook};

/// What is known about a pod apart from its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodContext<'a> {
    /// The namespace of the request; if it is `None`, the manifest's applies.
    pub namespace: Option<&'a str>,
    /// Whether the pod is known to belong to a Job. A pod that a Job owns says so itself; the template of
    /// a Job does not.
    pub in_job: bool,
    /// The token in the path of Envoy's hook: random at admission; in `inject` and `explain` derived from the
    /// document by [`token`].
    pub token: Token,
    /// Whether pods of the namespace get a drainer without asking, where their Envoy is certain.
    pub injects_all: bool,
    /// What `inject` and `explain` have read of Envoy's configuration; `None` at admission, which reads nothing.
    pub configurations: Option<&'a EnvoyConfigurations>,
}

impl<'a> PodContext<'a> {
    /// A pod outside of a Job, of whose Envoy's configuration nothing is known.
    #[must_use]
    pub fn new(namespace: Option<&'a str>, token: Token) -> Self {
        Self {
            namespace,
            in_job: false,
            token,
            injects_all: false,
            configurations: None,
        }
    }

    /// Returns what is known of the configuration of a container; `None` where no configuration is read.
    fn configuration(&self, container: &str) -> Option<EnvoyConfiguration> {
        let configurations = self.configurations?;
        Some(configurations.get(container).cloned().unwrap_or_default())
    }
}

/// The plan of a pod's drain: the objects that are added to the pod, and each value from which they follow.
#[derive(Debug, Clone)]
pub struct DrainPlan {
    pub envoy: EnvoyContainer,
    pub admin: AdminCandidates,
    pub settings: Settings,
    /// The drainer's configuration, which becomes its arguments.
    pub drainer: Config,
    pub sidecar: SidecarMode,
    pub grace: GracePeriod,
    pub hook: LifecycleHandler,
    /// The hook that [`Self::hook`] replaces, as it was written.
    pub replaced_hook: Option<Box<RawValue>>,
    /// What is added to the end of the `args` of Envoy's container.
    pub added_args: Vec<String>,
    /// The shutdown manager whose container is removed.
    pub adopted: Option<ShutdownManager>,
    /// Whether Envoy's container moves to the end of the init containers, as a native sidecar.
    pub is_envoy_moved: bool,
    pub extra_hooks: Vec<ExtraHook>,
    /// The other containers that get SIGTERM when the pod is deleted.
    pub ended_at_once: Vec<String>,
    /// How long the readiness probe of Envoy's container takes to fail; `None` without one.
    pub readiness_failure: Option<Duration>,
    pub container: Container,
    pub volumes: Vec<Volume>,
}

/// The parts of a plan, all of which were found without a failure.
struct Parts<'p, 'a> {
    envoy: EnvoyContainer,
    /// Envoy's container.
    container: &'p pod::Container<'a>,
    sidecar: SidecarMode,
    admin: AdminCandidates,
    socket: AdminSocketMount,
    /// The drainer's port.
    port: NonZeroU16,
    added_args: Vec<String>,
    is_envoy_moved: bool,
    /// The other containers that wait for the drain.
    hooked: Vec<FoundContainer<'p, 'a>>,
    /// The ports of a server, and those on which no connection is idle.
    server_ports: (Vec<ListenerSelector>, Vec<ListenerSelector>),
    webhook: WebhookAccess,
}

/// `terminationGracePeriodSeconds`, before and after injection; it is never lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GracePeriod {
    pub from: i64,
    pub to: i64,
}

/// How long the cluster autoscaler waits for a pod to terminate by default, in seconds.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-does-scale-down-work>
pub const AUTOSCALER_LIMIT: i64 = 600;

/// Derives a pod's token from its document, for `inject` and `explain`, so that the same document always
/// gives the same output: a token that changed with each rendering would roll the pods.
///
/// The hash is FNV-1a, which is fixed; std's hasher may change. Those who can read the document can
/// compute the token, and the output contains it. At admission it is random instead.
pub fn token(source: &[u8]) -> Token {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    Token(source.iter().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    }))
}

// === impl DrainPlan ===

impl DrainPlan {
    /// Plans the drain of a pod; `pod` is without the container of its `adopted` manager. Returns `None` for at least
    /// one failure. All failures, and the warnings, are added to `diagnostics`, which have no failure before.
    pub(super) fn try_new(
        pod: &PodView<'_>,
        adopted: Option<ShutdownManager>,
        mut settings: Settings,
        context: &PodContext<'_>,
        defaults: &Defaults,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let parts = Parts::find(pod, &mut settings, context, defaults, diagnostics)?;
        redirection::check_redirection(pod, parts.port, diagnostics);
        envoy::check_others(pod, parts.envoy.source, |at| parts.waits(at), diagnostics);
        warn_of_inert_settings(&settings, parts.container, diagnostics);
        settings.use_free_port(parts.port);
        let limit = settings.timing().time_limit();
        let limit = limit.saturating_add(defaults.grace_margin);
        let has_extra_hooks = settings.values().hooked_containers != HookedContainers::None;
        let is_derived = settings.source("drain-timeout") == SettingSource::GracePeriod;
        let from = pod.grace_period();
        let grace = GracePeriod::new(from, limit, has_extra_hooks, is_derived, diagnostics);
        if pod.uses_host_network() && settings.source("port") != SettingSource::Annotation {
            let port = parts.port;
            let detail = format!(
                "on a node's network, only one pod of the node can have the drainer's port {port}"
            );
            diagnostics.warn(Code::SharedHostPort.diagnostic(detail));
        }
        let ended_at_once = parts.ended_at_once(pod);
        let (server_ports, never_idle_ports) = parts.server_ports;
        let drainer = Config {
            admin_address: parts.admin.annotated().cloned(),
            admin_hints: parts.admin.hints().cloned().collect(),
            server_ports,
            never_idle_ports,
            envoy_flags: flags::envoy_flags(parts.container, pod),
            settings: settings.values().drain.clone(),
            host_network: pod.uses_host_network(),
            grace_period: grace.duration(),
            readiness_probes: sidecar::readiness_probes(pod),
            log_level: defaults.log_level,
            webhook: parts.webhook,
            ..Config::new(context.token)
        };
        let resources = sidecar::resources(pod, &settings, diagnostics);
        let (volumes, mounts) = sidecar::volumes(&drainer, pod).unzip();
        let (mode, socket) = (parts.sidecar, parts.socket);
        let hooked = parts.hooked.into_iter();
        let readiness_probe = parts.container.readiness_probe.as_ref();
        Some(Self {
            ended_at_once,
            extra_hooks: hooked.map(|it| ExtraHook::new(it, &drainer)).collect(),
            hook: sidecar::wait_hook(&drainer, drainer.hook_path()),
            container: sidecar::container(&drainer, mode, mounts, socket, resources, defaults),
            volumes,
            replaced_hook: parts.container.pre_stop().map(ToOwned::to_owned),
            readiness_failure: readiness_probe.map(sidecar::time_to_fail),
            grace,
            drainer,
            settings,
            adopted,
            sidecar: parts.sidecar,
            envoy: parts.envoy,
            admin: parts.admin,
            added_args: parts.added_args,
            is_envoy_moved: parts.is_envoy_moved,
        })
    }

    /// Returns true if the pod's server is no Envoy.
    pub fn is_of_server(&self) -> bool {
        self.settings.is_of_server()
    }

    /// Returns true if the drainer's container comes directly before Envoy's: the kubelet stops native sidecars in
    /// reverse order, so that the drainer outlives an Envoy that is one.
    pub fn is_before_envoy(&self) -> bool {
        let list = self.envoy.container_ref.list;
        let is_envoy_native = self.is_envoy_moved || list == ContainerList::InitContainers;
        self.sidecar == SidecarMode::Native && is_envoy_native
    }
}

/// Warns of each annotated setting that has no effect with the others.
fn warn_of_inert_settings(
    settings: &Settings,
    envoy: &pod::Container<'_>,
    diagnostics: &mut Diagnostics,
) {
    const HEALTH_FAILURE_DELAY: &str = "health-failure-delay";
    let delay = settings.values().drain.health_failure_delay;
    let mut found = settings.timing().settings_without_effect(delay);
    let is_found = found.iter().any(|(name, _)| *name == HEALTH_FAILURE_DELAY);
    if !delay.duration().is_zero() && !flags::is_immediate(envoy, settings) && !is_found {
        let reason = "needs Envoy's drain strategy `immediate`: otherwise, few clients are told to reconnect during \
            the delay";
        found.push((HEALTH_FAILURE_DELAY, format!("{delay} {reason}")));
    }
    found.retain(|(name, _)| settings.source(name) == SettingSource::Annotation);
    for (name, reason) in found {
        let detail = format!("`{name}` {reason}");
        diagnostics.warn(Code::SettingWithoutEffect.about(name, detail));
    }
}

// === impl Parts ===

impl<'p, 'a> Parts<'p, 'a> {
    /// Finds the parts of a pod's plan. Warnings and every failure go to `diagnostics`.
    fn find(
        pod: &'p PodView<'a>,
        settings: &mut Settings,
        context: &PodContext<'_>,
        defaults: &Defaults,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let completes = context.in_job || pod.runs_to_completion();
        let values = settings.values();
        let envoy = match (&values.server_container.0, &values.envoy_container.0) {
            (Some(name), _) => server::find_server(pod, name, completes),
            (None, name) => envoy::find_envoy(pod, name.as_deref(), diagnostics),
        };
        let envoy = diagnostics.fail(envoy);
        if settings.is_of_server() {
            server::drop_envoys_settings(settings, diagnostics);
        }
        let mut failures = diagnostics.failures.iter();
        if failures.any(|failure| failure.code.effect() == Effect::Skip) {
            // A pod that is not drained has no other conflicts to report.
            return None;
        }
        let sidecar = SidecarMode::try_new(settings.values().native_sidecar, completes, defaults);
        let sidecar = diagnostics.fail(sidecar);
        diagnostics.failures.extend(sidecar::name_conflicts(pod));
        let mut ports = PortsInUse::of_pod(pod);
        let Some((envoy, container)) = envoy else {
            let port = ports.choose_free(settings, diagnostics);
            diagnostics.fail(port);
            return None;
        };
        if container.pre_stop().is_some() && settings.values().existing_hook == ExistingHook::Keep {
            let detail = format!("container `{}` has a preStop hook already", envoy.name);
            let failure = Code::ExistingHook.diagnostic(detail);
            diagnostics.failures.push(failure);
        }
        let known = context.configuration(&envoy.name);
        let admin = if settings.is_of_server() {
            AdminCandidates::default()
        } else {
            envoy::check_envoy(container, diagnostics);
            admin_endpoint::find_admin(container, pod, settings, known.as_ref(), diagnostics)
        };
        let socket = AdminSocketMount::covering(&admin, container, pod, defaults, diagnostics);
        let socket = diagnostics.fail(socket);
        ports.add_envoys(&admin, known.as_ref());
        let port = ports.choose_free(settings, diagnostics);
        let port = diagnostics.fail(port);
        let added_args = flags::added_args(container, pod, settings, diagnostics);
        let is_envoy_moved =
            containers::is_envoy_moved(pod, (&envoy, container), sidecar, settings, diagnostics);
        if completes {
            containers::check_completion(pod, &envoy, is_envoy_moved, diagnostics);
        }
        let hooked = &settings.values().hooked_containers;
        let hooked = containers::select_hooked(pod, envoy.container_ref, hooked, diagnostics);
        let hooked = diagnostics.fail(hooked);
        let webhook = sidecar::webhook_access(pod, settings, defaults, diagnostics);
        let webhook = diagnostics.fail(webhook);
        let server_ports = diagnostics.fail(server::ports(container, pod, settings));
        if !diagnostics.failures.is_empty() {
            return None;
        }
        Some(Self {
            envoy,
            container,
            sidecar: sidecar?,
            admin,
            socket: socket?,
            port: port?,
            added_args: added_args?,
            is_envoy_moved,
            hooked: hooked?,
            server_ports: server_ports?,
            webhook: webhook?,
        })
    }

    /// Returns true for Envoy's container, and for those that wait for the drain.
    fn waits(&self, at: ContainerRef) -> bool {
        at == self.envoy.container_ref || self.hooked.iter().any(|(it, _)| *it == at)
    }

    /// Returns the names of the other containers that get SIGTERM when the pod is deleted.
    fn ended_at_once(&self, pod: &PodView<'_>) -> Vec<String> {
        let ended = pod.long_running_containers().filter(|(at, it)| {
            at.list == ContainerList::Containers && !self.waits(*at) && it.pre_stop().is_none()
        });
        ended.map(|(_, it)| it.name().to_owned()).collect()
    }
}

// === impl GracePeriod ===

impl GracePeriod {
    /// Raises the grace period `from` to at least `limit`, which is the drain's time limit plus the margin, rounded up
    /// to seconds. If other containers wait for the drain, `from` is added, since they may need that time after it. One
    /// that is too long is a warning, unless the limit is derived from `from`, its author's choice.
    fn new(
        from: i64,
        limit: Duration,
        has_extra_hooks: bool,
        is_derived: bool,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let after_drain = if has_extra_hooks { from.max(0) } else { 0 };
        let limit = i64::try_from(whole_seconds(limit)).unwrap_or(i64::MAX);
        let needed = limit.saturating_add(after_drain);
        if needed > AUTOSCALER_LIMIT && !is_derived {
            diagnostics.warn(Code::LongGracePeriod.diagnostic(format!(
                "the pod may take {needed}s to terminate, longer than the cluster autoscaler waits by default"
            )));
        }
        let to = from.max(needed);
        Self { from, to }
    }

    /// The raised grace period, as the drainer's argument: at most [`MAX_DURATION`], as each duration there.
    fn duration(self) -> Duration {
        Duration::from_secs(self.to.unsigned_abs()).min(MAX_DURATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: Duration = Duration::from_secs(15);

    #[test]
    fn token_is_fnv_1a_of_the_source() {
        // http://www.isthe.com/chongo/tech/comp/fnv/, test vectors
        for (source, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(token(source.as_bytes()), Token(hash), "{source}");
        }
    }

    #[test]
    fn grace_period_covers_the_drain_and_is_never_lowered() {
        // The present one, the drain's limit in milliseconds, and the new one, without and with extra hooks.
        let table = [
            (30, 60_000, [75, 105]),
            (0, 60_000, [75, 75]),
            (75, 60_000, [75, 150]),
            (76, 60_000, [76, 151]),
            (30, 60_001, [76, 106]),
            (30, 15_000, [30, 60]),
            (-1, 10_000, [25, 25]),
            (i64::MAX, 60_000, [i64::MAX; 2]),
        ];
        for (from, limit, wanted) in table {
            for (has_extra_hooks, to) in [false, true].into_iter().zip(wanted) {
                let limit = Duration::from_millis(limit) + MARGIN;
                let mut diagnostics = Diagnostics::default();
                let grace = GracePeriod::new(from, limit, has_extra_hooks, false, &mut diagnostics);
                assert_eq!(grace, GracePeriod { from, to }, "{from} {limit:?}");
            }
        }
    }

    #[test]
    fn grace_period_beyond_the_autoscalers_limit_warns() {
        let table = [
            (585, false, false),
            (586, false, true),
            (86_400, false, true),
            (555, true, false),
            (556, true, true),
        ];
        for (limit, has_extra_hooks, warned) in table {
            let mut diagnostics = Diagnostics::default();
            let with_margin = Duration::from_secs(limit) + MARGIN;
            let grace = GracePeriod::new(30, with_margin, has_extra_hooks, false, &mut diagnostics);
            assert!(grace.to >= 600);
            let warnings = diagnostics.warnings;
            assert_eq!(warnings.len(), usize::from(warned), "{limit}: {warnings:?}");
        }
        // One that the pod has already is its author's own.
        let mut diagnostics = Diagnostics::default();
        GracePeriod::new(3600, MARGIN, false, false, &mut diagnostics);
        assert_eq!(diagnostics.warnings, []);
    }
}
