//! What the drainer's container needs to reach Envoy's admin interface on a Unix socket: its mount and its user.

use std::path::Path;

use drainer::{AdminAddress, WEBHOOK_TOKEN_DIR};
use k8s_openapi::api::core::v1 as core;

use super::admin_endpoint::{AdminAddressSource, AdminCandidates};
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::names::{PROGRAM, TOKEN_DIR};
use crate::pod::{Container, PodView, SecurityContext, Text, VolumeMount};
use crate::settings::Defaults;

/// What the drainer's container takes over from Envoy's, to reach the admin's socket.
#[derive(Debug, Default)]
pub(super) struct AdminSocketMount {
    /// The mount that holds the socket.
    pub mount: Option<core::VolumeMount>,
    pub user: Option<i64>,
    pub group: Option<i64>,
    /// Whether a container that sets no user runs as root in this pod.
    pub inherits_root: bool,
}

// === impl AdminSocketMount ===

impl AdminSocketMount {
    /// Finds the mount and the user for the admin's socket; an admin without a socket path needs neither. A user
    /// that is unknown or root is a warning, and so is a socket that the drainer cannot reach, unless it is only the
    /// installation's default.
    ///
    /// # Errors
    /// If the annotated socket is in no volume of Envoy's, or the drainer cannot mount that volume.
    pub(super) fn covering(
        admin: &AdminCandidates,
        envoy: &Container<'_>,
        pod: &PodView<'_>,
        defaults: &Defaults,
        diagnostics: &mut Diagnostics,
    ) -> Result<Self, Diagnostic> {
        let (own, inherited) = (envoy.security_context, pod.spec.security_context);
        let inherits_root = inherited.and_then(|pod| pod.run_as_user) == Some(0);
        let without_mount = Self {
            inherits_root,
            ..Self::default()
        };
        let socket = admin.iter().find_map(|it| match &it.address {
            AdminAddress::Path(path) => Some((Path::new(path), it.source)),
            AdminAddress::Tcp(_) | AdminAddress::Abstract(_) => None,
        });
        let Some((socket, source)) = socket else {
            return Ok(without_mount);
        };
        let mount = match covering_mount(envoy, socket, pod) {
            Ok(mount) => mount,
            Err(obstacle) if source == AdminAddressSource::Annotation => return Err(obstacle),
            Err(obstacle) => {
                if source != AdminAddressSource::Default {
                    diagnostics.warn(Code::SocketNotReachable.diagnostic(obstacle.detail));
                }
                return Ok(without_mount);
            }
        };
        let id = |of: fn(SecurityContext<'_>) -> Option<i64>| {
            own.and_then(of).or(inherited.and_then(of))
        };
        let (user, group) = (id(|c| c.run_as_user), id(|c| c.run_as_group));
        let known = user.filter(|user| *user != 0);
        // OpenShift assigns the same user to all containers of a pod.
        if known.is_none() && !defaults.openshift {
            let reason = match user {
                Some(_) => "runs as root, as the drainer never does",
                None => "has no `runAsUser`, so its user is unknown",
            };
            let (name, socket) = (envoy.name(), socket.display());
            diagnostics.warn(Code::SocketUserUnknown.diagnostic(format!(
                "container `{name}` {reason}: the drainer may not be permitted to use {socket}"
            )));
        }
        Ok(Self {
            mount: Some(mount),
            user: known,
            group: group.filter(|group| *group != 0),
            inherits_root,
        })
    }
}

