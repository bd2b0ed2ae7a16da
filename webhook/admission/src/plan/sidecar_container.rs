//! The objects that are added to a pod: the drainer's container, its volumes, and Envoy's hook.

use drainer::{Config, WEBHOOK_TOKEN_DIR};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler,
    ProjectedVolumeSource, ResourceRequirements, SeccompProfile, SecurityContext,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::admin_socket::AdminSocketMount;
use crate::names::{CONTAINER_NAME, TOKEN_DIR, WEBHOOK_AUDIENCE, WEBHOOK_TOKEN_VOLUME};
use crate::pod::PodView;
use crate::settings::defaults::Defaults;
use crate::sidecar_mode::SidecarMode;

/// Path of the drainer in its image.
const PROGRAM: &str = "/drainer";

/// The drainer's user and group. No other process of the pod or the node has them, so that none may use its
/// socket, not even with a shared process namespace. Images use numbers up to 60000 or 65532 (distroless'
/// `nonroot`), systemd allocates those from 61184, and a pod's user namespace has none above 65535. The
/// drainer's images set it too.
/// <https://systemd.io/UIDS-GIDS/>
const USER: i64 = 60902;

/// Builds a hook of the kubelet on a path of the drainer.
pub(crate) fn hook(drainer: &Config, path: String) -> LifecycleHandler {
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

/// Builds the drainer's volumes, each with its mount.
pub(crate) fn volumes(
    drainer: &Config,
    pod: &PodView<'_>,
) -> impl Iterator<Item = (Volume, VolumeMount)> {
    // Empty, in place of the service account's token. It also keeps the ServiceAccount plugin from changing the pod,
    // after which the API server would call the webhook a second time. Unlike an emptyDir, it is no local data, which
    // `kubectl drain` refuses to delete unasked.
    let no_token = || projected(CONTAINER_NAME, TOKEN_DIR, vec![]);
    let no_token = pod.spec.automounts_token().then(no_token);
    let token = || {
        projected(
            WEBHOOK_TOKEN_VOLUME,
            WEBHOOK_TOKEN_DIR,
            vec![webhook_token()],
        )
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
pub(crate) fn container(
    drainer: &Config,
    sidecar: SidecarMode,
    mut mounts: Vec<VolumeMount>,
    socket: AdminSocketMount,
    resources: Option<ResourceRequirements>,
    defaults: &Defaults,
) -> Container {
    let mut args = drainer.args();
    args.insert(0, "serve".to_owned());
    let port = drainer.settings.port.get();
    let drain_command = [PROGRAM, "drain", &format!("--port={port}")];
    let container_port = ContainerPort {
        container_port: port.into(),
        host_port: Some(port.into()),
        ..Default::default()
    };
    let security_context = security_context(&socket, defaults);
    mounts.extend(socket.mount);
    Container {
        name: CONTAINER_NAME.to_owned(),
        image: Some(defaults.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(args),
        restart_policy: matches!(sidecar, SidecarMode::Native).then(|| "Always".to_owned()),
        // Only for the scheduler, which then places no two such pods on one node.
        ports: drainer.host_network.then(|| vec![container_port]),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(drain_command.map(str::to_owned).into()),
                }),
                ..Default::default()
            }),
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
