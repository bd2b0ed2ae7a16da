//! The note that says "we made Envoy fail its health checks", for the drainer's next life.
//!
//! A drainer that is killed half-way must not leave a healthy Envoy DRAINING. The note is written
//! before the call that makes Envoy fail, and goes only when the call that undoes it got its 200.

use std::io;
use std::path::{Path, PathBuf};

/// The note, a file in the drainer's directory, which outlives its container.
pub struct Marker(PathBuf);

// === impl Marker ===

impl Marker {
    /// The note in `dir`.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self(dir.join("made-envoy-fail"))
    }

    /// Leaves the note.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub fn write(&self) -> io::Result<()> {
        std::fs::write(&self.0, "")
    }

    /// Returns true unless there is surely no note: to undo what was not done does no harm.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.0.try_exists().unwrap_or(true)
    }

    /// Takes the note away.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