/// Returns, for the drainer, Envoy's mount that contains the socket: the one with the longest path.
fn covering_mount(
    envoy: &Container<'_>,
    socket: &Path,
    pod: &PodView<'_>,
) -> Result<core::VolumeMount, Diagnostic> {
    let (name, socket_path) = (envoy.name(), socket.display());
    let mounts = envoy.volume_mounts.iter().flatten();
    let covering = mounts
        .filter_map(|mount| Some((mount.path()?, mount)))
        .filter(|(path, _)| socket.starts_with(path))
        .max_by_key(|(path, _)| path.components().count())
        // Its variables are those of Envoy's container; in the drainer's it would expand to another path.
        .filter(|(_, mount)| non_empty(&mount.sub_path_expr).is_none());
    let Some((path, mount)) = covering else {
        return Err(Code::SocketNotMounted.diagnostic(format!(
            "no volume of container `{name}` contains the admin's socket {socket_path}"
        )));
    };
    if path.starts_with(PROGRAM) || Path::new(PROGRAM).starts_with(path) {
        let path = path.display();
        return Err(Code::SocketNotMounted.diagnostic(format!(
            "the admin's socket {socket_path} is in a volume at {path}, which would cover the drainer's {PROGRAM}"
        )));
    }
    // The drainer's mounts there are read-only, so no mount point can be created below them.
    if let Some(own) = own_dirs(pod).find(|own| path.starts_with(own)) {
        let detail = format!("container `{name}` mounts a volume at the drainer's {own}");
        return Err(Code::NameTaken.diagnostic(detail));
    }
    // In a parent directory, the runtime creates the mount points of the drainer's volumes, so it must be writable.
    let below = own_dirs(pod).find(|own| Path::new(own).starts_with(path));
    if let Some(own) = below.filter(|_| !is_writable_empty_dir(mount, pod)) {
        let path = path.display();
        return Err(Code::SocketNotMounted.diagnostic(format!(
            "the admin's socket {socket_path} is in a volume at {path}, where {own} cannot be created: it must be an \
             emptyDir to which container `{name}` may write"
        )));
    }
    Ok(core::VolumeMount {
        name: non_empty(&mount.name).unwrap_or_default(),
        mount_path: non_empty(&mount.mount_path).unwrap_or_default(),
        sub_path: non_empty(&mount.sub_path),
        // Connecting to a socket needs no write access to the mount.
        read_only: below.is_none().then_some(true),
        ..Default::default()
    })
}

