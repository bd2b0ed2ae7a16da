//! The file that says "this drainer failed Envoy's health", for the drainer's next process.
//!
//! A drainer that is killed half-way must not leave a healthy Envoy DRAINING, nor make an Envoy
//! healthy whose pod ends. The file is written before the call that fails Envoy's health, says why,
//! and is removed only when the call that restores health got its 200.
//!
//! It outlives the container, in the drainer's emptyDir: through a restart of the container, also
//! while its pod ends (KEP-4438), and through RestartAllContainers (KEP-5532), which runs no hooks.
//! <https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/4438-container-restart-termination>
//! <https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/5532-restart-all-containers-on-container-exits>

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The file in the drainer's directory.
pub struct Marker(PathBuf);

/// Why Envoy's health was failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerReason {
    /// In case the pod ends, which nothing proved: to be restored.
    Provisional,
    /// Both termination signals had come: the pod ends.
    PodTerminating,
}

/// What the file holds for [`Reason::PodEnds`]; for [`Reason::Provisional`] it is empty, as
/// drainers wrote it that knew no reasons.
const POD_TERMINATING: &str = "pod-ends\n";

// === impl Marker ===

impl Marker {
    /// The marker in `dir`.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self(dir.join("made-envoy-fail"))
    }

    /// Writes the marker in place of one that is there. A process that is killed meanwhile leaves the
    /// old one or the new one, never half of it.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub fn write(&self, reason: MarkerReason) -> io::Result<()> {
        let text = match reason {
            MarkerReason::Provisional => "",
            MarkerReason::PodTerminating => POD_TERMINATING,
        };
        let new = self.0.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(new, &self.0)
    }

    /// Reads the marker; `None` if there is surely none. What cannot be read, or was written by another
    /// version, is [`Reason::Provisional`]: restoring health that was not failed does no harm.
    #[must_use]
    pub fn read(&self) -> Option<MarkerReason> {
        match fs::read(&self.0) {
            Ok(text) if text == POD_TERMINATING.as_bytes() => Some(MarkerReason::PodTerminating),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Ok(_) | Err(_) => Some(MarkerReason::Provisional),
        }
    }

    /// Returns true unless there is surely no marker.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.read().is_some()
    }

    /// Removes the marker.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_back_and_anything_else_is_provisional() {
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
        assert!(!marker.is_present());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
