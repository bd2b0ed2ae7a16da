//! The drainer's container: its form, its port, its volumes, its resources, and whether it calls the webhook.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use drainer::{Config, ReadinessProbe, SettingValue, WEBHOOK_TOKEN_DIR, WebhookAccess};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler,
    ProjectedVolumeSource, ResourceRequirements, SeccompProfile, SecurityContext,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use strum::Display;

use super::admin_socket::AdminSocketMount;
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::names::{CONTAINER_NAME, PROGRAM, TOKEN_DIR, WEBHOOK_AUDIENCE, WEBHOOK_TOKEN_VOLUME};
use crate::pod::{self, ContainerList, PodView, Resources, Scalar};
use crate::quantity::{CpuLimit, Quantity};
use crate::settings::{Defaults, DrainerApiDefaults, NativeSidecar, SettingSource, Settings};

/// The form of the drainer's container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
pub enum SidecarMode {
    /// An init container with `restartPolicy: Always`, which the kubelet stops after the pod's containers.
    /// <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/>
    #[strum(to_string = "native sidecar")]
    Native,
    /// One of the pod's containers.
    #[strum(to_string = "plain container")]
    Plain,
}

// === impl SidecarMode ===

impl SidecarMode {
    /// Returns the mode that the annotation requests, or else the installation's. In a pod that `completes`, the settings
    /// have rejected a plain container that the annotation requests.
    ///
    /// # Errors
    /// If the installation's mode is a plain container, which would keep the pod from completing.
    pub(super) fn try_new(
        requested: NativeSidecar,
        completes: bool,
        defaults: &Defaults,
    ) -> Result<Self, Diagnostic> {
        match (requested, defaults.settings.values().native_sidecar) {
            (NativeSidecar::True, _) | (NativeSidecar::Auto, NativeSidecar::True) => {
                Ok(Self::Native)
            }
            (NativeSidecar::Auto, _) if completes => Err(Code::PlainSidecarInJob.diagnostic(
                "drainers are plain containers here, and the pod would never complete",
            )),
            _ => Ok(Self::Plain),
        }
    }

    /// Returns the list in which the drainer's container is.
    pub fn container_list(self) -> ContainerList {
        match self {
            Self::Native => ContainerList::InitContainers,
            Self::Plain => ContainerList::Containers,
        }
    }
}

/// Returns a conflict for each container and volume of the pod that has the drainer's name; a volume may have it where
/// none is added.
pub(super) fn name_conflicts(pod: &PodView<'_>) -> impl Iterator<Item = Diagnostic> {
    let container = pod.has_container(CONTAINER_NAME);
    let volume = pod.spec.automounts_token() && pod.has_volume(CONTAINER_NAME);
    let used = [container.then_some("container"), volume.then_some("volume")];
    used.into_iter().flatten().map(|kind| {
        let detail = format!("the pod already has a {kind} `{CONTAINER_NAME}`");
        Code::NameTaken.diagnostic(detail)
    })
}

