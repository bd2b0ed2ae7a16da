//! How the drainer reaches an admin on a Unix socket: through Envoy's mount, as Envoy's user.

use std::path::Path;

use drainer::{AdminAddress, RUN_DIR};
use k8s_openapi::api::core::v1 as core;

use super::sidecar_container::TOKEN_DIR;
use crate::admission::defaults::Defaults;
use crate::admission::diagnostics::{Code, Diagnostic};
use crate::admission::pod::{Container, PodView, SecurityContext, Text, VolumeMount};

/// What the drainer's container takes over from Envoy's.
#[derive(Debug, Default)]
pub(crate) struct AdminSocketMount {
    /// The mount that holds the socket.
    pub mount: Option<core::VolumeMount>,
    /// Envoy's user.
    pub user: Option<i64>,
    /// Envoy's group.
    pub group: Option<i64>,
    /// A container without a user of its own is root's in this pod.
    pub inherits_root: bool,
}

// === impl AdminSocketMount ===

impl AdminSocketMount {
    /// Settles the access to the admin; nothing is needed but for a socket with a path.
    ///
    /// # Errors
    /// If no volume of Envoy's holds the socket, or the drainer cannot mount it there.
    pub(crate) fn covering(
        admin: &AdminAddress,
        envoy: &Container<'_>,
        pod: &PodView<'_>,
        defaults: &Defaults,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Self, Diagnostic> {
        let (own, pods) = (envoy.security_context, pod.spec.security_context);
        let inherits_root = pods.and_then(|pod| pod.run_as_user) == Some(0);
        let AdminAddress::Path(socket) = admin else {
            return Ok(Self {
                inherits_root,
                ..Self::default()
            });
        };
        let mount = covering_mount(envoy, socket, pod)?;
        let id = |of: fn(SecurityContext) -> Option<i64>| own.and_then(of).or(pods.and_then(of));
        let (user, group) = (id(|c| c.run_as_user), id(|c| c.run_as_group));
        let known = user.filter(|user| *user != 0);
        // OpenShift gives all of a pod's containers the same user.
        if known.is_none() && !defaults.open_shift {
            let why = match user {
                Some(_) => "runs as root, which the drainer never does",
                None => "has no `runAsUser`, so that its user is unknown",
            };
            warnings.push(Code::SocketUserUnknown.diagnostic(format!(
                "container `{}` {why}: the drainer may not be allowed to use {}",
                envoy.name(),
                socket.display()
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

/// The mount of Envoy's that the socket lies in, the one with the longest path, for the drainer.
fn covering_mount(
    envoy: &Container<'_>,
    socket: &Path,
    pod: &PodView<'_>,
) -> Result<core::VolumeMount, Diagnostic> {
    let (name, socket_shown) = (envoy.name(), socket.display());
    let mounts = envoy.volume_mounts.iter().flatten();
    let covering = mounts
        .filter(|mount| mount.path().is_some_and(|path| socket.starts_with(path)))
        .max_by_key(|mount| mount.path().map(|path| path.components().count()))
        // Its variables are those of Envoy's container; the drainer's would make another path of it.
        .filter(|mount| non_empty(&mount.sub_path_expr).is_none());
    let Some(mount) = covering else {
        return Err(Code::SocketNotMounted.diagnostic(format!(
            "no volume of container `{name}` holds the admin's socket {socket_shown}"
        )));
    };
    let path = mount.path().unwrap_or(Path::new(""));
    let is_taken = |own: &&str| match *own {
        // Read-only, so that no mount point can be made below it.
        TOKEN_DIR => path.starts_with(TOKEN_DIR),
        own => path == Path::new(own),
    };
    if let Some(own) = [RUN_DIR, TOKEN_DIR].into_iter().find(is_taken) {
        let detail = format!("container `{name}` mounts a volume at the drainer's {own}");
        return Err(Code::NameTaken.diagnostic(detail));
    }
    // In a parent, the runtime makes the mount points of the drainer's volume, and so must write to it.
    let is_below = |own: &&str| Path::new(own).starts_with(path);
    let below = [RUN_DIR, TOKEN_DIR].into_iter().find(is_below);
    if let Some(own) = below.filter(|_| !is_writable_empty_dir(mount, pod)) {
        return Err(Code::SocketNotMounted.diagnostic(format!(
            "the admin's socket {socket_shown} is in a volume at {}, where {own} cannot be made: only in an emptyDir that container `{name}` may write to",
            path.display()
        )));
    }
    Ok(core::VolumeMount {
        name: non_empty(&mount.name).unwrap_or_default(),
        mount_path: non_empty(&mount.mount_path).unwrap_or_default(),
        sub_path: non_empty(&mount.sub_path),
        // A socket can be connected to on a read-only mount, whatever Envoy's is.
        read_only: below.is_none().then_some(true),
        ..Default::default()
    })
}

/// True for an emptyDir that Envoy may write to: with it the drainer gets no more than Envoy has, and
/// what is made in it ends with the pod.
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

    fn resolve_mount(
        admin: &str,
        envoy: &Value,
        pod: &Value,
    ) -> (Result<AdminSocketMount, Diagnostic>, Vec<Diagnostic>) {
        let (envoy, pod) = (envoy.to_string(), json!({ "spec": pod }).to_string());
        let envoy = serde_json::from_str(&envoy).unwrap();
        let pod = PodView::decode(&pod).unwrap();
        let defaults = Defaults::new("", "");
        let mut warnings = Vec::new();
        let access = AdminSocketMount::covering(
            &admin.parse().unwrap(),
            &envoy,
            &pod,
            &defaults,
            &mut warnings,
        );
        (access, warnings)
    }

    fn mount_for(socket: &str, mounts: &Value) -> Result<Value, Diagnostic> {
        let envoy = json!({"name": "envoy", "volumeMounts": mounts});
        let volumes = json!([
            {"name": "scratch", "emptyDir": {}},
            {"name": "kept", "emptyDir": null, "hostPath": {"path": "/run"}},
        ]);
        let pod = json!({"volumes": volumes});
        let (access, _) = resolve_mount(&format!("unix:{socket}"), &envoy, &pod);
        access.map(|access| serde_json::to_value(access.mount).unwrap())
    }

    #[test]
    fn the_mount_with_the_longest_path_is_taken_read_only() {
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
        ]);
        let table = [
            (
                "/run/envoy/admin.sock",
                json!({"name": "b", "mountPath": "/run/envoy/", "subPath": "x", "readOnly": true}),
            ),
            ("/srv/envoy.sock", read_only("a", "/srv")),
            ("/run/env/a/b", read_only("c", "/run/env")),
            ("/tmp/a", read_only("d", "/tmp")),
        ];
        for (socket, want) in table {
            assert_eq!(mount_for(socket, &mounts), Ok(want), "{socket}");
        }
        let refused = mount_for("/var/admin.sock", &mounts).unwrap_err();
        assert_eq!(refused.code, Code::SocketNotMounted);
        assert_eq!(
            refused.detail,
            "no volume of container `envoy` holds the admin's socket /var/admin.sock"
        );
    }

    #[test]
    fn a_mount_that_the_drainer_cannot_have_is_refused() {
        let expr = json!([
            {"name": "a", "mountPath": "/run"},
            {"name": "b", "mountPath": "/run/envoy", "subPathExpr": "$(POD_NAME)"},
        ]);
        let table = [
            ("/run/envoy/a", expr, Code::SocketNotMounted),
            ("/a", Value::Null, Code::SocketNotMounted),
            (
                "/run/envoy-drainer/a",
                json!([{"name": "a", "mountPath": "/run/envoy-drainer"}]),
                Code::NameTaken,
            ),
            (
                "/run/envoy-drainer/b/a",
                json!([{"name": "a", "mountPath": "/run/envoy-drainer/"}]),
                Code::NameTaken,
            ),
            (
                "/var/run/secrets/kubernetes.io/serviceaccount/b/a",
                json!([{"name": "scratch", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount/b"}]),
                Code::NameTaken,
            ),
        ];
        for (socket, mounts, code) in table {
            assert_eq!(
                mount_for(socket, &mounts).map_err(|refused| refused.code),
                Err(code),
                "{socket}"
            );
        }
    }

    #[test]
    fn a_parent_of_our_directories_is_mounted_writable_or_refused() {
        let parents = [
            "/run",
            "/run/",
            "/var",
            "/var/run",
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
                let refused = mount_for(&socket, &json!([mount(name, read_only)])).unwrap_err();
                assert_eq!(refused.code, Code::SocketNotMounted, "{parent} {name}");
                assert!(refused.detail.contains("cannot be made"), "{refused}");
            }
        }
    }

    #[test]
    fn envoys_user_is_taken_unless_it_is_root() {
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
        for (own, pods, user, group) in table {
            let envoy = json!({"name": "envoy", "securityContext": own, "volumeMounts": [{"name": "a", "mountPath": "/srv"}]});
            let (access, warnings) =
                resolve_mount("unix:/srv/a", &envoy, &json!({"securityContext": pods}));
            let access = access.unwrap();
            assert_eq!((access.user, access.group), (user, group), "{own} {pods}");
            let codes: Vec<_> = warnings.iter().map(|warning| warning.code).collect();
            let want = if user.is_none() {
                vec![Code::SocketUserUnknown]
            } else {
                vec![]
            };
            assert_eq!(codes, want, "{own} {pods}");
        }
    }

    #[test]
    fn no_other_admin_needs_anything() {
        for admin in ["127.0.0.1:9901", "unix:@admin"] {
            let (access, warnings) = resolve_mount(admin, &json!({}), &Value::Null);
            let access = access.unwrap();
            assert_eq!(
                (access.mount, access.user, access.group, warnings),
                (None, None, None, vec![]),
                "{admin}"
            );
        }
    }
}