/// Returns where the drainer's container has volumes of its own.
fn own_dirs(pod: &PodView<'_>) -> impl Iterator<Item = &'static str> {
    let no_token = pod.spec.automounts_token().then_some(TOKEN_DIR);
    no_token.into_iter().chain([WEBHOOK_TOKEN_DIR])
}

/// Returns true for an emptyDir to which Envoy may write: the drainer then gets no more access than Envoy has,
/// and what is created in it is deleted with the pod.
fn is_writable_empty_dir(mount: &VolumeMount<'_>, pod: &PodView<'_>) -> bool {
    let mut volumes = pod.spec.volumes.iter().flatten();
    mount.read_only != Some(true)
        && volumes.any(|volume| volume.name == mount.name && volume.empty_dir.is_some())
}

fn non_empty(text: &Option<Text<'_>>) -> Option<String> {
    let text = text.as_deref().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::admin_endpoint::AdminEndpoint;

    fn resolve_mount(
        admin: &str,
        envoy: &Value,
        pod: &Value,
    ) -> (Result<AdminSocketMount, Diagnostic>, Vec<Diagnostic>) {
        resolve_mount_of(AdminAddressSource::Annotation, admin, envoy, pod)
    }

    fn resolve_mount_of(
        source: AdminAddressSource,
        admin: &str,
        envoy: &Value,
        pod: &Value,
    ) -> (Result<AdminSocketMount, Diagnostic>, Vec<Diagnostic>) {
        let (envoy, pod) = (envoy.to_string(), json!({ "spec": pod }).to_string());
        let envoy = serde_json::from_str(&envoy).unwrap();
        let pod = PodView::decode(&pod).unwrap();
        let defaults = Defaults::new("", "");
        let mut diagnostics = Diagnostics::default();
        let endpoint = AdminEndpoint {
            address: admin.parse().unwrap(),
            source,
        };
        let mount = AdminSocketMount::covering(
            &AdminCandidates::of(vec![endpoint]),
            &envoy,
            &pod,
            &defaults,
            &mut diagnostics,
        );
        (mount, diagnostics.warnings)
    }

    fn mount_for(socket: &str, mounts: &Value) -> Result<Value, Diagnostic> {
        mount_in(socket, mounts, &Value::Null)
    }

    fn mount_in(socket: &str, mounts: &Value, automount: &Value) -> Result<Value, Diagnostic> {
        let envoy = json!({"name": "envoy", "volumeMounts": mounts});
        let volumes = json!([
            {"name": "scratch", "emptyDir": {}},
            {"name": "kept", "emptyDir": null, "hostPath": {"path": "/run"}},
        ]);
        let pod = json!({"volumes": volumes, "automountServiceAccountToken": automount});
        let (mount, _) = resolve_mount(&format!("unix:{socket}"), &envoy, &pod);
        mount.map(|mount| serde_json::to_value(mount.mount).unwrap())
    }

    #[test]
    fn mount_with_the_longest_path_is_used_read_only() {
        let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
        let read_only =
            |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
        let mounts = json!([
            mount("a", "/srv"),
            {"name": "b", "mountPath": "/run/envoy/", "subPath": "x", "readOnly": false},
            read_only("c", "/run/env"),
            {"name": "d", "mountPath": "/tmp", "subPath": "", "subPathExpr": ""},
            {"name": "e", "mountPath": ""},
            {"name": "f", "mountPath": null},
            mount("g", "/run"),
        ]);
        let table = [
            (
                "/run/envoy/admin.sock",
                json!({"name": "b", "mountPath": "/run/envoy/", "subPath": "x", "readOnly": true}),
            ),
            ("/srv/envoy.sock", read_only("a", "/srv")),
            ("/run/env/a/b", read_only("c", "/run/env")),
            ("/tmp/a", read_only("d", "/tmp")),
            ("/run/a", read_only("g", "/run")),
        ];
        for (socket, want) in table {
            assert_eq!(mount_for(socket, &mounts), Ok(want), "{socket}");
        }
        let failure = mount_for("/var/admin.sock", &mounts).unwrap_err();
        assert_eq!(failure.code, Code::SocketNotMounted);
        assert_eq!(
            failure.detail,
            "no volume of container `envoy` contains the admin's socket /var/admin.sock"
        );
    }

    #[test]
    fn mount_that_the_drainer_cannot_have_fails() {
        let expr = json!([
            {"name": "a", "mountPath": "/run"},
            {"name": "b", "mountPath": "/run/envoy", "subPathExpr": "$(POD_NAME)"},
        ]);
        let table = [
            ("/run/envoy/a", expr, Code::SocketNotMounted),
            ("/a", Value::Null, Code::SocketNotMounted),
            // The drainer's program is at `/drainer`.
            (
                "/a",
                json!([{"name": "scratch", "mountPath": "/"}]),
                Code::SocketNotMounted,
            ),
            (
                "/drainer/a",
                json!([{"name": "scratch", "mountPath": "/drainer"}]),
                Code::SocketNotMounted,
            ),
            (
                "/drainer/a/b",
                json!([{"name": "scratch", "mountPath": "/drainer/a/"}]),
                Code::SocketNotMounted,
            ),
            (
                "/var/run/secrets/kubernetes.io/serviceaccount/a",
                json!([{"name": "scratch", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount/"}]),
                Code::NameTaken,
            ),
            (
                "/var/run/secrets/kubernetes.io/serviceaccount/b/a",
                json!([{"name": "scratch", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount/b"}]),
                Code::NameTaken,
            ),
            (
                "/var/run/secrets/envoy-drainer.dev/a",
                json!([{"name": "scratch", "mountPath": "/var/run/secrets/envoy-drainer.dev"}]),
                Code::NameTaken,
            ),
        ];
        for (socket, mounts, code) in table {
            assert_eq!(
                mount_for(socket, &mounts).map_err(|failure| failure.code),
                Err(code),
                "{socket}"
            );
        }
    }

    #[test]
    fn parent_of_the_drainers_directories_must_be_writable() {
        let parents = [
            "/var",
            "/var/run",
            "/var/run/",
            "/var/run/secrets/kubernetes.io",
        ];
        for parent in parents {
            let socket = format!("{parent}/envoy.sock");
            let mount = |name: &str, read_only: Option<bool>| json!({"name": name, "mountPath": parent, "readOnly": read_only});
            let writable = json!({"name": "scratch", "mountPath": parent});
            for read_only in [None, Some(false)] {
                let got = mount_for(&socket, &json!([mount("scratch", read_only)]));
                assert_eq!(got, Ok(writable.clone()), "{parent}");
            }
            for (name, read_only) in [("scratch", Some(true)), ("kept", None), ("none", None)] {
                let failure = mount_for(&socket, &json!([mount(name, read_only)])).unwrap_err();
                assert_eq!(failure.code, Code::SocketNotMounted, "{parent} {name}");
                assert!(failure.detail.contains("cannot be created"), "{failure}");
            }
        }
    }

    #[test]
    fn tokens_path_is_free_in_a_pod_without_token() {
        const PARENT: &str = "/var/run/secrets/kubernetes.io";
        for path in [PARENT, &format!("{PARENT}/serviceaccount/a")] {
            let socket = format!("{path}/envoy.sock");
            let mounts = json!([{"name": "kept", "mountPath": path}]);
            let want = json!({"name": "kept", "mountPath": path, "readOnly": true});
            let got = mount_in(&socket, &mounts, &json!(false));
            assert_eq!(got, Ok(want), "{path}");
            assert!(mount_in(&socket, &mounts, &json!(true)).is_err(), "{path}");
        }
    }

    #[test]
    fn envoys_user_is_used_unless_root() {
        let table = [
            (json!({}), json!({}), None, None),
            (json!({"runAsUser": 101}), json!({}), Some(101), None),
            (
                json!({}),
                json!({"runAsUser": 101, "runAsGroup": 102}),
                Some(101),
                Some(102),
            ),
            (
                json!({"runAsUser": 1}),
                json!({"runAsUser": 101, "runAsGroup": 0}),
                Some(1),
                None,
            ),
            (
                json!({"runAsUser": 0}),
                json!({"runAsUser": 101, "runAsGroup": 5}),
                None,
                Some(5),
            ),
        ];
        for (own, inherited, user, group) in table {
            let envoy = json!({"name": "envoy", "securityContext": own, "volumeMounts": [{"name": "a", "mountPath": "/srv"}]});
            let (mount, warnings) = resolve_mount(
                "unix:/srv/a",
                &envoy,
                &json!({"securityContext": inherited}),
            );
            let mount = mount.unwrap();
            assert_eq!(
                (mount.user, mount.group),
                (user, group),
                "{own} {inherited}"
            );
            let codes: Vec<_> = warnings.iter().map(|warning| warning.code).collect();
            let want = if user.is_none() {
                vec![Code::SocketUserUnknown]
            } else {
                vec![]
            };
            assert_eq!(codes, want, "{own} {inherited}");
        }
    }

    #[test]
    fn socket_that_is_not_annotated_is_no_reason_to_deny() {
        for (source, codes) in [
            (
                AdminAddressSource::ConfigYaml,
                &[Code::SocketNotReachable][..],
            ),
            (AdminAddressSource::Default, &[]),
        ] {
            let envoy = json!({"name": "envoy"});
            let (mount, warnings) = resolve_mount_of(source, "unix:/srv/a", &envoy, &Value::Null);
            assert_eq!(mount.unwrap().mount, None);
            assert!(warnings.iter().map(|it| &it.code).eq(codes), "{warnings:?}");
        }
    }

    #[test]
    fn admin_without_socket_path_needs_nothing() {
        for admin in ["127.0.0.1:9901", "unix:@admin"] {
            let (mount, warnings) = resolve_mount(admin, &json!({}), &Value::Null);
            let mount = mount.unwrap();
            assert_eq!(
                (mount.mount, mount.user, mount.group, warnings),
                (None, None, None, vec![]),
                "{admin}"
            );
        }
    }
}