/// Returns how the drainer calls the webhook, if it does: only where a feature of the pod, or of the installation,
/// needs it. Where it cannot ask for a replacement, it does not wait for one.
///
/// # Errors
/// If the pod has a volume with the name of the token's.
pub(super) fn webhook_access(
    pod: &PodView<'_>,
    settings: &mut Settings,
    defaults: &Defaults,
    diagnostics: &mut Diagnostics,
) -> Result<WebhookAccess, Diagnostic> {
    const SETTING: &str = "wait-for-replacement";
    let drainer_api = defaults.drainer_api.as_ref();
    let waits = settings.waits_for_replacement();
    if waits && pod.is_owned_by("apps/", "StatefulSet") {
        let detail = "a StatefulSet replaces a pod after it has terminated";
        diagnostics.warn(Code::FullReplacementWait.about(SETTING, detail));
    }
    let is_answered = drainer_api.is_some_and(|drainer_api| drainer_api.replacement);
    if waits && !is_answered {
        let detail =
            "the wait for a replacement is left out, since drainers cannot call the webhook";
        diagnostics.warn(Code::NoReplacementWait.about(SETTING, detail));
        settings.drop_replacement_wait();
    }
    let is_called = |it: &&DrainerApiDefaults| waits && is_answered || it.reports;
    let Some(drainer_api) = drainer_api.filter(is_called) else {
        return Ok(WebhookAccess::default());
    };
    if pod.has_volume(WEBHOOK_TOKEN_VOLUME) {
        let detail = format!("the pod already has a volume `{WEBHOOK_TOKEN_VOLUME}`");
        return Err(Code::NameTaken.diagnostic(detail));
    }
    Ok(WebhookAccess {
        address: drainer_api.address.clone(),
        ip: drainer_api.ip,
        ca: drainer_api.ca.clone(),
        reports: drainer_api.reports,
        ..WebhookAccess::default()
    })
}

/// Kubernetes' defaults of `periodSeconds` and `failureThreshold`.
/// <https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/>
const DEFAULT_PERIOD: u32 = 10;
const DEFAULT_THRESHOLD: u32 = 3;

/// Lists the readiness probes of long-running containers that connect to a port; equal ones are listed each. The
/// drainer, which does not count them as clients, finds out which ports are listeners'.
pub(super) fn readiness_probes(pod: &PodView<'_>) -> Vec<ReadinessProbe> {
    let mut probes = Vec::new();
    for (_, container) in pod.long_running_containers() {
        let probe = container.readiness_probe.as_ref();
        probes.extend(probe.and_then(|probe| tcp_or_http(probe, container)));
    }
    probes
}

fn tcp_or_http(probe: &pod::Probe<'_>, container: &pod::Container<'_>) -> Option<ReadinessProbe> {
    let port = probe.port()?.text();
    let named = || container.port_named(&port).and_then(NonZeroU16::new);
    Some(ReadinessProbe {
        port: port.parse().ok().or_else(named)?,
        period: period(probe),
    })
}

fn period(probe: &pod::Probe<'_>) -> Duration {
    let period = probe.period_seconds.filter(|period| *period > 0);
    Duration::from_secs(period.unwrap_or(DEFAULT_PERIOD).into())
}

/// Returns how long after the first failure at the latest a probe has failed.
pub(super) fn time_to_fail(probe: &pod::Probe<'_>) -> Duration {
    let threshold = probe.failure_threshold.filter(|threshold| *threshold > 0);
    period(probe).saturating_mul(threshold.unwrap_or(DEFAULT_THRESHOLD))
}

/// Request and limit of ephemeral storage, for a pod that sets it: room for the container's rotated logs, which
/// the kubelet counts. The drainer writes nothing else to disk.
const EPHEMERAL_STORAGE: [&str; 3] = ["ephemeral-storage", "16Mi", "64Mi"];

/// Returns the drainer's resources: none, with a warning if they are annotated, where the pod has pod-level
/// resources, which the drainer's might exceed.
/// <https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#pod-level-resource-specification>
pub(super) fn resources(
    pod: &PodView<'_>,
    settings: &Settings,
    diagnostics: &mut Diagnostics,
) -> Option<ResourceRequirements> {
    let own = &settings.values().resources;
    if pod.spec.resources.as_ref().is_some_and(Resources::is_set) {
        let mut names = ["cpu-request", "cpu-limit", "memory-request", "memory-limit"].into_iter();
        if names.any(|name| settings.source(name) == SettingSource::Annotation) {
            let detail = "the pod has `spec.resources`, so the drainer's resources are left out";
            diagnostics.warn(Code::ResourcesIgnored.diagnostic(detail));
        }
        return None;
    }
    let CpuLimit(cpu_limit) = &own.cpu_limit;
    let cpu_limit = cpu_limit.as_ref().map(Quantity::format);
    let memory = (own.memory_request.format(), own.memory_limit.format());
    let mut resources = vec![
        ("cpu", own.cpu_request.format(), cpu_limit),
        ("memory", memory.0, Some(memory.1)),
    ];
    if pod.all_containers().any(has_ephemeral_storage) {
        let [name, request, limit] = EPHEMERAL_STORAGE;
        resources.push((name, request.to_owned(), Some(limit.to_owned())));
    }
    let is_guaranteed = pod.all_containers().all(is_guaranteed);
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
    for (name, request, limit) in resources {
        // In a Guaranteed pod, both are equal.
        let limit = limit.or_else(|| is_guaranteed.then(|| request.clone()));
        let equal = limit.as_ref().filter(|_| is_guaranteed).cloned();
        let request = equal.unwrap_or(request);
        requests.insert(name.to_owned(), QuantityText(request));
        limits.extend(limit.map(|limit| (name.to_owned(), QuantityText(limit))));
    }
    Some(ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits),
        claims: None,
    })
}

