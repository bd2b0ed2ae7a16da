//! What stands in for a container's image.

use std::path::PathBuf;

use anyhow::Result;
use drainer::RUN_DIR;

use super::mounts::TERMINATION_LOG;
use crate::binaries;
use crate::envoy_versions::EnvoyBinary;

/// What a container's image is on this machine: one program.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) path: PathBuf,
    /// Paths inside the container, and the variables that tell the program where they are here.
    pub(super) path_variables: Vec<(String, String)>,
}

// === impl Program ===

impl Program {
    /// The program at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            path_variables: Vec::new(),
        }
    }

    /// An Envoy.
    #[must_use]
    pub fn envoy(envoy: &EnvoyBinary) -> Self {
        Self::new(&envoy.path)
    }

    /// The drainer, which is told by variables where its two paths are: its flags stay as injected.
    ///
    /// # Errors
    /// When it does not build.
    pub fn drainer() -> Result<Self> {
        let drainer = Self::new(binaries::drainer()?);
        let drainer = drainer.path_variable(RUN_DIR, "DRAINER_RUN_DIR");
        Ok(drainer.path_variable(TERMINATION_LOG, "DRAINER_TERMINATION_LOG"))
    }

    /// Tells the program by a variable where a path of its container is on this machine.
    #[must_use]
    pub fn path_variable(mut self, path: &str, variable: &str) -> Self {
        self.path_variables
            .push((path.to_owned(), variable.to_owned()));
        self
    }
}
