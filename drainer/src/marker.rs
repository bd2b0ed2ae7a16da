//! The marker file: tells the next process of the drainer that Envoy's health was failed, and why.
//!
//! A drainer that is killed during a drain must not leave a healthy Envoy DRAINING, nor make the
//! Envoy of a terminating pod healthy. The file is written before the call that fails Envoy's
//! health, and removed when the call that restores it has returned 200, or Envoy turns out to be live.
//!
//! It is in the drainer's emptyDir, so it survives a restart of the container, also while the pod
//! terminates (KEP-4438), and RestartAllContainers (KEP-5532), which runs no hooks.
//! <https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/4438-container-restart-termination>
//! <https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/5532-restart-all-containers-on-container-exits>

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The marker file in the drainer's directory.
pub struct Marker(PathBuf);

/// Why Envoy's health was failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerReason {
    /// In case the pod is terminating, which is unproven: the next process restores health.
    Provisional,
    /// Both termination signals had arrived: the pod is terminating.
    PodTerminating,
}

/// The content for [`MarkerReason::PodTerminating`]; for [`MarkerReason::Provisional`] the file is
/// empty, as older drainers, which had no reasons, wrote it.
const POD_TERMINATING: &str = "pod-ends\n";

// === impl Marker ===

impl Marker {
    /// The marker in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self(dir.join("made-envoy-fail"))
    }

    /// Writes the marker, replacing an existing one atomically: a process that is killed meanwhile
    /// leaves the old content or the new.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub fn write(&self, reason: MarkerReason) -> io::Result<()> {
        let text = match reason {
            MarkerReason::Provisional => "",
            MarkerReason::PodTerminating => POD_TERMINATING,
        };
        let temporary = self.0.with_extension("new");
        fs::write(&temporary, text)?;
        fs::rename(temporary, &self.0)
    }

    /// Reads the marker; `None` if there is certainly none. Unknown content or an error counts as
    /// [`MarkerReason::Provisional`]: restoring health that was not failed does no harm.
    pub fn read(&self) -> Option<MarkerReason> {
        match fs::read(&self.0) {
            Ok(text) if text == POD_TERMINATING.as_bytes() => Some(MarkerReason::PodTerminating),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Ok(_) | Err(_) => Some(MarkerReason::Provisional),
        }
    }

    /// Removes the marker.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub fn remove(&self) -> io::Result<()> {
        remove_if_present(&self.0)
    }
}

/// Removes a file, which need not exist.
pub(crate) fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip_and_unknown_content_is_provisional() {
        let dir = tempfile::tempdir().unwrap();
        let marker = Marker::new(dir.path());
        assert_eq!(marker.read(), None);
        marker.remove().unwrap();
        for reason in [
            MarkerReason::PodTerminating,
            MarkerReason::Provisional,
            MarkerReason::PodTerminating,
        ] {
            marker.write(reason).unwrap();
            assert_eq!(marker.read(), Some(reason));
        }
        for text in ["", "pod", "pod-ends and more\n"] {
            fs::write(dir.path().join("made-envoy-fail"), text).unwrap();
            assert_eq!(marker.read(), Some(MarkerReason::Provisional), "{text}");
        }
        marker.remove().unwrap();
        assert_eq!(marker.read(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
