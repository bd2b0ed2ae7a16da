//! How the drainer reaches an admin on a Unix socket: through Envoy's mount, as Envoy's user.

use std::path::Path;

use drainer::AdminAddress;
use drainer::config::RUN_DIR;
use k8s_openapi::api::core::v1 as core;

use super::codes::{Code, Notice};
use super::container::TOKEN_DIR;
use super::view::{Container, PodView, SecurityContext, Text};

/// What the drainer's container takes over from Envoy's.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// The mount that holds the socket.
    pub mount: Option<core::VolumeMount>,
    /// Envoy's user.
    pub user: Option<i64>,
    /// Envoy's group.
    pub group: Option<i64>,
}

// === impl Access ===

impl Access {
    /// Settles the access to the admin; nothing is needed but for a socket with a path.
    ///
    /// # Errors
    /// If no volume of Envoy's holds the socket, or the drainer cannot mount it there.
    pub(super) fn to(
        admin: &AdminAddress,
        envoy: &Container<'_>,
        pod: &PodView<'_>,
        warnings: &mut Vec<Notice>,
    ) -> Result<Self, Notice> {
        let AdminAddress::Path(socket) = admin else {
            return Ok(Self::default());
        };
        let mount = covering_mount(envoy, socket)?;
        let (own, pods) = (envoy.security_context, pod.spec.security_context);
        let id = |of: fn(SecurityContext) -> Option<i64>| {
            let id = own.and_then(of).or(pods.and_then(of));
            id.filter(|id| *id != 0)
        };
        let (user, group) = (id(|c| c.run_as_user), id(|c| c.run_as_group));
        if user.is_none() {
            warnings.push(Code::SocketUserUnknown.about(format!(
                "container `{}` has no `runAsUser` but root, so the drainer may not be allowed to use {}",
                envoy.name(),
                socket.display()
            )));
        }
        Ok(Self {
            mount: Some(mount),
            user,
            group,
        })
    }
}

/// The mount of Envoy's that the socket lies in, the one with the longest path, for the drainer.
fn covering_mount(envoy: &Container<'_>, socket: &Path) -> Result<core::VolumeMount, Notice> {
    let (name, socket_shown) = (envoy.name(), socket.display());
    let mounts = envoy.volume_mounts.iter().flatten();
    let covering = mounts
        .filter(|mount| mount.path().is_some_and(|path| socket.starts_with(path)))
        .max_by_key(|mount| mount.path().map(|path| path.components().count()))
        // Its variables are those of Envoy's container; the drainer's would make another path of it.
        .filter(|mount| filled(&mount.sub_path_expr).is_none());
    let Some(mount) = covering else {
        return Err(Code::SocketNotMounted.about(format!(
            "no volume of container `{name}` holds the admin's socket {socket_shown}"
        )));
    };
    let is_at = |own: &&str| mount.path() == Some(Path::new(own));
    if let Some(own) = [RUN_DIR, TOKEN_DIR].into_iter().find(is_at) {
        let detail = format!("container `{name}` mounts a volume at the drainer's {own}");
        return Err(Code::NameTaken.about(detail));
    }
    Ok(core::VolumeMount {
        name: filled(&mount.name).unwrap_or_default(),
        mount_path: filled(&mount.mount_path).unwrap_or_default(),
        sub_path: filled(&mount.sub_path),
        ..Default::default()
    })
}

fn filled(text: &Option<Text<'_>>) -> Option<String> {
    let text = text.as_deref().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}