/// Returns true if the container may be in a Guaranteed pod, which the drainer must not make Burstable.
/// <https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#guaranteed>
fn is_guaranteed(container: &pod::Container<'_>) -> bool {
    let Some(Resources {
        requests,
        limits: Some(limits),
    }) = &container.resources
    else {
        return false;
    };
    let nanos = |scalar: Option<Scalar<'_>>| Some(scalar?.text().parse::<Quantity>().ok()?.nanos);
    let requests = requests.as_ref();
    let equal = |request: Option<Scalar<'_>>, limit: Option<Scalar<'_>>| {
        let limit = nanos(limit).filter(|limit| *limit > 0);
        // A missing request defaults to the limit.
        limit.is_some() && (request.is_none() || nanos(request) == limit)
    };
    equal(requests.and_then(|r| r.cpu), limits.cpu)
        && equal(requests.and_then(|r| r.memory), limits.memory)
}

fn has_ephemeral_storage(container: &pod::Container<'_>) -> bool {
    let resources = container.resources.iter();
    let mut amounts = resources
        .flat_map(|it| [&it.requests, &it.limits])
        .flatten();
    amounts.any(|amounts| amounts.ephemeral_storage.is_some())
}

/// The drainer's user and group. No other process of the pod or the node has them, so that none may use its
/// socket, not even with a shared process namespace. Images use numbers up to 60000 or 65532 (distroless'
/// `nonroot`), systemd allocates those from 61184, and a pod's user namespace has none above 65535. The
/// drainer's images set it too.
/// <https://systemd.io/UIDS-GIDS/>
const USER: i64 = 60902;

