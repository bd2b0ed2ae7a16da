//! The mounts of a container: maps its paths to paths of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use k8s_openapi::api::core::v1 as k8s;

/// Kubernetes' default of `terminationMessagePath`.
pub(super) const TERMINATION_LOG: &str = "/dev/termination-log";

/// A container's mounts, with its termination message file: path in the container, path on this machine.
#[derive(Debug, Clone)]
pub(super) struct Mounts {
    mounts: Vec<(String, PathBuf)>,
    pub(super) termination_log: PathBuf,
    pub(super) log: PathBuf,
}

/// The directory of a volume.
pub(super) fn volume_dir(pod: &Path, volume: &str) -> PathBuf {
    pod.join("volumes").join(volume)
}

// === impl Mounts ===

impl Mounts {
    pub(super) fn for_container(container: &k8s::Container, pod: &Path) -> Result<Self> {
        let dir = pod.join("containers").join(&container.name);
        fs::create_dir_all(&dir)?;
        let termination_log = dir.join("termination-log");
        fs::write(&termination_log, "")?;
        let path = container.termination_message_path.as_deref();
        let path = path.unwrap_or(TERMINATION_LOG).to_owned();
        let mut mounts = vec![(path, termination_log.clone())];
        for mount in container.volume_mounts.iter().flatten() {
            let volume = volume_dir(pod, &mount.name);
            let host_path = match &mount.sub_path {
                Some(sub_path) => volume.join(sub_path),
                None => volume,
            };
            fs::create_dir_all(&host_path)?;
            mounts.push((mount.mount_path.clone(), host_path));
        }
        // Longest first: a mount may be inside another.
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Ok(Self {
            mounts,
            termination_log,
            log: dir.join("log"),
        })
    }

    /// Replaces a path inside the container by its path on this machine. The longest mount path in the text wins.
    pub(super) fn translate_paths(&self, text: &str) -> String {
        let contains = |(path, _): &&(String, PathBuf)| text.contains(path.as_str());
        match self.mounts.iter().find(contains) {
            Some((path, host_path)) => text.replace(path, &host_path.to_string_lossy()),
            None => text.to_owned(),
        }
    }
}
