//! Where a container's paths are on this machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use k8s_openapi::api::core::v1 as k8s;

/// Kubernetes' default of `terminationMessagePath`.
pub(super) const TERMINATION_LOG: &str = "/dev/termination-log";

/// A container's mounts, its termination message among them: path in the container, path here.
#[derive(Debug, Clone)]
pub(super) struct Mounts {
    mounts: Vec<(String, PathBuf)>,
    pub(super) termination_log: PathBuf,
    pub(super) log: PathBuf,
}

/// The folder that is a volume.
pub(super) fn volume_dir(pod: &Path, volume: &str) -> PathBuf {
    pod.join("volumes").join(volume)
}

// === impl Mounts ===

impl Mounts {
    pub(super) fn for_container(container: &k8s::Container, pod: &Path) -> Result<Self> {
        let own = pod.join("containers").join(&container.name);
        fs::create_dir_all(&own)?;
        let termination_log = own.join("termination-log");
        fs::write(&termination_log, "")?;
        let path = container.termination_message_path.as_deref();
        let path = path.unwrap_or(TERMINATION_LOG).to_owned();
        let mut mounts = vec![(path, termination_log.clone())];
        for mount in container.volume_mounts.iter().flatten() {
            let volume = volume_dir(pod, &mount.name);
            let here = match &mount.sub_path {
                Some(sub_path) => volume.join(sub_path),
                None => volume,
            };
            fs::create_dir_all(&here)?;
            mounts.push((mount.mount_path.clone(), here));
        }
        // The longest first: a mount may lie inside another.
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Ok(Self {
            mounts,
            termination_log,
            log: own.join("log"),
        })
    }

    /// A text of the container's manifest, with each path as it is here.
    pub(super) fn translate_paths(&self, text: &str) -> String {
        let inside = |(path, _): &&(String, PathBuf)| text.contains(path.as_str());
        match self.mounts.iter().find(inside) {
            Some((path, here)) => text.replace(path, &here.to_string_lossy()),
            None => text.to_owned(),
        }
    }
}