/// Builds a hook of the kubelet on a path of the drainer.
pub(crate) fn wait_hook(drainer: &Config, path: String) -> LifecycleHandler {
    LifecycleHandler {
        http_get: Some(HTTPGetAction {
            // The kubelet calls from the node, whose loopback reaches the pod only if the pod uses the
            // node's network.
            host: drainer.host_network.then(|| "127.0.0.1".to_owned()),
            path: Some(path),
            port: IntOrString::Int(drainer.settings.port.get().into()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Builds the drainer's own hook.
pub(crate) fn drain_hook(port: NonZeroU16) -> LifecycleHandler {
    let command = [PROGRAM, "drain", &format!("--port={port}")];
    LifecycleHandler {
        exec: Some(ExecAction {
            command: Some(command.map(str::to_owned).into()),
        }),
        ..Default::default()
    }
}

/// Builds the drainer's ports on the node's network: only for the scheduler, which then places no two such pods on one
/// node.
pub(crate) fn host_ports(drainer: &Config) -> Option<Vec<ContainerPort>> {
    let port = drainer.settings.port.get();
    let port = ContainerPort {
        container_port: port.into(),
        host_port: Some(port.into()),
        ..Default::default()
    };
    drainer.host_network.then(|| vec![port])
}

/// Builds the drainer's volumes, each with its mount.
pub(super) fn volumes(
    drainer: &Config,
    pod: &PodView<'_>,
) -> impl Iterator<Item = (Volume, VolumeMount)> {
    // Empty, in place of the service account's token. It also keeps the ServiceAccount plugin from changing the pod,
    // after which the API server would call the webhook a second time. Unlike an emptyDir, it is no local data, which
    // `kubectl drain` refuses to delete unasked.
    let no_token = || projected(CONTAINER_NAME, TOKEN_DIR, vec![]);
    let no_token = pod.spec.automounts_token().then(no_token);
    let token = || {
        let sources = vec![webhook_token()];
        projected(WEBHOOK_TOKEN_VOLUME, WEBHOOK_TOKEN_DIR, sources)
    };
    let token = drainer.webhook.is_enabled().then(token);
    no_token.into_iter().chain(token)
}

fn projected(name: &str, path: &str, sources: Vec<VolumeProjection>) -> (Volume, VolumeMount) {
    let volume = Volume {
        name: name.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(sources),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mount = VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(true),
        ..Default::default()
    };
    (volume, mount)
}

/// Builds the drainer's token for the webhook. It is bound to the pod, has no right at the API server, and is replaced
/// by the kubelet before it expires.
/// <https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#serviceaccount-token-volume-projection>
fn webhook_token() -> VolumeProjection {
    VolumeProjection {
        service_account_token: Some(ServiceAccountTokenProjection {
            audience: Some(WEBHOOK_AUDIENCE.to_owned()),
            expiration_seconds: Some(3600),
            path: "token".to_owned(),
        }),
        ..Default::default()
    }
}

/// Builds the drainer's container, which satisfies the Pod Security Standard *restricted*.
pub(super) fn container(
    drainer: &Config,
    sidecar: SidecarMode,
    mut mounts: Vec<VolumeMount>,
    socket: AdminSocketMount,
    resources: Option<ResourceRequirements>,
    defaults: &Defaults,
) -> Container {
    let mut args = drainer.args();
    args.insert(0, "serve".to_owned());
    let security_context = security_context(&socket, defaults);
    mounts.extend(socket.mount);
    Container {
        name: CONTAINER_NAME.to_owned(),
        image: Some(defaults.image.clone()),
        image_pull_policy: Some(defaults.image_pull_policy.to_string()),
        args: Some(args),
        restart_policy: matches!(sidecar, SidecarMode::Native).then(|| "Always".to_owned()),
        ports: host_ports(drainer),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(drain_hook(drainer.settings.port)),
            ..Default::default()
        }),
        resources,
        security_context: Some(security_context),
        volume_mounts: (!mounts.is_empty()).then_some(mounts),
        ..Default::default()
    }
}

/// <https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>
fn security_context(socket: &AdminSocketMount, defaults: &Defaults) -> SecurityContext {
    let AdminSocketMount { user, group, .. } = *socket;
    let (user, group) = match user {
        Some(user) => (Some(user), group),
        // An inherited root would keep the container from starting. A pod that may run as root may use any user.
        None if defaults.openshift && !socket.inherits_root => (None, group),
        None => (Some(USER), group.or(Some(USER))),
    };
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        read_only_root_filesystem: Some(true),
        run_as_group: group,
        run_as_non_root: Some(true),
        run_as_user: user,
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PodSettings;

    #[test]
    fn annotation_wins_over_the_installation() {
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
        for (requested, native_sidecar, in_job, want) in table {
            let settings = PodSettings {
                native_sidecar: if native_sidecar {
                    NativeSidecar::True
                } else {
                    NativeSidecar::False
                },
                ..PodSettings::default()
            };
            let defaults = Defaults {
                settings: Settings::try_new(settings).unwrap(),
                ..Defaults::new("", "")
            };
            let mode = SidecarMode::try_new(requested, in_job, &defaults);
            assert_eq!(
                mode.map_err(|diagnostic| diagnostic.code),
                want,
                "{requested:?} {native_sidecar} {in_job}"
            );
        }
    }
}

#[cfg(test)]
mod conflicts_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drainers_name_must_be_free() {
        let table = [
            (json!({}), vec![]),
            (
                json!({"containers": [{"name": "a"}], "volumes": [{"name": "a"}]}),
                vec![],
            ),
            (
                json!({"volumes": [{"name": "a"}, {"name": CONTAINER_NAME}]}),
                vec!["the pod already has a volume `envoy-drainer`"],
            ),
            (
                json!({"volumes": [{"name": CONTAINER_NAME}], "automountServiceAccountToken": false}),
                vec![],
            ),
            (
                json!({"initContainers": [{"name": CONTAINER_NAME}], "volumes": [{"name": CONTAINER_NAME}]}),
                vec![
                    "the pod already has a container `envoy-drainer`",
                    "the pod already has a volume `envoy-drainer`",
                ],
            ),
        ];
        for (spec, want) in table {
            let pod = json!({ "spec": spec }).to_string();
            let pod = PodView::decode(&pod).unwrap();
            let details: Vec<_> = name_conflicts(&pod).map(|failure| failure.detail).collect();
            assert_eq!(details, want, "{spec}");
        }
    }
}

#[cfg(test)]
mod webhook_access_tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::parse::ParsedSettings;

    fn drainer_api(replacement: bool, reports: bool) -> Option<DrainerApiDefaults> {
        Some(DrainerApiDefaults {
            address: "webhook.infra.svc:8443".to_owned(),
            ip: Some([10, 0, 0, 1].into()),
            ca: "AAAA".to_owned(),
            replacement,
            reports,
        })
    }

    /// Returns whether the drainer calls the webhook, its wait in seconds, and the codes of all warnings.
    fn find_in(
        pod: &Value,
        drainer_api: Option<DrainerApiDefaults>,
    ) -> (Result<bool, Code>, u64, Vec<Code>) {
        let defaults = Defaults {
            drainer_api,
            ..Defaults::new("image", "own")
        };
        let json = pod.to_string();
        let pod = PodView::decode(&json).unwrap();
        let ParsedSettings { mut settings, .. } =
            ParsedSettings::parse(&pod, false, &defaults, &[]);
        let mut diagnostics = Diagnostics::default();
        let found = webhook_access(&pod, &mut settings, &defaults, &mut diagnostics);
        let enabled = found
            .map(|access| access.is_enabled())
            .map_err(|error| error.code);
        let warnings = diagnostics.warnings.iter().map(|it| it.code).collect();
        let wait = settings.timing().wait_for_replacement.as_secs();
        (enabled, wait, warnings)
    }

    #[test]
    fn webhook_is_called_only_for_a_feature() {
        let pod = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let waiting = || pod(json!({"envoy-drainer.dev/wait-for-replacement": "30s"}));
        let mut of_stateful_set = waiting();
        of_stateful_set["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "StatefulSet"}]);
        let mut with_volume = waiting();
        with_volume["spec"] = json!({"volumes": [{"name": WEBHOOK_TOKEN_VOLUME}]});
        let off = Code::NoReplacementWait;
        let table = [
            (pod(json!({})), None, (Ok(false), 0, vec![])),
            (
                pod(json!({})),
                drainer_api(true, false),
                (Ok(false), 0, vec![]),
            ),
            (
                pod(json!({})),
                drainer_api(true, true),
                (Ok(true), 0, vec![]),
            ),
            (waiting(), None, (Ok(false), 0, vec![off])),
            (
                waiting(),
                drainer_api(false, false),
                (Ok(false), 0, vec![off]),
            ),
            (
                waiting(),
                drainer_api(false, true),
                (Ok(true), 0, vec![off]),
            ),
            (waiting(), drainer_api(true, false), (Ok(true), 30, vec![])),
            (
                of_stateful_set.clone(),
                drainer_api(true, false),
                (Ok(true), 30, vec![Code::FullReplacementWait]),
            ),
            (
                of_stateful_set,
                None,
                (Ok(false), 0, vec![Code::FullReplacementWait, off]),
            ),
            (
                with_volume.clone(),
                drainer_api(true, false),
                (Err(Code::NameTaken), 30, vec![]),
            ),
            (with_volume, None, (Ok(false), 0, vec![off])),
        ];
        for (pod, drainer_api, want) in table {
            assert_eq!(
                find_in(&pod, drainer_api.clone()),
                want,
                "{pod} {drainer_api:?}"
            );
        }
    }
}

#[cfg(test)]
mod probes_tests {
    use serde_json::{Value, json};

    use super::*;

    fn formatted_probes(spec: &Value) -> Vec<String> {
        let pod = json!({ "spec": spec }).to_string();
        let probes = readiness_probes(&PodView::decode(&pod).unwrap());
        probes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn port_is_resolved_by_number_or_name() {
        let table = [
            (
                json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 2}),
                vec!["8080/2s"],
            ),
            (
                json!({"tcpSocket": {"port": "web"}, "periodSeconds": 90}),
                vec!["80/90s"],
            ),
            (
                json!({"grpc": {"port": 9000, "service": "s"}}),
                vec!["9000/10s"],
            ),
            (
                json!({"httpGet": {"port": "81"}, "periodSeconds": 0}),
                vec!["81/10s"],
            ),
            (json!({"httpGet": {"port": "other"}}), vec![]),
            (json!({"httpGet": {"port": "none"}}), vec![]),
            (json!({"httpGet": {"port": 0}}), vec![]),
            (json!({"httpGet": {"port": null}}), vec![]),
            (json!({"exec": {"command": ["/ready"]}}), vec![]),
            (json!({}), vec![]),
            (Value::Null, vec![]),
        ];
        for (probe, want) in table {
            let ports = json!([{"name": "web", "containerPort": 80}, {"name": "none"}]);
            let containers = json!([
                {"name": "a", "readinessProbe": probe, "ports": ports},
                {"name": "b", "ports": [{"name": "other", "containerPort": 1}]},
            ]);
            assert_eq!(
                formatted_probes(&json!({ "containers": containers })),
                want,
                "{probe}"
            );
        }
    }

    #[test]
    fn only_probes_of_long_running_containers_are_listed() {
        let probed = |port: u16, policy: Value| json!({"readinessProbe": {"tcpSocket": {"port": port}}, "restartPolicy": policy});
        let probes = formatted_probes(&json!({
            "containers": [probed(1, Value::Null), probed(2, Value::Null)],
            "initContainers": [probed(3, json!("Always")), probed(4, Value::Null)],
        }));
        assert_eq!(probes, ["1/10s", "2/10s", "3/10s"]);
    }
}

#[cfg(test)]
mod resources_tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::PREFIX;
    use crate::settings::parse::ParsedSettings;

    /// The drainer's resources as JSON, and the codes of the warnings.
    fn resolve_resources(pod: &Value) -> (Value, Vec<Code>) {
        let pod = pod.to_string();
        let pod = PodView::decode(&pod).unwrap();
        let settings = ParsedSettings::parse(&pod, false, &Defaults::new("", ""), &[]).settings;
        let mut diagnostics = Diagnostics::default();
        let resources = super::resources(&pod, &settings, &mut diagnostics);
        let codes = diagnostics
            .warnings
            .iter()
            .map(|warning| warning.code)
            .collect();
        (serde_json::to_value(resources).unwrap(), codes)
    }

    fn resources_beside(resources: &[Value]) -> Value {
        let containers: Vec<_> = resources
            .iter()
            .map(|r| json!({ "resources": r }))
            .collect();
        resolve_resources(&json!({"spec": {"containers": containers, "initContainers": null}})).0
    }

    #[test]
    fn requests_equal_limits_only_in_a_guaranteed_pod() {
        let full = |request: &str, limit: &str| json!({"requests": {"cpu": request, "memory": "1Gi"}, "limits": {"cpu": limit, "memory": "1Gi"}});
        let limits_only = json!({"limits": {"cpu": 1, "memory": "64Mi"}});
        let table = [
            (vec![full("1", "1000m")], true),
            (vec![limits_only.clone()], true),
            (vec![full("1", "1"), limits_only.clone()], true),
            (vec![full("1", "1001m")], false),
            (vec![full("1", "1"), json!(null)], false),
            (vec![json!({"limits": {"cpu": "1"}})], false),
            (vec![json!({"limits": {"cpu": "0", "memory": "0"}})], false),
            (
                vec![json!({"requests": {"cpu": "1", "memory": "1Gi"}})],
                false,
            ),
            (
                vec![json!({"limits": {"cpu": "much", "memory": "1Gi"}})],
                false,
            ),
        ];
        for (containers, guaranteed) in table {
            let resources = resources_beside(&containers);
            let equal = resources["requests"] == resources["limits"];
            assert_eq!(equal, guaranteed, "{containers:?}: {resources}");
            assert_eq!(
                resources["limits"],
                json!({"cpu": "100m", "memory": "64Mi"})
            );
        }
    }

    #[test]
    fn cpu_limit_can_be_left_out_but_in_a_guaranteed_pod() {
        let annotations = json!({format!("{PREFIX}cpu-limit"): "none"});
        let limits = |container: Value| {
            let pod = json!({
                "metadata": {"annotations": annotations},
                "spec": {"containers": [container]},
            });
            resolve_resources(&pod).0["limits"].clone()
        };
        assert_eq!(limits(json!({})), json!({"memory": "64Mi"}));
        let guaranteed = json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
        assert_eq!(limits(guaranteed), json!({"cpu": "25m", "memory": "64Mi"}));
    }

    #[test]
    fn init_container_counts_for_guaranteed() {
        let guaranteed = json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
        let pod =
            |init: Value| json!({"spec": {"containers": [guaranteed], "initContainers": [init]}});
        let requests = |pod: &Value| resolve_resources(pod).0["requests"]["cpu"].clone();
        assert_eq!(requests(&pod(guaranteed.clone())), "100m");
        assert_eq!(requests(&pod(json!({}))), "25m");
    }

    #[test]
    fn ephemeral_storage_is_set_where_others_set_it() {
        for other in [
            json!({"requests": {"ephemeral-storage": "1Gi"}}),
            json!({"limits": {"ephemeral-storage": "1Gi"}}),
        ] {
            let resources = resources_beside(&[json!({}), other]);
            assert_eq!(resources["requests"]["ephemeral-storage"], "16Mi");
            assert_eq!(resources["limits"]["ephemeral-storage"], "64Mi");
        }
    }

    #[test]
    fn pod_level_resources_leave_the_drainers_out() {
        let annotated = json!({"annotations": {format!("{PREFIX}cpu-limit"): "1"}});
        let table = [
            (
                json!({"limits": {"memory": "1Gi"}}),
                json!({}),
                true,
                vec![],
            ),
            (
                json!({"requests": {"cpu": "1"}}),
                annotated,
                true,
                vec![Code::ResourcesIgnored],
            ),
            (
                json!({"requests": {}, "limits": null}),
                json!({}),
                false,
                vec![],
            ),
            (
                json!({"limits": {"hugepages-2Mi": "2Mi"}}),
                json!({}),
                false,
                vec![],
            ),
        ];
        for (pod_level, metadata, is_none, codes) in table {
            let (resources, warnings) = resolve_resources(
                &json!({"metadata": metadata, "spec": {"containers": [], "resources": pod_level}}),
            );
            assert_eq!(
                (resources.is_null(), warnings),
                (is_none, codes),
                "{pod_level}"
            );
        }
    }
}
