//! The program that runs in place of a container's image.

use std::path::PathBuf;

use anyhow::Result;
use drainer::RUN_DIR;

use super::mounts::TERMINATION_LOG;
use crate::binaries;
use crate::envoy_versions::EnvoyBinary;

/// A program of this machine in place of an image.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) path: PathBuf,
    /// Appended to the container's arguments. Paths inside the container become paths of this machine.
    pub(super) args: Vec<String>,
    /// Appended in the same way to the command of an exec hook.
    pub(super) hook_args: Vec<String>,
}

// === impl Program ===

impl Program {
    /// The program at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
            hook_args: Vec::new(),
        }
    }

    /// An Envoy.
    pub fn envoy(envoy: &EnvoyBinary) -> Self {
        Self::new(&envoy.path)
    }

    /// The drainer. Its two paths, which are defaults in a container, are passed as flags.
    ///
    /// # Errors
    /// When it does not build.
    pub fn drainer() -> Result<Self> {
        let run_dir = format!("--run-dir={RUN_DIR}");
        let termination_log = format!("--termination-log={TERMINATION_LOG}");
        Ok(Self {
            args: vec![run_dir.clone(), termination_log],
            hook_args: vec![run_dir],
            ..Self::new(binaries::drainer()?)
        })
    }
}
