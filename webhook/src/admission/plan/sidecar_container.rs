//! What is added to a pod: the drainer's container, its volume, and Envoy's hook.

use drainer::{Config, RUN_DIR};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, ExecAction, HTTPGetAction,
    Lifecycle, LifecycleHandler, ResourceRequirements, SeccompProfile, SecurityContext, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::SidecarMode;
use super::admin_socket::AdminSocketMount;
use crate::admission::defaults::Defaults;

/// The name of the drainer's container, and of its volume.
pub const DRAINER_NAME: &str = "envoy-drainer";

/// The drainer in its image.
const PROGRAM: &str = "/drainer";

/// Where a service account's token would be mounted.
/// <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-token-volume>
pub(crate) const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The drainer's user and group: its own, so that no other process of the pod, or of the node, may call
/// its socket, not even with a shared process namespace. Images have numbers up to 60000 or 65532
/// (distroless' `nonroot`), systemd gives away those from 61184, and in a user namespace of a pod
/// there is none above 65535. The drainer's images name it too.
/// <https://systemd.io/UIDS-GIDS/>
const USER: i64 = 60902;

/// Builds Envoy's hook.
pub(crate) fn hook(drainer: &Config) -> LifecycleHandler {
    LifecycleHandler {
        http_get: Some(HTTPGetAction {
            // The kubelet asks from the node: there, loopback is the pod's own network only where
            // the pod uses the node's.
            host: drainer.host_network.then(|| "127.0.0.1".to_owned()),
            path: Some(drainer.hook_path()),
            port: IntOrString::Int(drainer.port.get().into()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Builds the drainer's volume.
///
/// In memory, where the cluster autoscaler does not take it for local data that would keep it from
/// removing the node, and where its file, some bytes long, counts for the drainer's own limit. It
/// needs no quota and outlives restarts of the container.
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-types-of-pods-can-prevent-ca-from-removing-a-node>
pub(crate) fn volume() -> Volume {
    Volume {
        name: DRAINER_NAME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity("1Mi".to_owned())),
        }),
        ..Default::default()
    }
}

/// Builds the drainer's container, which Pod Security's profile *restricted* admits.
pub(crate) fn container(
    drainer: &Config,
    sidecar: SidecarMode,
    access: AdminSocketMount,
    resources: Option<ResourceRequirements>,
    defaults: &Defaults,
) -> Container {
    let mut args = drainer.args();
    args.insert(0, "serve".to_owned());
    let port = ContainerPort {
        container_port: drainer.port.get().into(),
        host_port: Some(drainer.port.get().into()),
        ..Default::default()
    };
    let mut mounts = vec![
        VolumeMount {
            name: DRAINER_NAME.to_owned(),
            mount_path: RUN_DIR.to_owned(),
            ..Default::default()
        },
        // Empty. It keeps the token away, and with it the ServiceAccount plugin, whose change would
        // make the API server call us a second time.
        VolumeMount {
            name: DRAINER_NAME.to_owned(),
            mount_path: TOKEN_DIR.to_owned(),
            sub_path: Some("no-token".to_owned()),
            read_only: Some(true),
            ..Default::default()
        },
    ];
    let security_context = security_context(&access, defaults);
    mounts.extend(access.mount);
    Container {
        name: DRAINER_NAME.to_owned(),
        image: Some(defaults.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(args),
        restart_policy: matches!(sidecar, SidecarMode::Native).then(|| "Always".to_owned()),
        // Declared only to the scheduler, which then keeps two of them off one node.
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
fn security_context(access: &AdminSocketMount, defaults: &Defaults) -> SecurityContext {
    let AdminSocketMount { user, group, .. } = *access;
    let (user, group) = match user {
        Some(user) => (Some(user), group),
        // Inherited, root would keep the container from starting. Who may be root may be any user.
        None if defaults.open_shift && !access.inherits_root => (None, group),
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
