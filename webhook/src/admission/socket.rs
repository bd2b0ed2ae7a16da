//! How the drainer reaches an admin on a Unix socket: Envoy's mount, and Envoy's user.

use std::path::Path;

use drainer::AdminAddress;
use k8s_openapi::api::core::v1 as core;

use super::codes::{Code, Notice};
use super::view::{Container, PodView, SecurityContext, VolumeMount};

/// What the drainer's container takes over from Envoy's to use its socket.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// The mount that holds the socket.
    pub mount: Option<core::VolumeMount>,
    /// Envoy's user.
    pub user: Option<i64>,
    /// Envoy's group.
    pub group: Option<i64>,
}

/// Settles the access to the admin; nothing is needed but for a socket with a path.
///
/// # Errors
/// If no volume of Envoy's holds the socket.
pub(super) fn access(
    address: &AdminAddress,
    envoy: &Container<'_>,
    pod: &PodView<'_>,
    warnings: &mut Vec<Notice>,
) -> Result<Access, Notice> {
    let AdminAddress::Path(socket) = address else {
        return Ok(Access::default());
    };
    let mount = covering_mount(envoy, socket).ok_or_else(|| {
        Code::SocketNotMounted.about(format!(
            "no volume of container `{}` holds the admin's socket {}",
            envoy.name(),
            socket.display()
        ))
    })?;
    let not_root = |id: &i64| *id != 0;
    let (own, pods) = (envoy.security_context, pod.spec.security_context);
    let id = |of: fn(SecurityContext) -> Option<i64>| {
        own.and_then(of).or(pods.and_then(of)).filter(not_root)
    };
    let (user, group) = (id(|c| c.run_as_user), id(|c| c.run_as_group));
    if user.is_none() {
        warnings.push(Code::SocketUserUnknown.about(format!(
            "container `{}` has no `runAsUser` but root, so the drainer may not be allowed to use {}",
            envoy.name(),
            socket.display()
        )));
    }
    Ok(Access {
        mount: Some(mount),
        user,
        group,
    })
}

/// The mount of Envoy's that the socket lies in: the one with the longest path.
fn covering_mount(envoy: &Container<'_>, socket: &Path) -> Option<core::VolumeMount> {
    let covers = |mount: &&VolumeMount<'_>| {
        mount
            .path()
            .is_some_and(|path| socket.starts_with(path) && socket != path)
    };
    let mounts = envoy.volume_mounts.iter().flatten();
    let mount = mounts
        .filter(covers)
        .max_by_key(|mount| mount.path().map(|p| p.components().count()))?;
    // Its variables are Envoy's; the drainer's would make another path of it.
    if mount
        .sub_path_expr
        .as_deref()
        .is_some_and(|expr| !expr.is_empty())
    {
        return None;
    }
    let text = |text: &Option<super::view::Text<'_>>| text.as_deref().map(str::to_owned);
    Some(core::VolumeMount {
        name: text(&mount.name)?,
        mount_path: text(&mount.mount_path)?,
        sub_path: text(&mount.sub_path),
        ..Default::default()
    })
}
