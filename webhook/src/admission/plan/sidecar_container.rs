//! The objects that are added to a pod: the drainer's container, its volume, and Envoy's hook.

use drainer::{Config, RUN_DIR, WEBHOOK_TOKEN_DIR};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, ExecAction, HTTPGetAction,
    Lifecycle, LifecycleHandler, ProjectedVolumeSource, ResourceRequirements, SeccompProfile,
    SecurityContext, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::admin_socket::AdminSocketMount;
use crate::admission::defaults::Defaults;
use crate::admission::names::{CONTAINER_NAME, TOKEN_DIR, WEBHOOK_AUDIENCE, WEBHOOK_TOKEN_VOLUME};
use crate::admission::sidecar_mode::SidecarMode;

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

/// Builds the drainer's volume.
///
/// It is in memory, so that the cluster autoscaler does not count it as local data, which would keep it from
/// removing the node, and so that its file, some bytes long, counts towards the drainer's own limit. It needs
/// no quota and survives restarts of the container.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-types-of-pods-can-prevent-ca-from-removing-a-node>
pub(crate) fn volume() -> Volume {
    Volume {
        name: CONTAINER_NAME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity("1Mi".to_owned())),
        }),
        ..Default::default()
    }
}

/// Builds the volume with the drainer's token for the webhook. The token is bound to the pod, has no right at the API server,
/// and is replaced by the kubelet before it expires.
/// <https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#serviceaccount-token-volume-projection>
pub(crate) fn token_volume() -> Volume {
    let token = ServiceAccountTokenProjection {
        audience: Some(WEBHOOK_AUDIENCE.to_owned()),
        expiration_seconds: Some(3600),
        path: "token".to_owned(),
    };
    Volume {
        name: WEBHOOK_TOKEN_VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(vec![VolumeProjection {
                service_account_token: Some(token),
                ..Default::default()
            }]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Builds the drainer's container, which satisfies the Pod Security Standard *restricted*.
pub(crate) fn container(
    drainer: &Config,
    sidecar: SidecarMode,
    socket: AdminSocketMount,
    resources: Option<ResourceRequirements>,
    defaults: &Defaults,
) -> Container {
    let mut args = drainer.args();
    args.insert(0, "serve".to_owned());
    let port = ContainerPort {
        container_port: drainer.settings.port.get().into(),
        host_port: Some(drainer.settings.port.get().into()),
        ..Default::default()
    };
    let mut mounts = vec![
        VolumeMount {
            name: CONTAINER_NAME.to_owned(),
            mount_path: RUN_DIR.to_owned(),
            ..Default::default()
        },
        // An empty directory in place of the service account's token. It also keeps the ServiceAccount plugin
        // from changing the pod, after which the API server would call the webhook a second time.
        VolumeMount {
            name: CONTAINER_NAME.to_owned(),
            mount_path: TOKEN_DIR.to_owned(),
            sub_path: Some("no-token".to_owned()),
            read_only: Some(true),
            ..Default::default()
        },
    ];
    if drainer.webhook.is_enabled() {
        mounts.push(VolumeMount {
            name: WEBHOOK_TOKEN_VOLUME.to_owned(),
            mount_path: WEBHOOK_TOKEN_DIR.to_owned(),
            read_only: Some(true),
            ..Default::default()
        });
    }
    let security_context = security_context(&socket, defaults);
    mounts.extend(socket.mount);
    Container {
        name: CONTAINER_NAME.to_owned(),
        image: Some(defaults.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(args),
        restart_policy: matches!(sidecar, SidecarMode::Native).then(|| "Always".to_owned()),
        // Only for the scheduler, which then places no two such pods on one node.
        ports: drainer.host_network.then(|| vec![port]),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(vec![PROGRAM.to_owned(), "drain".to_owned()]),
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        resources,
        security_context: Some(security_context),
        volume_mounts: Some(mounts),
        ..Default::default()
    }
}

/// <https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>
fn security_context(socket: &AdminSocketMount, defaults: &Defaults) -> SecurityContext {
    let AdminSocketMount { user, group, .. } = *socket;
    let (user, group) = match user {
        Some(user) => (Some(user), group),
        // An inherited root would keep the container from starting. A pod that may run as root may use any user.
        None if defaults.open_shift && !socket.inherits_root => (None, group),
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
